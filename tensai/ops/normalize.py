"""Softmax and normalizations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import reference, rules
from ..dtypes import f32, narrowed_to
from ..errors import ShapeError
from ..operation import Job, Kernel, Operand, Probe, Result, Spec, operation, pack
from . import teams
from .normalize_grad import (
    layer_norm_grad,
    log_softmax_grad,
    rms_norm_grad,
    row_loops,
    softmax_grad,
)
from .reduction_probes import SPOILED


def _softmax(job: Job, log: bool) -> None:
    x, out = job.inputs[0], job.outputs[0]
    axis = job.facts["axis"]
    length, inner = x.shape[axis], math.prod(x.shape[axis + 1 :])
    rows = x.size // length
    job.step("softmax", {"LOG": log}, [x, out], pack(rows, length, inner), rows, row_loops(length))


def _softmax_rows(job: Job, log: bool, subgroup: bool) -> None:
    team = _team(job)
    values = {
        "LOG": log,
        "LARGEST": teams.pairwise(team, "unit_{i}", "max({a}, {b})"),
        "SHIFT": teams.lines(
            team, "unit_{i} -= shift;" if log else "unit_{i} = unit_exp(unit_{i} - shift);"
        ),
        "SUM": teams.pairwise(team, "unit_exp(unit_{i})" if log else "unit_{i}", "({a} + {b})"),
        "STORE": teams.stored(team, "unit_{i} - offset" if log else "unit_{i} * scale"),
    }
    _held_step(job, "softmax_rows", team, subgroup, values)


def _team(job: Job) -> teams.Team:
    """The team that holds a row of the job's."""
    team = teams.holding(job.inputs[0].shape[job.facts.get("axis", -1)])
    assert team is not None
    return team


