// Part of attention_grad.wgsl: products of my 32 rows of {{MINE}} with 64 of {{THEIRS}}, by slices of
// four vectors that lie in workgroup memory.
            for (var start = 0u; start < vectors; start += 4u) {
                let d = start + lane % 4u;
                let row = lane / 4u;
                workgroupBarrier();
                room[lane] = {{MINE}}_vector(mine, my_width, first + row, my_rows, d);
                let place = 128u + row * 5u + lane % 4u;
                room[place] = {{THEIRS}}_vector(theirs, their_width, base + row, seen.y, d);
                let lower = base + row + 32u;
                room[place + 160u] = {{THEIRS}}_vector(theirs, their_width, lower, seen.y, d);
                workgroupBarrier();
                for (var i = 0u; i < 4u; i++) {
{{MULTIPLY}}
                }
            }
