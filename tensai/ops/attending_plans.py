"""How attention is dispatched: what all ways share, and the one for any head.

A plan takes q, k, v, the length and, where there is one, the mask from the job's inputs. Sizes and
what is masked travel as parameters, so that there are few sources.
"""

from __future__ import annotations

from .. import rules
from ..dtypes import bool_, i32
from ..operation import Job, Operand, pack

WIDEST = 256  # elements of a head
# Of `simple`: for heads up to each size, the queries and positions that a workgroup holds at a
# time. All of it fits 16 KiB, the least that any device has, but for the widest heads.
BLOCKS = {32: (16, 32), 64: (16, 32), 128: (8, 16), WIDEST: (4, 8)}


def bindings(job: Job, out: Operand) -> list[Operand]:
    """The bindings of attention_scores.wgsl and those round it; no mask is the length again."""
    q, k, v, length = job.inputs[:4]
    mask = job.inputs[4] if len(job.inputs) > 4 else length
    return [q, k, v, length, mask, out]


def parameters(job: Job, splits: int = 1, least: int = 1, length: int = 3) -> bytes:
    """The parameters of attention_params.wgsl; the input `length` is it, and the mask follows."""
    facts, arguments = job.facts, job.arguments
    kind, strides = 0, (0, 0, 0, 0)
    if len(job.inputs) > length + 1:
        mask = job.inputs[length + 1]
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
        int(job.inputs[length].dtype == i32),
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
    job.step("attention", values, bindings(job, job.outputs[0]), parameters(job), groups, loops)


def vectors_fit(job: Job, lanes: int, memory: int) -> bool:
    limits = job.device.limits
    return (
        job.facts["dim"] % 4 == 0
        and limits["maxComputeInvocationsPerWorkgroup"] >= lanes
        and limits["maxComputeWorkgroupStorageSize"] >= memory
    )


def indented(indent: int, lines: list[str]) -> str:
    """Generated lines as one template value."""
    return "\n".join(" " * indent + line for line in lines)
