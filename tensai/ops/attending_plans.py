"""How attention is dispatched: one way for any head, one for many queries, one for few.

A plan takes q, k, v, the length and, where there is one, the mask from the job's inputs. Sizes and
what is masked travel as parameters, so that there are few sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import rules
from ..dtypes import bool_, f32, i32
from ..operation import Job, Operand, pack

WIDEST = 256  # elements of a head
# Of `simple`: for heads up to each size, the queries and positions that a workgroup holds at a
# time. All of it fits 16 KiB, the least that any device has, but for the widest heads.
BLOCKS = {32: (16, 32), 64: (16, 32), 128: (8, 16), WIDEST: (4, 8)}


def _operands(job: Job, out: Operand) -> list[Operand]:
    """The bindings of attention_scores.wgsl and those round it; no mask is the length again."""
    q, k, v, length = job.inputs[:4]
    mask = job.inputs[4] if len(job.inputs) > 4 else length
    return [q, k, v, length, mask, out]


def _params(job: Job, splits: int = 1, least: int = 1) -> bytes:
    """The parameters of attention_params.wgsl."""
    facts, arguments = job.facts, job.arguments
    kind, strides = 0, (0, 0, 0, 0)
    if len(job.inputs) > 4:
        mask = job.inputs[4]
        kind = 1 if mask.dtype == bool_ else 2
        target = (facts["batch"], facts["heads"], facts["queries"], facts["kv_rows"])
        strides = rules.broadcast_strides(mask.shape, target)  # type: ignore[assignment]
    return pack(
        facts["queries"],
        facts["kv_rows"],
        facts["heads"],
        facts["kv_heads"],
        facts["dim"],
        facts["batch"],
        int(bool(arguments["causal"])),
        facts["window"],
        float(facts["scale"]),
        float(arguments["softcap"] or 0),
        int(job.inputs[3].dtype == i32),
        kind,
        *strides,
        splits,
        least,
    )


def simple(job: Job) -> None:
    """Any head: 64 lanes, everything in workgroup memory."""
    facts = job.facts
    largest = next(size for size in BLOCKS if facts["dim"] <= size)
    queries, positions = BLOCKS[largest]
    values = {
        "BQ": queries,
        "BK": positions,
        "BQ_VECTORS": queries * largest // 4,
        "BK_VECTORS": positions * largest // 4,
        "BQ_BK": queries * positions,
    }
    groups = -(-facts["queries"] // queries) * facts["heads"] * facts["batch"]
    # Of each tile: two loads, the scores, the weights twice, and the sums over v.
    vectors = -(-facts["dim"] // 4)
    loads = 2 * (-(-positions * vectors // 64) + 1)
    scores = (-(-queries * positions // 64) + 1) * (vectors + 1)
    sums = (-(-queries * vectors // 64) + 1) * (positions + 1)
    tiles = -(-facts["kv_rows"] // positions) + 1
    loops = tiles * (1 + loads + scores + 2 * positions + sums)
    job.step("attention", values, _operands(job, job.outputs[0]), _params(job), groups, loops)


def _vectors_fit(job: Job, lanes: int, memory: int) -> bool:
    limits = job.device.limits
    return (
        job.facts["dim"] % 4 == 0
        and limits["maxComputeInvocationsPerWorkgroup"] >= lanes
        and limits["maxComputeWorkgroupStorageSize"] >= memory
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
        return job.facts["dim"] <= self.width and _vectors_fit(job, self.lanes, self.memory)

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
        operands = _operands(job, job.outputs[0])
        job.step("attention_tiles", values, operands, _params(job), groups, loops)

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
            "DECLARE_NEXT": _lines(4, [f"var n_{n} = vec4<f32>();" for n in names]),
            "FETCH_FIRST": _lines(4, ["{", *slices("seen.x", "0u"), "}"]),
            "FETCH_SLICES": _lines(16, slices("base", f"start + {self.slice}u")),
            "FETCH_NEXT": _lines(16, slices("base + 64u", "0u")),
            "FETCH_VALUES": _lines(16, values("base")),
            "FETCH_MORE_VALUES": _lines(16, values(f"base + start + {self.v_rows}u")),
            "PUT_SLICES": _lines(12, put),
            "PUT_VALUES": _lines(12, put_values),
        }

    def _body(self) -> dict[str, str]:
        """The unrolled lines: scores `s_ROW`, sums of weights `sum_ROW`, results `o_ROW_VECTOR`."""
        rows = range(self.each)
        columns = range(self.width // 64)
        row = [f"(y + {self.down * i}u)" for i in rows]

        def put(what: str) -> list[str]:
            """One number of each row and x."""
            return [f"room[{row[i]} * 4u + x / 4u][x & 3u] = {what.format(i=i)};" for i in rows]

        def places(i: int) -> list[str]:
            return [f"weights[{row[i]} * 16u + x / 4u + {4 * j}u][x & 3u]" for j in range(4)]

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
            weigh += [f"{place} = s_{i}.{c};" for place, c in zip(places(i), "xyzw", strict=True)]
        multiply = [
            f"let v_{p}_{v} = room[(c + {p}u) * {self.width // 4}u + x + {16 * v}u];"
            for p in range(4)
            for v in columns
        ]
        careful = [f"let v_{v} = room[c * {self.width // 4}u + x + {16 * v}u];" for v in columns]
        careful.append("let at = start + c;")
        store = []
        for i in rows:
            multiply.append(f"let w_{i} = weights[{row[i]} * 16u + (start + c) / 4u];")
            multiply += [
                f"o_{i}_{v} = fma(vec4<f32>(w_{i}.{'xyzw'[p]}), v_{p}_{v}, o_{i}_{v});"
                for p in range(4)
                for v in columns
            ]
            careful.append(f"let w_{i} = weights[{row[i]} * 16u + at / 4u][at & 3u];")
            careful.append(f"if (!(w_{i} == 0.0)) {{")
            careful += [
                f"    o_{i}_{v} = fma(vec4<f32>(w_{i}), v_{v}, o_{i}_{v});" for v in columns
            ]
            careful.append("}")
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
        get = [f"s_{i} = vec4<f32>({', '.join(places(i))});" for i in rows]
        put_scores = [
            f"{place} = s_{i}.{c};"
            for i in rows
            for place, c in zip(places(i), "xyzw", strict=True)
        ]
        return {
            "DECLARE": _lines(4, declare),
            "DECLARE_SCORES": _lines(8, [f"var s_{i} = vec4<f32>();" for i in rows]),
            "MULTIPLY_SCORES": _lines(16, multiply_scores),
            "SCALE_SCORES": _lines(8, [f"s_{i} *= params.scale;" for i in rows]),
            "PUT_SCORES": _lines(12, put_scores),
            "GET_SCORES": _lines(12, get),
            "PUT_MAXIMA": _lines(8, put("highest(s_{i})")),
            "WEIGH": _lines(8, weigh),
            "MULTIPLY": _lines(20, multiply),
            "MULTIPLY_CAREFULLY": _lines(20, careful),
            "PUT_SUMS": _lines(4, put("sum_{i}")),
            "STORE": _lines(4, store),
        }


@dataclass(frozen=True)
class Split:
    """Few queries: 128 lanes compute `rows` rows, queries of heads that share k and v, over a part
    of the positions; a second step puts the parts together where there are several.

    There are as many parts as make `workgroups` of these, of at least `least` positions each.
    """

    rows: int
    workgroups: int = 512
    least: int = 64

    LANES = 128
    CHUNK = 256  # positions of a part at most

    @property
    def half(self) -> int:
        """Rows that are added up at a time."""
        return max(self.rows // 2, 1)

    @property
    def room(self) -> int:
        return max(self.rows * 64, self.half * self.LANES)

    @property
    def memory(self) -> int:
        """Bytes of workgroup memory."""
        vectors = self.rows * 64 + self.room + self.LANES // 2
        return 16 * vectors + 4 * self.rows * (self.CHUNK + 2)

    def fits(self, job: Job) -> bool:
        return _vectors_fit(job, self.LANES, self.memory) and (
            4 * self._room_for_parts(job) <= job.device.limits["maxStorageBufferBindingSize"]
        )

    def blocks(self, job: Job) -> int:
        """Blocks of rows for each batch and head of k and v."""
        facts = job.facts
        rows = facts["queries"] * facts["heads"] // facts["kv_heads"]
        return -(-rows // self.rows)

    def parts(self, job: Job) -> int:
        facts = job.facts
        positions = facts["kv_rows"]
        if facts["window"]:
            positions = min(positions, facts["window"] + facts["queries"])
        wanted = -(-self.workgroups // (self.blocks(job) * facts["kv_heads"] * facts["batch"]))
        return max(-(-positions // self.CHUNK), min(wanted, -(-positions // self.least)), 1)

    def _room_for_parts(self, job: Job) -> int:
        facts = job.facts
        rows: int = facts["batch"] * facts["queries"] * facts["heads"]
        return self.parts(job) * rows * (facts["dim"] + 4)

    def plan(self, job: Job) -> None:
        facts = job.facts
        splits = self.parts(job)
        values = {
            **self._body(),
            "ROWS": self.rows,
            "LANES": self.LANES,
            "LANES_4": self.LANES // 4,
            "QUERY": self.rows * 64,
            "ROOM": self.room,
            "CHUNK": self.CHUNK,
            "WEIGHTS": self.rows * self.CHUNK,
            "EACH": 256 // self.LANES,
            "SHARE": self.LANES // self.rows,
            "SHARE_4": self.LANES // self.rows // 4,
        }
        params = _params(job, splits, self.least)
        groups = self.blocks(job) * splits * facts["kv_heads"] * facts["batch"]
        vectors = facts["dim"] // 4
        together = self.LANES // vectors
        passes = self.CHUNK // 64
        loops = self.rows * 64 // self.LANES + 1
        loops += passes * (2 + vectors // 16 + 1 + self.rows * 64 // self.LANES + 1)
        loops += 2 * (self.CHUNK * self.rows // self.LANES + self.LANES // self.rows // 4 + 2)
        loops += self.CHUNK // (together * 8) + 1
        loops += 2 * (self.half * vectors // self.LANES + 1) * (together + 2)
        out = job.outputs[0]
        target = out if splits == 1 else job.temporary(self._room_for_parts(job), f32)
        job.step("attention_split", values, _operands(job, target), params, groups, loops)
        if splits > 1:
            rows = facts["batch"] * facts["queries"] * facts["heads"]
            loops = splits // 128 + splits // together + together + 35
            job.step("attention_combine", {}, [job.inputs[3], target, out], params, rows, loops)

    def _body(self) -> dict[str, Any]:
        """The unrolled lines: scores `s_ROW_POSITION` and totals `o_ROW`."""
        rows = range(self.rows)
        each = range(256 // self.LANES)
        slots = self.LANES // 4
        declare = []
        for p in each:
            declare.append(f"let place_{p} = min(base + slot + {slots * p}u, count - 1u);")
            declare.append(f"let k_at_{p} = kv_base + place_{p} * kv_width;")
            declare += [f"var s_{r}_{p} = 0.0;" for r in rows]
        scores = [f"let d_{j} = start + share + {4 * j}u;" for j in range(4)]
        for j in range(4):
            for p in each:
                scores.append(
                    f"let k_{p}_{j} = select(vec4<f32>(), k[k_at_{p} + min(d_{j}, vectors - 1u)], "
                    f"d_{j} < vectors);"
                )
        for j in range(4):
            for r in rows:
                scores.append(f"let q_{r}_{j} = query[{64 * r}u + d_{j}];")
                for p in each:
                    left, right, total = f"q_{r}_{j}", f"k_{p}_{j}", f"s_{r}_{p}"
                    scores += [f"{total} = fma({left}.{c}, {right}.{c}, {total});" for c in "xyzw"]
        put = [
            f"parts[{64 * r + slots * p}u + slot][share] = s_{r}_{p};" for r in rows for p in each
        ]
        multiply = [f"let c_{j} = min(c + together * {j}u, count - 1u);" for j in range(8)]
        multiply += [f"let v_{j} = v[kv_base + c_{j} * kv_width + column];" for j in range(8)]
        for j in range(8):
            multiply.append(f"let used_{j} = c + together * {j}u < count;")
            for r in rows:
                weight, total = f"w_{r}_{j}", f"o_{r}"
                place = f"weights[{self.CHUNK * r}u + c_{j}]"
                multiply.append(f"let {weight} = select(0.0, {place}, used_{j});")
                # What is hidden stays out even where v holds NaN.
                multiply.append(
                    f"{total} = select(fma(vec4<f32>({weight}), v_{j}, {total}), {total}, "
                    f"{weight} == 0.0);"
                )
        totals = [
            f"if (round == {r // self.half}u) {{ parts[{self.LANES * (r % self.half)}u + lane] = "
            f"o_{r}; }}"
            for r in rows
        ]
        return {
            "DECLARE": _lines(8, declare),
            "MULTIPLY_SCORES": _lines(12, scores),
            "PUT_PARTS": _lines(8, put),
            "DECLARE_TOTALS": _lines(4, [f"var o_{r} = vec4<f32>();" for r in rows]),
            "MULTIPLY": _lines(12, multiply),
            "ROUNDS": self.rows // self.half,
            "HALF": self.half,
            "PUT_TOTALS": _lines(8, totals),
        }


def _lines(indent: int, lines: list[str]) -> str:
    return "\n".join(" " * indent + line for line in lines)
