    // The sums of a thread, `sum_ROW_0` and `sum_ROW_1`, half a tile apart, become the output.
    let first_column = tile * each + thread_column * 4u;
    // Loops, so that what finishes an element is compiled once and not for every sum.
    for (var i = 0u; i < {{TM}}u; i++) {
        var low = sum_0_0;
        var high = sum_0_1;
{{CHOOSE}}
        let row = first_row + (thread_row + i / 4u * {{ROWS_APART}}u) * 4u + i % 4u;
        for (var j = 0u; j < each / {{THREADS_N}}u; j++) {
            let column = first_column + (j & 3u) + (j >> 2u) * {{HALF_BN}}u;
            if (row < params.m && column < params.columns) {
                finish(row, column, select(low, high, j > 3u)[j & 3u], high[j & 3u]);
            }
        }
    }
