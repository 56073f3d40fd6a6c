"""A sample of the mutants (the whole table: `python -m tests.trust.mutants`), always the same.

It is of a part of the kernels where tests are short, and of all with TENSAI_TRUST=full.
"""

from __future__ import annotations

import zlib

import pytest

from .mutants import Score, run
from .wgsl_mutations import mutations

EACH = 3  # mutants of a kernel
EACH_FULL = 25
PART = 8  # of the kernels, where tests are short: one in so many

SOURCE = """\
var<workgroup> room: array<f32, 64>;
fn unused(a: f32) -> f32 {
    return a + 1.0;
}
fn total(a: u32) -> u32 {
    return a + 2u;
}
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
    room[lane] = f32(total(lane));  // a + comment
    workgroupBarrier();
    if (lane < 9u) {
        out[lane] = room[63u - lane];
    }
}
"""


def test_every_kind_of_mutation() -> None:
    made = {mutation.name for mutation in mutations(SOURCE)}
    assert {
        "memory: var<workgroup> room: array<f32, 64>;  ->  "
        "var<workgroup> room: array<f32, (64) / 2>;",
        "memory: var<workgroup> room: array<f32, 64>;  ->  var<private> room: array<f32, 64>;",
        "arithmetic: return a + 2u;  ->  return a - 2u;",
        "constant: return a + 2u;  ->  return a + 3u;",
        "barrier: workgroupBarrier();  ->  ",
        "statement: room[lane] = f32(total(lane));  ->  ",
        "guard: if (lane < 9u) {  ->  if (true) {",
        "guard: if (lane < 9u) {  ->  if (false) {",
        "off by one: if (lane < 9u) {  ->  if (lane <= 9u) {",
        "tail: if (lane < 9u) {  ->  if (lane < 9u - 1) {",
    } <= made
    assert not any("a + 1.0" in name or "comment" in name for name in made)  # code that never runs
    (barrier,) = (one for one in mutations(SOURCE) if one.kind == "barrier")
    first, turned = barrier.sources
    assert "workgroupBarrier" not in first + turned
    assert "let lane = (64) - 1u - lane_of_driver;" in turned


def _in_part(operation: str, kernel: str) -> bool:
    return zlib.crc32(f"{operation}/{kernel}".encode()) % PART == 0


@pytest.fixture(scope="module")
def scores(full: bool) -> list[Score]:
    return list(run(EACH_FULL) if full else run(EACH, only=_in_part))


def test_probes_kill_mutants(scores: list[Score]) -> None:
    killed = sum(score.counts["killed"] for score in scores)
    survivors = [
        f"{score.operation}/{score.kernel}: {name}" for score in scores for name in score.survivors
    ]
    assert killed > 0.9 * (killed + len(survivors)), "\n".join(survivors)


def test_every_kernel_has_mutants(scores: list[Score]) -> None:
    assert len(scores) >= 10
    for score in scores:
        tried = sum(score.counts.values()) - score.counts["refused"]
        assert tried >= EACH, (score.operation, score.kernel)
        assert score.counts["killed"], (score.operation, score.kernel, score.survivors)
