"""Tiles of a product: what a workgroup computes of it, and the unrolled WGSL that does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ACROSS, LANES = 8, 32  # threads of a block of 32 that lie side by side along n, and all of them


@dataclass(frozen=True)
class Tile:
    """A workgroup's tile of a product, its step along k, and a thread's rows and columns."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    lanes_as: str = "line"
    double: bool = False
    band: int = 0
    order: str = "rows"
    slices: int = 1

    @property
    def lanes(self) -> int:
        return self.slices * self.threads

    @property
    def threads(self) -> int:
        return (self.bm // self.tm) * (self.bn // self.tn)

    @property
    def memory(self) -> int:
        """Bytes of workgroup memory, both tiles padded."""
        tiles = (2 if self.double else 1) * 16 * self.bk * (self.bm // 4 + self.bn // 4 + 2)
        return tiles + (0 if self.slices == 1 else 4 * self.bm * self.bn)

    def values(self) -> dict[str, Any]:
        """The template values of matmul.wgsl that follow from the tile alone."""
        stride_a, stride_b = self.bm // 4 + 1, self.bn // 4
        sets = 2 if self.double else 1
        return {
            "BM": self.bm,
            "BN": self.bn,
            "BK": self.bk,
            "TM": self.tm,
            "TN": self.tn,
            "BM_4": self.bm // 4,
            "BN_4": self.bn // 4,
            "A_STRIDE": stride_a,
            "A_VECTORS": sets * stride_a * self.bk,
            "A_LOADS": self.bm * self.bk // 4,
            "B_VECTORS": sets * (stride_b + 1) * self.bk,
            "LANES": self.lanes,
            "THREADS_N": self.bn // self.tn,
            "DOUBLE": self.double,
            "BAND": self.band,
            "BANDED": self.band > 0,
            "THREADS": self.places(),
            "SLICED": self.slices > 1,
            "SLICES": self.slices,
            "SUMS": self.threads * self.tm * self.tn // 4,
            "THREAD_COUNT": self.threads,
        }

    def places(self) -> str:
        """The lines that place a thread in the workgroup's tile."""
        across = self.bn // self.tn
        if self.slices > 1:
            return (
                f"    let slice = lane / {self.threads}u;\n    let within = lane % 32u;\n"
                f"    let warp = lane % {self.threads}u / 32u;\n"
                f"    let thread_row = warp / {across // 8}u * 4u + within / 8u;\n"
                f"    let thread_column = warp % {across // 8}u * 8u + within % 8u;"
            )
        if self.lanes_as == "line":
            return (
                f"    let thread_row = lane / {across}u;\n"
                f"    let thread_column = lane % {across}u;"
            )
        row, column = "within / 8u", "within % 8u"
        if self.lanes_as == "zigzag":
            row, column = "within / 16u * 2u + (within & 1u)", "within % 16u / 2u"
        return (
            "    let within = lane % 32u;\n"
            f"    let thread_row = lane / 32u / {across // 8}u * 4u + {row};\n"
            f"    let thread_column = lane / 32u % {across // 8}u * 8u + {column};"
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
            key: [] for key in ("PLACES", "DECLARE_NEXT", "LOAD_FULL", "LOAD_EDGE", "KEEP", "KEEP_OTHER")
        }
        stride_b = self.bn // 4 + (1 if transpose_b else 0)
        for name, along_k, across, stride, base, first, edge, vector in (
            ("a", not transpose_a, self.bm, self.bm // 4 + 1, "offsets.x", "first_row", "m",
             vector_a),
            ("b", transpose_b, self.bn, stride_b, "offsets.y", "first_column", "n", vector_b),
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
                    f"    let from_{name} = {base} + line_{name} * params.{edge} + {inner};"
                )
            for number in range(across * self.bk // 4 // self.lanes):
                own = f"next_{name}_{number}"
                line = f"line_{name} + {number * self.lanes // width}u"
                made["DECLARE_NEXT"].append(f"    var {own} = vec4<{element}>();")
                if along_k:
                    places.append(
                        f"    let from_{name}_{number} = {base} + "
                        f"min({first} + {line}, params.{edge} - 1u) * params.k + place_{name};"
                    )
                    at = f"from_{name}_{number} + following"
                    left = f"left(following + place_{name}, params.k)"
                else:
                    jump = number * self.lanes // width
                    at = f"from_{name} + (following + {jump}u) * params.{edge}"
                    left = (
                        f"select(0u, left(column_{name}, params.{edge}), "
                        f"following + {line} < params.k)"
                    )
                full = f"load_{name}({at})"
                if vector:
                    full = f"{name}[({at}) / 4u]"
                elif not along_k:
                    full = f"load_some_{name}({at}, left(column_{name}, params.{edge}))"
                made["LOAD_FULL"].append(f"            {own} = {full};")
                made["LOAD_EDGE"].append(f"            {own} = load_some_{name}({at}, {left});")
                for key, put in (("KEEP", 0), ("KEEP_OTHER", stride * self.bk)):
                    if not along_k:
                        made[key].append(
                            f"        tile_{name}[{put}u + ({line}) * {stride}u + place_{name} / 4u]"
                            f" = {own};"
                        )
                        continue
                    for part, letter in enumerate("xyzw"):
                        made[key].append(
                            f"        tile_{name}[{put}u + (place_{name} + {part}u) * {stride}u + "
                            f"({line}) / 4u][({line}) & 3u] = {own}.{letter};"
                        )
        return {key: "\n".join(lines) for key, lines in made.items()}

    def body(self, transpose_b: bool, element: str) -> dict[str, str]:
        """The unrolled lines over named accumulators, `sum_ROW_VECTOR`."""
        stride_a, stride_b = self.bm // 4 + 1, self.bn // 4 + (1 if transpose_b else 0)
        row_vectors, column_vectors = self.tm // 4, self.tn // 4
        # A thread's vectors lie a whole tile's part apart, so that lanes read neighbours.
        rows_apart = self.bm // 4 // row_vectors
        columns_apart = self.bn // 4 // column_vectors
        names = [(row, vector) for row in range(self.tm) for vector in range(column_vectors)]
        if self.order == "columns":
            names = [(row, vector) for vector in range(column_vectors) for row in range(self.tm)]
        if self.order == "snake":
            names = [
                (row, vector if row % 2 == 0 else column_vectors - 1 - vector)
                for row in range(self.tm)
                for vector in range(column_vectors)
            ]
        declare = [f"    var sum_{row}_{vector} = vec4<{element}>();" for row, vector in names]
        steps = self.bk // self.slices

        def multiply(first: int, last: int, tiles: int) -> str:
            lines = []
            for step in range(first, last):
                lines.append("            {")
                lines += [
                    f"            let a_{i} = tile_a[get_a + "
                    f"{(tiles * self.bk + step) * stride_a + i * rows_apart}u];"
                    for i in range(row_vectors)
                ]
                lines += [
                    f"            let b_{i} = tile_b[get_b + "
                    f"{(tiles * self.bk + step) * stride_b + i * columns_apart}u];"
                    for i in range(column_vectors)
                ]
                for row, vector in names:
                    left = f"vec4<{element}>(a_{row // 4}.{'xyzw'[row % 4]})"
                    total = f"sum_{row}_{vector}"
                    product = (
                        f"fma({left}, b_{vector}, {total})"
                        if element == "f32"
                        else f"{total} + {left} * b_{vector}"
                    )
                    lines.append(f"            {total} = {product};")
                lines.append("            }")
            return "\n".join(lines)

        names.sort()
        store = ["    let base_out = batch * params.m * params.n;"]
        store += [
            f"    store(base_out, first_row + (thread_row + {row // 4 * rows_apart}u) * 4u + "
            f"{row % 4}u, first_column + (thread_column + {vector * columns_apart}u) * 4u, "
            f"sum_{row}_{vector});"
            for row, vector in names
        ]
        return {
            "DECLARE": "\n".join(declare),
            "MULTIPLY": multiply(0, steps, 0),
            "FIRST_HALF": multiply(0, steps // 2, 0),
            "SECOND_HALF": multiply(steps // 2, steps, 0),
            "FIRST_HALF_OTHER": multiply(0, steps // 2, 1),
            "SECOND_HALF_OTHER": multiply(steps // 2, steps, 1),
            "SLICE_A": steps * stride_a,
            "SLICE_B": steps * stride_b,
            "PUT_SUMS": "\n".join(
                f"        sums[at + {i * self.threads}u] = sum_{row}_{vector};"
                for i, (row, vector) in enumerate(names)
            ),
            "ADD_SUMS": "\n".join(
                f"        sum_{row}_{vector} += sums[from_sums + {i * self.threads}u];"
                for i, (row, vector) in enumerate(names)
            ),
            "STORE": "\n".join(store),
            "HALF_A": stride_a * self.bk,
            "HALF_B": stride_b * self.bk,
        }
