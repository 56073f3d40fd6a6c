"""How attention of few queries is dispatched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..dtypes import f32
from ..operation import Job
from .attending_plans import bindings, indented, parameters, vectors_fit


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
        return vectors_fit(job, self.LANES, self.memory) and (
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
        params = parameters(job, splits, self.least)
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
        job.step("attention_split", values, bindings(job, target), params, groups, loops)
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
            "DECLARE": indented(8, declare),
            "MULTIPLY_SCORES": indented(12, scores),
            "PUT_PARTS": indented(8, put),
            "DECLARE_TOTALS": indented(4, [f"var o_{r} = vec4<f32>();" for r in rows]),
            "MULTIPLY": indented(12, multiply),
            "ROUNDS": self.rows // self.half,
            "HALF": self.half,
            "PUT_TOTALS": indented(8, totals),
        }
