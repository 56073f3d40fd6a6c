// Tiles of the output of a product with a packed matrix.

// The row of the matrix for row `i` of a tile: with a gate, the second half of a tile holds the
// rows that belong to those of the first.
fn matrix_row(tile: u32, i: u32) -> u32 {
    if (params.gate == 0u) {
        return min(tile * {{BN}}u + i, params.rows - 1u);
    }
    let column = min(tile * {{HALF_BN}}u + i % {{HALF_BN}}u, params.columns - 1u);
    return column + i / {{HALF_BN}}u * params.columns;
}
