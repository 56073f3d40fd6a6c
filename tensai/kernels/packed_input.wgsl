// Rows of x, as wide as the matrix's, unit by unit.

fn input(row: u32, unit: u32) -> Unit {
    let first = row * params.width + first_quad(unit);
    return Unit(
{{INPUT_QUADS}}
    );
}
