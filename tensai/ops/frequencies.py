"""How fast rotary positions turn each pair of elements, and how longer contexts scale that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ShapeError


def frequencies(dims: int, theta: float, scaling: Any = None) -> tuple[np.ndarray[Any, Any], float]:
    """Radians a position for each of dims / 2 pairs, float64, and what the rotation is scaled by.

    `scaling` is None or what a Hugging Face config.json calls rope_scaling: a mapping with
    "rope_type" "default", "linear", "llama3" or "yarn" (Peng et al., 2023) and that type's numbers.
    "factors" divides each frequency by an entry of "factors". Raises ValueError for numbers that
    are not positive and finite.
    """
    theta = _positive("theta", theta)
    made = theta ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    values = dict(scaling or {})
    kind = values.get("rope_type", values.get("type", "default"))
    if kind == "default":
        return made, 1.0
    if kind not in ("linear", "llama3", "yarn", "factors"):
        raise ValueError(
            '[rope] expected scaling "default", "linear", "llama3", "yarn" or "factors", not '
            f"{kind!r}"
        )
    try:
        if kind == "factors":
            try:
                factors = np.asarray(values["factors"], np.float64)
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(f"[rope] expected finite factors above 0: {error}") from None
            if factors.shape != made.shape:
                raise ShapeError(f"[rope] expected {len(made)} factors, but got {factors.shape}")
            if not (np.isfinite(factors) & (factors > 0)).all():
                raise ValueError("[rope] expected finite factors above 0, but got others")
            return made / factors, 1.0
        factor = _positive("scaling's factor", values["factor"])
        if kind == "linear":
            return made / factor, 1.0
        if kind == "llama3":
            return _llama3(made, factor, values), 1.0
        return _yarn(made, dims, theta, factor, values)
    except KeyError as error:
        raise ValueError(f"[rope] scaling {kind!r} needs {error}") from None


def _positive(what: str, value: Any) -> float:
    number = isinstance(value, (int, float, np.integer, np.floating)) and type(value) is not bool
    # 1e300 is as far as what is computed from it stays finite.
    if not number or not 1e-300 <= value <= 1e300:  # nor is NaN
        raise ValueError(f"[rope] expected a finite number above 0 for {what}, but got {value!r}")
    return float(value)


def _llama3(made: np.ndarray[Any, Any], factor: float, values: Mapping[str, Any]) -> Any:
    """Long wavelengths are stretched by `factor`, short ones not, those between in part."""
    original, low, high = (
        _positive(f"scaling's {key}", values[key])
        for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    if low >= high:
        raise ValueError(
            "[rope] expected scaling's low_freq_factor below high_freq_factor, but got "
            f"{low} and {high}"
        )
    wavelengths = 2 * math.pi / made
    share = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    return made * (share + (1 - share) / factor)


def _yarn(
    made: np.ndarray[Any, Any], dims: int, theta: float, factor: float, values: Mapping[str, Any]
) -> tuple[Any, float]:
    key = "original_max_position_embeddings"
    original = _positive(f"scaling's {key}", values[key])
    if theta <= 1:
        raise ValueError(f'[rope] expected theta above 1 for scaling "yarn", but got {theta}')

    def optional(key: str, default: float) -> float:
        value = values.get(key)
        return default if value is None else _positive(f"scaling's {key}", value)

    def pair_of(turns: float) -> float:
        # The pair that makes that many turns over the original context.
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = pair_of(optional("beta_fast", 32))
    high = pair_of(optional("beta_slow", 1))
    if values.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / max(high - low, 0.001), 0, 1)
    if values.get("attention_factor") is not None:
        attention = optional("attention_factor", 1)
    else:

        def scale(mscale: float) -> float:
            return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

        attention = scale(1.0)
        if values.get("mscale") and values.get("mscale_all_dim"):
            attention = scale(optional("mscale", 1)) / scale(optional("mscale_all_dim", 1))
    return made * (1 - ramp) + made / factor * ramp, attention