def _held_step(
    job: Job,
    kernel: str,
    team: teams.Team,
    subgroup: bool,
    values: dict[str, Any],
    *params: float,
) -> None:
    """The step of a kernel whose teams hold rows; its params are rows, units and `params`."""
    x = job.inputs[0]
    length = x.shape[job.facts.get("axis", -1)]
    rows, (units, vector) = x.size // length, teams.row_units(length)
    values = {**teams.team_values(team, vector, subgroup), **teams.held(team), **values}
    groups = -(-rows // values["ROWS"])
    packed = pack(rows, units, *params)
    operands = [*job.inputs, job.outputs[0]]
    job.step(kernel, values, operands, packed, groups, teams.holding_loops(team))


def _row_kernels(
    name: str, rows: Callable[[Job, bool], None], loop: Callable[[Job], None]
) -> list[Kernel]:
    """Kernels for rows that a team holds, and the one for every other layout."""

    def fits(job: Job) -> bool:
        shape = job.inputs[0].shape
        axis = job.facts.get("axis", len(shape) - 1)
        return math.prod(shape[axis + 1 :]) == 1 and teams.fits_holding(job, shape[axis])

    return [
        Kernel(
            f"{name}_rows_subgroup",
            lambda job: rows(job, True),
            needs=frozenset({"subgroup"}),
            fits=fits,
        ),
        Kernel(f"{name}_rows", lambda job: rows(job, False), fits=fits),
        Kernel(name, loop),
    ]


def _softmax_kernels(name: str, log: bool) -> list[Kernel]:
    return _row_kernels(
        name,
        lambda job, subgroup: _softmax_rows(job, log, subgroup),
        lambda job: _softmax(job, log),
    )


def _softmax_rule(name: str, x: Spec, axis: int) -> Result:
    rules.floats_only(name, x.dtype)
    axis = rules.axis_index(name, axis, len(x.shape))
    finish = narrowed_to(x.dtype)
    return Result((Spec(x.shape, f32),), (f32,), finish, {"axis": axis})


def _softmax_probes() -> list[Probe]:
    rng = np.random.default_rng(7)
    x = rng.normal(0, 4, (5, 1037)).astype(np.float32)
    x[1, 3:] = -np.inf
    x[2] = -np.inf
    x[3, 700] = np.nan
    x[4] += 1e4
    # One element of a row is so large that without it all others would be infinite.
    peaks = rng.normal(0, 4, (300, 257)).astype(np.float32)
    peaks[np.arange(300), rng.permutation(300) % 257] += 300
    peaks[40, 7] = SPOILED
    made = [
        Probe((peaks[:50].T.copy(),), {"axis": 0}, 1e-6),
        Probe((x,), {}, 1e-6),
        Probe((x[0, :256],), {}, 1e-6),
        Probe((peaks[:, :256],), {}, 1e-6),
        Probe((peaks[:9],), {}, 1e-6),
        Probe((x[0, :1020].reshape(4, 85, 3),), {"axis": 1}, 1e-6),
    ]
    for length in teams.probed_lengths():
        rows = rng.normal(0, 4, (35 if length < 999 else 7, length)).astype(np.float32)
        high = np.arange(len(rows) - 3)
        rows[high, rng.integers(0, length, len(high))] += 300
        rows[-1, length // 2 :] = -np.inf
        rows[-2] = -np.inf
        rows[-3, -1] = np.nan
        made.append(Probe((rows,), {}, 1e-6))
    return made


@operation(
    kernels=_softmax_kernels("softmax", log=False),
    reference=reference.softmax,
    probes=_softmax_probes,
    gradients={"x": lambda grad, out, axis: softmax_grad(out, grad, axis)},
)
def softmax(x: Spec, axis: int = -1) -> Result:
    """exp(x) / sum(exp(x)) along an axis, computed from x - max(x).

    A row of nothing but -inf gives zeros; NaN spreads over its row.
    """
    return _softmax_rule("softmax", x, axis)


@operation(
    kernels=_softmax_kernels("log_softmax", log=True),
    reference=reference.log_softmax,
    probes=_softmax_probes,
    gradients={"x": lambda grad, out, axis: log_softmax_grad(out, grad, axis)},
)
def log_softmax(x: Spec, axis: int = -1) -> Result:
    """log(softmax(x)) along an axis, without leaving the range of floats."""
    return _softmax_rule("log_softmax", x, axis)


def _layer_norm(job: Job) -> None:
    x, out = job.inputs[0], job.outputs[0]
    length = x.shape[-1]
    rows = x.size // length
    params = pack(rows, length, float(job.arguments["eps"]))
    affine = len(job.inputs) > 1
    operands = [*job.inputs, out]
    job.step("layer_norm", {"AFFINE": affine}, operands, params, rows, row_loops(length))


def _layer_norm_rows(job: Job, subgroup: bool) -> None:
    team = _team(job)
    affine = len(job.inputs) > 1
    normal = "unit_{i} * scale"

    def centred(mean: str) -> str:
        return teams.lines(
            team, f"unit_{{i}} = select(nothing, unit_{{i}} - {mean}, at_{{i}} < units);"
        )

    values = {
        "AFFINE": affine,
        "SUM": teams.pairwise(team, "unit_{i}", "({a} + {b})"),
        "CENTRE": centred("mean"),
        "CENTRE_AGAIN": centred("rest"),
        "SQUARES": teams.pairwise(team, "unit_squares(unit_{i})", "({a} + {b})"),
        "STORE": teams.stored(
            team, f"fma({normal}, weight[at_{{i}}], bias[at_{{i}}])" if affine else normal
        ),
    }
    params = float(job.inputs[0].shape[-1]), float(job.arguments["eps"])
    _held_step(job, "layer_norm_rows", team, subgroup, values, *params)


def _norm_rows(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """Rows for every kernel of a normalization, with a NaN in each."""
    made = []
    longest = 4 * teams.HOLDING[-1].room
    for length in (*teams.probed_lengths(), longest + 4):
        rows = rng.normal(0, 2, (35 if length < 999 else 3, length))
        rows += rng.normal(0, 3, (len(rows), 1))
        rows[0] += 2000  # so far from 0 that rounding shows in the mean
        rows[-1, length // 2] = np.nan
        made.append(rows.astype(np.float32))
    return made


def _layer_norm_probes() -> list[Probe]:
    rng = np.random.default_rng(8)
    made = []
    for x in _norm_rows(rng):
        weight, bias = rng.normal(1, 0.5, (2, x.shape[1])).astype(np.float32)
        made.append(Probe((x, weight, bias), {"eps": 0.01}, 3e-6))
    return made


@operation(
    kernels=_row_kernels("layer_norm_xhat", _layer_norm_rows, _layer_norm),
    reference=reference.layer_norm_xhat,
    probes=lambda: [
        Probe(probe.inputs[:1], probe.arguments, 3e-6) for probe in _layer_norm_probes()
    ],
    gradients={
        "x": lambda grad, x, eps: layer_norm_grad(x, grad, x.device.ones(x.shape[-1:]), eps)[0]
    },
)
def layer_norm_xhat(x: Spec, eps: float = 1e-5) -> Result:
    """(x - mean) / sqrt(variance + eps) over the last axis: layer_norm without weight and bias."""
    rules.floats_only("layer_norm_xhat", x.dtype)
    rules.last_axis("layer_norm_xhat", x.shape)
    return Result((Spec(x.shape, f32),), (f32,), narrowed_to(x.dtype))


@operation(
    kernels=_row_kernels("layer_norm", _layer_norm_rows, _layer_norm),
    reference=reference.layer_norm,
    probes=_layer_norm_probes,
    gradients={
        ("x", "weight", "bias"): lambda grad, x, weight, eps: layer_norm_grad(x, grad, weight, eps)
    },
)
def layer_norm(x: Spec, weight: Spec, bias: Spec, eps: float = 1e-5) -> Result:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis (Ba et al., 2016).

    weight and bias have the shape (x.shape[-1],).
    """
    rules.floats_only("layer_norm", x.dtype, weight.dtype, bias.dtype)
    rules.last_axis("layer_norm", x.shape, weight=weight.shape, bias=bias.shape)
    return Result((Spec(x.shape, f32),), (f32, f32, f32), narrowed_to(x.dtype))


def rms_norm_step(
    job: Job,
    x: Operand,
    weight: Operand | None,
    residual: Operand | None,
    out: Operand,
    width: int,
    eps: float,
) -> None:
    """Rows of x, normalized where there is a weight, as rows of `width` with zeros at their end."""
    length = x.shape[-1]
    rows = x.size // length
    flags = (weight is not None) + 2 * (residual is not None)
    params = pack(rows, length, width, flags, eps)
    job.step("rms_norm", {}, [x, weight or x, residual or x, out], params, rows, row_loops(width))


def _rms_norm(job: Job) -> None:
    x, weight, *rest = job.inputs
    residual = rest[0] if rest else None
    eps = float(job.arguments["eps"])
    rms_norm_step(job, x, weight, residual, job.outputs[0], x.shape[-1], eps)


def _rms_norm_rows(job: Job, subgroup: bool) -> None:
    team = _team(job)
    residual = len(job.inputs) > 2
    scaled = "(unit_{i} * scale) * weight[at_{i}]"
    values = {
        "RESIDUAL": residual,
        "SQUARES": teams.pairwise(team, "unit_squares(unit_{i})", "({a} + {b})"),
        "STORE": teams.stored(team, scaled + " + residual[base + at_{i}]" if residual else scaled),
    }
    params = float(job.inputs[0].shape[-1]), float(job.arguments["eps"])
    _held_step(job, "rms_norm_rows", team, subgroup, values, *params)


def _rms_norm_probes() -> list[Probe]:
    rng = np.random.default_rng(9)
    made = []
    for x in (*_norm_rows(rng), rng.normal(0, 2, (5, 512)).astype(np.float32)):
        weight = rng.normal(1, 0.5, x.shape[1]).astype(np.float32)
        residual = rng.normal(0, 1, x.shape).astype(np.float32)
        made.append(Probe((x, weight), {}, 1e-6))
        made.append(Probe((x, weight, residual), {"eps": 0.1}, 1e-6))
    return made


@operation(
    kernels=_row_kernels("rms_norm", _rms_norm_rows, _rms_norm),
    reference=reference.rms_norm,
    probes=_rms_norm_probes,
    gradients={
        ("x", "weight"): lambda grad, x, weight, eps: rms_norm_grad(x, grad, weight, eps),
        "residual": lambda grad: grad,
    },
)
def rms_norm(x: Spec, weight: Spec, eps: float = 1e-6, residual: Spec | None = None) -> Result:
    """x / sqrt(mean(x^2) + eps) * weight + residual over the last axis (Zhang and Sennrich, 2019).

    weight has the shape (x.shape[-1],), residual that of x.
    """
    rules.floats_only("rms_norm", x.dtype, weight.dtype)
    rules.last_axis("rms_norm", x.shape, weight=weight.shape)
    cast: tuple[np.dtype, ...] = (f32, f32)
    if residual is not None:
        rules.floats_only("rms_norm", residual.dtype)
        if residual.shape != x.shape:
            raise ShapeError(
                f"[rms_norm] expected a residual of shape {x.shape}, but got {residual.shape}"
            )
        cast = (f32, f32, f32)
    return Result((Spec(x.shape, f32),), cast, narrowed_to(x.dtype))
