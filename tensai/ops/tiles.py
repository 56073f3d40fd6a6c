"""Tiles of a product: what a workgroup computes of it, and the unrolled WGSL that does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple


class Pace(NamedTuple):
    """Seconds that a kernel takes for one step along k: of a tile that has a core for itself, and
    of each tile where the whole device is busy."""

    alone: float
    busy: float

    def predict(self, tiles: int, steps: int) -> float:
        """Seconds for a product of so many tiles, each of so many steps along k.

        A device works on alone / busy tiles at once. Few rounds of them are partly whole ones: the
        rule lies halfway, and chose within 1.1% of the best, on average, of 26 products measured.
        """
        rounds = tiles * self.busy / self.alone
        if rounds <= 4:
            rounds = max(1.0, (rounds + math.ceil(0.93 * rounds)) / 2)
        return steps * self.alone * rounds


@dataclass(frozen=True)
class Tile:
    """A workgroup's tile of a product, its step along k, and a thread's rows and columns.

    With `slices`, so many sets of threads compute the same tile, each a part of every step along k:
    more threads hide each other's waiting where there are few tiles. `by_columns` is the order in
    which a thread's sums are added to, which decides what its registers can be reused for.
    """

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    slices: int = 1
    by_columns: bool = False
    pace: Pace | None = None

    @property
    def threads(self) -> int:
        """Those of one slice. They lie in blocks of 4 by 8, as a subgroup of 32 reads best."""
        return (self.bm // self.tm) * (self.bn // self.tn)

    @property
    def lanes(self) -> int:
        return self.slices * self.threads

    @property
    def memory(self) -> int:
        """Bytes of workgroup memory, both tiles padded."""
        tiles = 16 * self.bk * (self.bm // 4 + self.bn // 4 + 2)
        return tiles + (self.slices > 1) * 16 * self.threads * self._together

    @property
    def _together(self) -> int:
        """Vectors of sums that a thread hands to another slice at a time."""
        return min(8, self.tm * self.tn // 4)

    def counts(self, m: int, n: int, k: int) -> tuple[int, int]:
        """Tiles of an (m, n) product, and the steps along k that each takes."""
        return -(-m // self.bm) * -(-n // self.bn), -(-k // self.bk)

    def values(self) -> dict[str, Any]:
        """The template values that follow from the tile alone."""
        stride_a, stride_b = self.bm // 4 + 1, self.bn // 4
        return {
            "BM": self.bm,
            "BN": self.bn,
            "BK": self.bk,
            "TM": self.tm,
            "TN": self.tn,
            "BM_4": self.bm // 4,
            "BN_4": self.bn // 4,
            "A_STRIDE": stride_a,
            "A_VECTORS": stride_a * self.bk,
            "A_LOADS": self.bm * self.bk // 4,
            "B_VECTORS": (stride_b + 1) * self.bk,
            "LANES": self.lanes,
            "THREADS": self.threads,
            "THREADS_N": self.bn // self.tn,
            "PLACE": self._place(),
            "SLICED": self.slices > 1,
            "SLICES": self.slices,
            "SUMS": self.threads * self._together,
        }

    def _place(self) -> str:
        """The lines that place a thread in the workgroup's tile."""
        across = self.bn // self.tn // 8
        assert across * 8 == self.bn // self.tn and self.bm // self.tm % 4 == 0
        return (
            f"    let thread = lane % {self.threads}u;\n"
            f"    let thread_row = thread / {32 * across}u * 4u + thread % 32u / 8u;\n"
            f"    let thread_column = thread / 32u % {across}u * 8u + thread % 8u;"
        )

    def loads(
        self, transpose_a: bool, transpose_b: bool, vector_a: bool, vector_b: bool, element: str
    ) -> dict[str, str]:
        """The unrolled lines that read a thread's share of the next tiles into named variables,
        `next_TILE_NUMBER`, while the last ones are computed with, and that put it down.

        LOAD_FULL is for a step that lies within k; LOAD_EDGE leaves what lies beyond it 0. Rows and
        columns beyond the product repeat the last ones: they are not stored.
        """
        made: dict[str, list[str]] = {
            key: [] for key in ("PLACES", "DECLARE_NEXT", "LOAD_FULL", "LOAD_EDGE", "KEEP")
        }
        for name, along_k, across, stride, base, first, edge, vector in (
            ("a", not transpose_a, self.bm, self.bm // 4 + 1, "x", "first_row", "m", vector_a),
            ("b", transpose_b, self.bn, self.bn // 4 + transpose_b, "y", "first_column", "n",
             vector_b),
        ):  # fmt: skip
            # Vectors that lie side by side in memory: along k, where they are turned on the way.
            width = (self.bk if along_k else across) // 4
            places = made["PLACES"]
            places.append(f"    let line_{name} = lane / {width}u;")
            places.append(f"    let place_{name} = lane % {width}u * 4u;")
            if not along_k:
                places.append(f"    let column_{name} = {first} + place_{name};")
                inner = f"column_{name}"
                if vector:
                    inner = f"min({inner}, params.{edge} - 4u)"
                places.append(
                    f"    let from_{name} = offsets.{base} + line_{name} * params.{edge} + {inner};"
                )
            assert across * self.bk // 4 % self.lanes == 0 and self.lanes % width == 0
            for number in range(across * self.bk // 4 // self.lanes):
                own = f"next_{name}_{number}"
                jump = number * self.lanes // width
                line = f"line_{name} + {jump}u"
                made["DECLARE_NEXT"].append(f"    var {own} = vec4<{element}>();")
                if along_k:
                    places.append(
                        f"    let from_{name}_{number} = offsets.{base} + "
                        f"min({first} + {line}, params.{edge} - 1u) * params.k + place_{name};"
                    )
                    at = f"from_{name}_{number} + following"
                    full = f"load_{name}({at})"
                    left = f"left(following + place_{name}, params.k)"
                else:
                    at = f"from_{name} + (following + {jump}u) * params.{edge}"
                    left = f"left(column_{name}, params.{edge})"
                    full = f"load_{name}({at})" if vector else f"load_some_{name}({at}, {left})"
                    left = f"select(0u, {left}, following + {line} < params.k)"
                made["LOAD_FULL"].append(f"            {own} = {full};")
                made["LOAD_EDGE"].append(f"            {own} = load_some_{name}({at}, {left});")
                if not along_k:
                    made["KEEP"].append(
                        f"        tile_{name}[({line}) * {stride}u + place_{name} / 4u] = {own};"
                    )
                    continue
                made["KEEP"] += [
                    f"        tile_{name}[(place_{name} + {part}u) * {stride}u + ({line}) / 4u]"
                    f"[({line}) & 3u] = {own}.{letter};"
                    for part, letter in enumerate("xyzw")
                ]
        return {key: "\n".join(lines) for key, lines in made.items()}

    def body(self, transpose_b: bool, element: str, unroll: bool = True) -> dict[str, Any]:
        """The unrolled lines over named accumulators, `sum_ROW_VECTOR`.

        MULTIPLY is a slice's part of a step, or without `unroll` the element `k` of it.
        """
        stride_a, stride_b = self.bm // 4 + 1, self.bn // 4 + transpose_b
        row_vectors, column_vectors = self.tm // 4, self.tn // 4
        # A thread's vectors lie a whole tile's part apart, so that lanes read neighbours.
        rows_apart = self.bm // 4 // row_vectors
        columns_apart = self.bn // 4 // column_vectors
        names = [(row, vector) for row in range(self.tm) for vector in range(column_vectors)]
        ordered = sorted(names, key=lambda name: name[1]) if self.by_columns else names
        steps = self.bk // self.slices
        multiply = []
        for step in range(steps) if unroll else ("k",):
            at_a, at_b = f"{step}u * {stride_a}u", f"{step}u * {stride_b}u"
            if not unroll:
                at_a, at_b = f"k * {stride_a}u", f"k * {stride_b}u"
            multiply.append("        {")
            multiply += [
                f"            let a_{i} = tile_a[at_a + {at_a} + {i * rows_apart}u];"
                for i in range(row_vectors)
            ]
            multiply += [
                f"            let b_{i} = tile_b[at_b + {at_b} + {i * columns_apart}u];"
                for i in range(column_vectors)
            ]
            for row, vector in ordered:
                left = f"vec4<{element}>(a_{row // 4}.{'xyzw'[row % 4]})"
                total = f"sum_{row}_{vector}"
                product = (
                    f"fma({left}, b_{vector}, {total})"
                    if element == "f32"
                    else f"{total} + {left} * b_{vector}"
                )
                multiply.append(f"            {total} = {product};")
            multiply.append("        }")
        store = [
            f"    store(base_out, first_row + (thread_row + {row // 4 * rows_apart}u) * 4u + "
            f"{row % 4}u, first_column + (thread_column + {vector * columns_apart}u) * 4u, "
            f"sum_{row}_{vector});"
            for row, vector in names
        ]
        return {
            "DECLARE": "\n".join(f"    var sum_{r}_{v} = vec4<{element}>();" for r, v in names),
            "MULTIPLY": "\n".join(multiply),
            "STORE": "\n".join(store),
            "JOIN": self._join([f"sum_{row}_{vector}" for row, vector in names]),
            "SLICE_A": steps * stride_a,
            "SLICE_B": steps * stride_b,
        }

    def _join(self, names: list[str]) -> str:
        """The lines that add the slices' sums, some of them at a time, up in the first one."""
        lines = []
        for start in range(0, len(names) if self.slices > 1 else 0, self._together):
            some = names[start : start + self._together]
            lines.append("        if (slice == other) {")
            for i, name in enumerate(some):
                lines.append(f"            sums[thread + {i * self.threads}u] = {name};")
            lines.append("        }\n        workgroupBarrier();\n        if (slice == 0u) {")
            for i, name in enumerate(some):
                lines.append(f"            {name} += sums[thread + {i * self.threads}u];")
            lines.append("        }\n        workgroupBarrier();")
        return "\n".join(lines)
