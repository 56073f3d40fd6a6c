"""How attention of many queries is dispatched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..operation import Job
from .attending_plans import bindings, indented, parameters, vectors_fit

LETTERS = "xyzw"


@dataclass(frozen=True)
class Tiles:
    """Many queries: a workgroup of `across` x `down` lanes computes `rows` of them, `positions` a
    step.

    `width` is the widest head, `slice` how many of its vectors of four lie in workgroup memory at
    a time, `v_rows` how many rows of v.
    """

    width: int
    rows: int
    positions: int
    across: int
    down: int
    slice: int
    v_rows: int

    @property
    def lanes(self) -> int:
        return self.across * self.down

    @property
    def row_groups(self) -> int:
        """Groups of four rows of a lane."""
        return self.rows // (4 * self.down)

    @property
    def groups(self) -> int:
        """Groups of four positions of a lane; the weights of one at a time lie in memory."""
        return self.positions // (4 * self.across)

    @property
    def columns(self) -> int:
        """Vectors of a row of the result that a lane has."""
        return self.width // (4 * self.across)

    @property
    def slice_room(self) -> int:
        """Vectors of workgroup memory for one slice of q and k."""
        return self.slice * (self.rows + self.positions)

    @property
    def weights_room(self) -> int:
        return self.across * self.rows

    @property
    def v_room(self) -> int:
        return self.v_rows * self.width // 4

    @property
    def maxima(self) -> int:
        """Where the numbers of each row and x begin: beyond the slices before, the first after."""
        return max(2 * self.slice_room, self.weights_room + self.v_room)

    @property
    def room(self) -> int:
        """Vectors of the workgroup memory that all this takes turns in."""
        return max(self.maxima + self.rows * self.across // 4, self.weights_room + 2 * self.v_room)

    @property
    def memory(self) -> int:
        """Bytes of workgroup memory."""
        return 16 * self.room + 4

    def fits(self, job: Job) -> bool:
        return job.facts["dim"] <= self.width and vectors_fit(job, self.lanes, self.memory)

    def workgroups(self, job: Job) -> int:
        facts = job.facts
        return int(-(-facts["queries"] // self.rows) * facts["heads"] * facts["batch"])

    def plan(self, job: Job) -> None:
        facts = job.facts
        # Of each tile: slices of k, masking, and slices of v.
        scores = -(-facts["dim"] // (4 * self.slice)) * (1 + self.slice)
        masking = self.groups * 16 * self.row_groups
        sums = self.positions // self.v_rows * (1 + self.v_rows) + self.groups
        tiles = -(-facts["kv_rows"] // self.positions) + 1
        loops = tiles * (1 + scores + masking + sums)
        operands = bindings(job, job.outputs[0])
        groups = self.workgroups(job)
        job.step("attention_tiles", self.values(), operands, parameters(job), groups, loops)

    def values(self) -> dict[str, Any]:
        """The template values of attention_tiles.wgsl."""
        return {
            **self._loads(),
            **self._scores(),
            **self._body(),
            "ROWS": self.rows,
            "POSITIONS": self.positions,
            "ACROSS": self.across,
            "TWO_ACROSS": 2 * self.across,
            "DOWN": self.down,
            "ROWS_APART": 4 * self.down,
            "GROUP": 4 * self.across,
            "GROUPS": self.groups,
            "LANES": self.lanes,
            "SLICE": self.slice,
            "SLICE_ROOM": self.slice_room,
            "ROOM": self.room,
            "VECTORS": self.width // 4,
            "V_ROWS": self.v_rows,
            "V_ROOM": self.v_room,
        }

    def _rows(self) -> list[tuple[int, str, str]]:
        """Number, place within the workgroup's, and letter of each of a lane's rows."""
        return [
            (4 * g + c, f"(4u * y + {4 * self.down * g + c}u)", LETTERS[c])
            for g in range(self.row_groups)
            for c in range(4)
        ]

    def _loads(self) -> dict[str, str]:
        """The unrolled lines that bring slices by way of registers, `n_NUMBER`, into `room`."""
        lanes, width = self.lanes, self.width // 4
        at_once = lanes // self.slice  # rows that all lanes together load of a slice of q or k
        of_q, of_k = self.rows // at_once, self.positions // at_once
        of_v = self.v_rows * width // lanes

        def slices(base: str, start: str) -> list[str]:
            lines = [f"let there = min({start} + slice_d, vectors - 1u);"]
            for n in range(of_q):
                row = f"min(first + slice_row + {at_once * n}u, params.queries - 1u)"
                lines.append(f"n_{n} = q[q_base + {row} * width + there];")
            for n in range(of_k):
                row = f"min({base} + slice_row + {at_once * n}u, last)"
                lines.append(f"n_{of_q + n} = k[kv_base + {row} * kv_width + there];")
            return lines

        def values(start: str) -> list[str]:
            return [
                f"n_{n} = v[kv_base + min({start} + value_row + {lanes // width * n}u, last) * "
                "kv_width + value_d];"
                for n in range(of_v)
            ]

        # A slice's numbers lie by their place in the head, then by row.
        put = [f"let turn = slice_d * {8 // self.slice}u;"]
        for n in range(of_q + of_k):
            rows, row, begin = self.rows, at_once * n, 0
            if n >= of_q:
                rows, row, begin = self.positions, at_once * (n - of_q), self.slice * self.rows
            put.append(f"let at_{n} = half + {begin}u + slice_d * {rows}u")
            put[-1] += f" + (((slice_row + {row}u) / 4u) ^ turn);"
            put += [
                f"room[at_{n} + {rows // 4 * part}u][slice_row & 3u] = n_{n}.{letter};"
                for part, letter in enumerate(LETTERS)
            ]
        put_values = [
            f"room[{self.weights_room}u + half + lane + {lanes * n}u] = n_{n};" for n in range(of_v)
        ]
        bad = " && ".join(f"finite(n_{n})" for n in range(of_v))
        put_values.append(f"if (!({bad})) {{ atomicStore(&spoiled, 1u); }}")
        cut = [
            f"n_{n} = select(vec4<f32>(), n_{n}, start + slice_d < vectors);"
            for n in range(of_q + of_k)
        ]
        names = range(max(of_q + of_k, of_v))
        return {
            "DECLARE_NEXT": indented(4, [f"var n_{n} = vec4<f32>();" for n in names]),
            "FETCH_FIRST": indented(4, ["{", *slices("seen.x", "0u"), "}"]),
            "FETCH_SLICES": indented(16, slices("base", f"start + {self.slice}u")),
            "FETCH_NEXT": indented(20, slices(f"base + {self.positions}u", "0u")),
            "FETCH_VALUES": indented(16, values("base")),
            "FETCH_MORE_VALUES": indented(20, values(f"base + start + {self.v_rows}u")),
            "CUT_SLICES": indented(16, cut),
            "PUT_SLICES": indented(12, put),
            "PUT_VALUES": indented(16, put_values),
        }

    def _place(self, lane: str, apart: int, number: int) -> str:
        """The lane's vector `number` of a line in which vectors are shuffled by `turn`."""
        if apart % 8 == 0:
            return f"({lane} ^ turn) + {apart * number}u"
        return f"(({lane} + {apart * number}u) ^ turn)"

    def _scores(self) -> dict[str, str]:
        """The unrolled lines up to finished scores, `s_ROW_GROUP`."""
        names = [(i, j) for i, _, _ in self._rows() for j in range(self.groups)]
        multiply = [f"let turn = d * {8 // self.slice}u;"]
        for part in range(4):
            for name, lane, apart, count, rows, begin in (
                ("q", "y", self.down, self.row_groups, self.rows, 0),
                ("k", "x", self.across, self.groups, self.positions, self.slice * self.rows),
            ):
                multiply += [
                    f"let {name}_{part}_{n} = room[half + d * {rows}u + {begin + rows // 4 * part}u"
                    f" + {self._place(lane, apart, n)}];"
                    for n in range(count)
                ]
            multiply += [
                f"s_{i}_{j} = fma(vec4<f32>(q_{part}_{i // 4}.{LETTERS[i % 4]}), k_{part}_{j}, "
                f"s_{i}_{j});"
                for i, j in names
            ]
        finish, hide = [], []
        for j in range(self.groups):
            for i, _, letter in self._rows():
                finish += [
                    f"room[(4u * x + {c}u) * {self.rows // 4}u + y + {self.down * (i // 4)}u]"
                    f".{letter} = s_{i}_{j}.{other};"
                    for c, other in enumerate(LETTERS)
                ]
            finish += [
                f"for (var n = 0u; n < {16 * self.row_groups}u; n++) {{",
                f"    let row = 4u * y + n / 16u * {4 * self.down}u + n % 4u;",
                "    let column = 4u * x + n / 4u % 4u;",
                f"    let at = column * {self.rows // 4}u + row / 4u;",
                "    room[at][row & 3u] = finish_score(",
                "        room[at][row & 3u], batch, head, first + row,",
                f"        base + {4 * self.across * j}u + column, valid",
                "    );",
                "}",
            ]
            for i, _, letter in self._rows():
                values = ", ".join(
                    f"room[(4u * x + {c}u) * {self.rows // 4}u + y + {self.down * (i // 4)}u]"
                    f".{letter}"
                    for c in range(4)
                )
                finish.append(f"s_{i}_{j} = vec4<f32>({values});")
            hide.append(
                f"let at_{j} = vec4<i32>(i32(base + 4u * x + {4 * self.across * j}u)) + "
                "vec4<i32>(0, 1, 2, 3);"
            )
        for i, place, _ in self._rows():
            hide += [
                f"let end_{i} = i32(first + {place}) + shift + 1;",
                f"let to_{i} = select(i32(valid), min(end_{i}, i32(valid)), params.causal != 0u);",
                f"let from_{i} = select(0, end_{i} - i32(params.window), params.window != 0u);",
            ]
            hide += [
                f"s_{i}_{j} = select(hidden, s_{i}_{j}, (at_{j} >= vec4<i32>(from_{i})) & "
                f"(at_{j} < vec4<i32>(to_{i})));"
                for j in range(self.groups)
            ]
        return {
            "DECLARE_SCORES": indented(8, [f"var s_{i}_{j} = vec4<f32>();" for i, j in names]),
            "MULTIPLY_SCORES": indented(16, multiply),
            "SCALE_SCORES": indented(8, [f"s_{i}_{j} *= params.scale;" for i, j in names]),
            "FINISH_SCORES": indented(12, finish),
            "HIDE_SCORES": indented(12, hide),
        }

    def _body(self) -> dict[str, str]:
        """The unrolled lines from there on: the largest score of a row `largest_ROW`, its sum of
        weights `sum_ROW`, results `o_ROW_VECTOR`."""
        rows = self._rows()
        columns, groups = range(self.columns), range(self.groups)
        lines, of_row = self.rows // 4, self.across // 4

        def put(row: str, value: str) -> str:
            """One number of each row and x."""
            return f"room[{self.maxima}u + {row} * {of_row}u + x / 4u][x & 3u] = {value};"

        def parts(row: str) -> list[str]:
            return [f"room[{self.maxima}u + {row} * {of_row}u + {n}u]" for n in range(of_row)]

        maxima, weigh, sums, store = [], [], [], []
        for i, row, _ in rows:
            own = f"highest(s_{i}_0)"
            for j in groups[1:]:
                own = f"max({own}, highest(s_{i}_{j}))"
            maxima.append(put(row, own))
            tile = parts(row)[0]
            for other in parts(row)[1:]:
                tile = f"max({tile}, {other})"
            weigh += [
                f"let before_{i} = largest_{i};",
                f"largest_{i} = max(before_{i}, highest({tile}));",
                f"let f_{i} = weight_of(before_{i} - largest_{i});",
            ]
            weigh += [f"s_{i}_{j} = weights_of(s_{i}_{j}, largest_{i});" for j in groups]
            four = " + ".join(f"s_{i}_{j}" for j in groups)
            weigh.append(f"let four_{i} = {four};")
            weigh.append(
                f"sum_{i} = fma(sum_{i}, f_{i}, four_{i}.x + four_{i}.y + four_{i}.z + four_{i}.w);"
            )
            weigh += [f"o_{i}_{v} *= f_{i};" for v in columns]
            sums.append(put(row, f"sum_{i}"))
            store += [
                f"if (first + {row} < params.queries) {{",
                f"    let four = {' + '.join(parts(row))};",
                "    let sum = four.x + four.y + four.z + four.w;",
                f"    let at = q_base + (first + {row}) * width + x;",
            ]
            for v in columns:
                place = f"{self.across * v}u"
                value = f"select(o_{i}_{v} / sum, vec4<f32>(), sum == 0.0)"
                store.append(f"    if (x + {place} < vectors) {{ out[at + {place}] = {value}; }}")
            store.append("}")

        # The weights lie by position, then by row.
        put_weights = ["let turn = (x & 3u) * 2u;"]
        for j in groups:
            if self.groups > 1:
                if j > 0:
                    put_weights += [f"if (part == {j}u) {{", "    workgroupBarrier();"]
                else:
                    put_weights.append("if (part == 0u) {")
            for g in range(self.row_groups):
                for c, letter in enumerate(LETTERS):
                    four = ", ".join(f"s_{4 * g + n}_{j}.{letter}" for n in range(4))
                    put_weights.append(
                        f"room[(4u * x + {c}u) * {lines}u + {self._place('y', self.down, g)}] = "
                        f"vec4<f32>({four});"
                    )
            if self.groups > 1:
                put_weights.append("}")

        def weights(name: str, position: str) -> list[str]:
            return [
                f"let {name}_{g} = room[({position}) * {lines}u + "
                f"{self._place('y', self.down, g)}];"
                for g in range(self.row_groups)
            ]

        def values(name: str, position: str) -> list[str]:
            return [
                f"let {name}_{v} = room[{self.weights_room}u + half + ({position}) * "
                f"{self.width // 4}u + x + {self.across * v}u];"
                for v in columns
            ]

        within = f"(start % {4 * self.across}u + c)"
        multiply = [f"let at = {within};", "let turn = (at / 4u & 3u) * 2u;"]
        for p in range(4):
            multiply += weights(f"w_{p}", f"at + {p}u")
            multiply += values(f"v_{p}", f"c + {p}u")
            multiply += [
                f"o_{i}_{v} = fma(vec4<f32>(w_{p}_{i // 4}.{letter}), v_{p}_{v}, o_{i}_{v});"
                for i, _, letter in rows
                for v in columns
            ]
        careful = [f"let at = {within};", "let turn = (at / 4u & 3u) * 2u;"]
        careful += weights("w", "at") + values("v", "c")
        for i, _, letter in rows:
            weight = f"w_{i // 4}.{letter}"
            careful.append(f"if (!({weight} == 0.0)) {{")
            careful += [
                f"    o_{i}_{v} = fma(vec4<f32>({weight}), v_{v}, o_{i}_{v});" for v in columns
            ]
            careful.append("}")
        declare = [f"var largest_{i} = LOWEST;" for i, _, _ in rows]
        declare += [f"var sum_{i} = 0.0;" for i, _, _ in rows]
        declare += [f"var o_{i}_{v} = vec4<f32>();" for i, _, _ in rows for v in columns]
        return {
            "DECLARE": indented(4, declare),
            "PUT_MAXIMA": indented(8, maxima),
            "WEIGH": indented(8, weigh),
            "PUT_WEIGHTS": indented(12, put_weights),
            "MULTIPLY": indented(24, multiply),
            "MULTIPLY_CAREFULLY": indented(24, careful),
            "PUT_SUMS": indented(4, sums),
            "STORE": indented(4, store),
        }
