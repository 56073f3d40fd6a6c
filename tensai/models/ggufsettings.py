"""Settings of GGUF files that change a model's numbers in ways that the decoder does not have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import ModelError
from .files import Settings

# The values at which they change nothing. Some are only of architectures that tensai doesn't run.
NEUTRAL: dict[str, tuple[float, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.output_scale": (0, 1),
    "attention.shared_kv_layers": (0,),
    "attention.temperature_length": (0,),
    "attention.temperature_scale": (0,),
    "embedding_length_per_layer_input": (0,),
    "expert_count": (0,),
    "logit_scale": (0, 1),
    "residual_scale": (0, 1),
    "rope.scaling.alpha": (0,),
    "rope.scaling.yarn_attn_factor": (1,),
    "rope.scaling.yarn_ext_factor": (-1, 1),
    "rope.scaling.yarn_log_multiplier": (0,),
    "swin_norm": (False,),
    "use_parallel_residual": (False,),
}


def check_neutral(settings: Settings, used: Mapping[str, float]) -> None:
    """Raise ModelError for a setting that would change something.

    `used` are further keys, with what the decoder computes with; a file that has them must agree.
    """
    for key, values in {**NEUTRAL, **{key: (value,) for key, value in used.items()}}.items():
        found: Any = settings.values.get(key)
        number = isinstance(found, (bool, int, float))
        if found is None or (number and any(math.isclose(found, x, rel_tol=1e-5) for x in values)):
            continue
        right = " or ".join(str(x) if isinstance(x, bool) else f"{x:g}" for x in values)
        raise ModelError(
            f"{settings.path}: {key} is {found!r}, but tensai's decoder computes as with {right}"
        )
