"""How attention of many queries is dispatched."""

from __future__ import annotations

from dataclasses import dataclass

from ..operation import Job
from .attending_plans import (
    bindings,
    indented,
    parameters,
    vectors_fit,
    weight_places,
    weighted_sums,
)


@dataclass(frozen=True)
class Tiles:
    """Many queries: a workgroup of 16 x `down` lanes computes `rows` of them, 64 positions a step.

    `width` is the widest head, `slice` how many of its vectors of four lie in workgroup memory at
    a time, `v_rows` how many rows of v.
    """

    width: int
    rows: int
    down: int
    slice: int
    v_rows: int

    @property
    def lanes(self) -> int:
        return 16 * self.down

    @property
    def each(self) -> int:
        """Rows of a lane."""
        return self.rows // self.down

    @property
    def room(self) -> int:
        """Vectors of the workgroup memory that slices take turns in."""
        scores = self.rows * self.slice + 64 * (self.slice + 1)
        return max(scores, self.rows * 4, self.v_rows * self.width // 4)

    @property
    def memory(self) -> int:
        """Bytes of workgroup memory."""
        return 16 * (self.room + self.rows * 16) + 8 * self.rows + 4

    def fits(self, job: Job) -> bool:
        return job.facts["dim"] <= self.width and vectors_fit(job, self.lanes, self.memory)

    def plan(self, job: Job) -> None:
        facts = job.facts
        values = {
            **self._loads(),
            **self._body(),
            "ROWS": self.rows,
            "DOWN": self.down,
            "EACH": self.each,
            "LANES": self.lanes,
            "SLICE": self.slice,
            "ROOM": self.room,
            "WEIGHTS": self.rows * 16,
            "VECTORS": self.width // 4,
            "V_ROWS": self.v_rows,
        }
        groups = -(-facts["queries"] // self.rows) * facts["heads"] * facts["batch"]
        # Of each tile: slices of k, masking, and slices of v.
        scores = -(-facts["dim"] // (4 * self.slice)) * (1 + self.slice)
        sums = 64 // self.v_rows * (1 + self.v_rows)
        tiles = -(-facts["kv_rows"] // 64) + 1
        loops = tiles * (1 + scores + 4 * self.each + sums)
        operands = bindings(job, job.outputs[0])
        job.step("attention_tiles", values, operands, parameters(job), groups, loops)

    def _loads(self) -> dict[str, str]:
        """The unrolled lines that bring slices by way of registers, `n_NUMBER`, into `room`."""
        lanes, width = self.lanes, self.width // 4
        of_q, of_k = self.rows * self.slice // lanes, 64 * self.slice // lanes
        of_v = self.v_rows * width // lanes
        rows = lanes // self.slice  # that all lanes together load of a slice of q or k

        def slices(base: str, start: str) -> list[str]:
            lines = [f"let d = {start} + slice_d;", "let there = min(d, vectors - 1u);"]
            for n in range(of_q):
                lines.append(
                    f"let q_{n} = min(first + slice_row + {rows * n}u, params.queries - 1u);"
                )
                lines.append(
                    f"n_{n} = select(vec4<f32>(), q[q_base + q_{n} * width + there], d < vectors);"
                )
            for n in range(of_k):
                row = f"min({base} + slice_row + {rows * n}u, last)"
                value = f"k[kv_base + {row} * kv_width + there]"
                lines.append(f"n_{of_q + n} = select(vec4<f32>(), {value}, d < vectors);")
            return lines

        def values(start: str) -> list[str]:
            return [
                f"n_{n} = v[kv_base + min({start} + value_row + {lanes // width * n}u, last) * "
                "kv_width + value_d];"
                for n in range(of_v)
            ]

        put = [f"room[lane + {lanes * n}u] = n_{n};" for n in range(of_q)]
        put += [
            f"room[{self.rows * self.slice}u + (slice_row + {rows * n}u) * {self.slice + 1}u + "
            f"slice_d] = n_{of_q + n};"
            for n in range(of_k)
        ]
        put_values = [f"room[lane + {lanes * n}u] = n_{n};" for n in range(of_v)]
        bad = " && ".join(f"finite(n_{n})" for n in range(of_v))
        put_values.append(f"if (!({bad})) {{ atomicStore(&spoiled, 1u); }}")
        names = range(max(of_q + of_k, of_v))
        return {
            "DECLARE_NEXT": indented(4, [f"var n_{n} = vec4<f32>();" for n in names]),
            "FETCH_FIRST": indented(4, ["{", *slices("seen.x", "0u"), "}"]),
            "FETCH_SLICES": indented(16, slices("base", f"start + {self.slice}u")),
            "FETCH_NEXT": indented(16, slices("base + 64u", "0u")),
            "FETCH_VALUES": indented(16, values("base")),
            "FETCH_MORE_VALUES": indented(16, values(f"base + start + {self.v_rows}u")),
            "PUT_SLICES": indented(12, put),
            "PUT_VALUES": indented(12, put_values),
        }

    def _body(self) -> dict[str, str]:
        """The unrolled lines: scores `s_ROW`, sums of weights `sum_ROW`, results `o_ROW_VECTOR`."""
        rows = range(self.each)
        columns = range(self.width // 64)
        row = [f"(y + {self.down * i}u)" for i in rows]

        def put(what: str) -> list[str]:
            """One number of each row and x."""
            return [f"room[{row[i]} * 4u + x / 4u][x & 3u] = {what.format(i=i)};" for i in rows]

        keys = self.rows * self.slice
        multiply_scores = [
            f"let k_{j} = room[{keys}u + (x + {16 * j}u) * {self.slice + 1}u + d];"
            for j in range(4)
        ]
        multiply_scores += [
            f"let t_{c} = vec4<f32>(k_0.{c}, k_1.{c}, k_2.{c}, k_3.{c});" for c in "xyzw"
        ]
        for i in rows:
            multiply_scores.append(f"let q_{i} = room[{row[i]} * {self.slice}u + d];")
            multiply_scores += [f"s_{i} = fma(vec4<f32>(q_{i}.{c}), t_{c}, s_{i});" for c in "xyzw"]
        weigh = []
        for i in rows:
            weigh.append(f"let f_{i} = row_scale[{row[i]}];")
            weigh.append(f"s_{i} = weights_of(s_{i}, row_max[{row[i]}]);")
            weigh.append(f"sum_{i} = fma(sum_{i}, f_{i}, s_{i}.x + s_{i}.y + s_{i}.z + s_{i}.w);")
            weigh += [f"o_{i}_{v} *= f_{i};" for v in columns]
            weigh += [
                f"{place} = s_{i}.{c};"
                for place, c in zip(weight_places(row[i]), "xyzw", strict=True)
            ]
        multiply, careful = weighted_sums(row, self.width)
        store = []
        for i in rows:
            store.append(f"if (first + {row[i]} < params.queries) {{")
            four = " + ".join(f"room[{row[i]} * 4u + {j}u]" for j in range(4))
            store.append(f"    let four = {four};")
            store.append("    let sum = four.x + four.y + four.z + four.w;")
            store.append(f"    let at = q_base + (first + {row[i]}) * width + x;")
            for v in columns:
                value = f"select(o_{i}_{v} / sum, vec4<f32>(), sum == 0.0)"
                store.append(
                    f"    if (x + {16 * v}u < vectors) {{ out[at + {16 * v}u] = {value}; }}"
                )
            store.append("}")
        declare = [f"var sum_{i} = 0.0;" for i in rows]
        declare += [f"var o_{i}_{v} = vec4<f32>();" for i in rows for v in columns]
        get = [f"s_{i} = vec4<f32>({', '.join(weight_places(row[i]))});" for i in rows]
        put_scores = [
            f"{place} = s_{i}.{c};"
            for i in rows
            for place, c in zip(weight_places(row[i]), "xyzw", strict=True)
        ]
        return {
            "DECLARE": indented(4, declare),
            "DECLARE_SCORES": indented(8, [f"var s_{i} = vec4<f32>();" for i in rows]),
            "MULTIPLY_SCORES": indented(16, multiply_scores),
            "SCALE_SCORES": indented(8, [f"s_{i} *= params.scale;" for i in rows]),
            "PUT_SCORES": indented(12, put_scores),
            "GET_SCORES": indented(12, get),
            "PUT_MAXIMA": indented(8, put("highest(s_{i})")),
            "WEIGH": indented(8, weigh),
            "MULTIPLY": indented(20, multiply),
            "MULTIPLY_CAREFULLY": indented(20, careful),
            "PUT_SUMS": indented(4, put("sum_{i}")),
            "STORE": indented(4, store),
        }
