"""What a decoder-only language model is made of: sizes, norms, positions, names of its tensors.

A `Description` is read from the config.json beside safetensors (`from_config`) or from a GGUF
file's metadata (`from_metadata`); the decoder knows no architecture by name. Whatever it can't run
raises ModelError, which names the file and the setting.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..ops.frequencies import frequencies
from .files import Settings
from .ggufsettings import check_neutral
from .names import GGUF_NAMES, Names, folder_names, layer_count

WIDEST_HEAD = 256  # of tensai's attention
# What config.json may call the activation -> what it is called in `ops.linear(gate=...)`.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}

# What transformers takes where a config.json of this type is silent.
_GEMMA = {
    "hidden_activation": "gelu_pytorch_tanh",
    "head_dim": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"max_position_embeddings": 2048},
    "mistral": {
        "max_position_embeddings": 131_072,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
    },
    "qwen2": {"max_position_embeddings": 32_768, "sliding_window": 4096, "max_window_layers": 28},
    "qwen3": {
        "max_position_embeddings": 32_768,
        "sliding_window": 4096,
        "max_window_layers": 28,
        "head_dim": 128,
    },
    "gemma2": {
        **_GEMMA,
        "max_position_embeddings": 8192,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3_text": {
        **_GEMMA,
        "max_position_embeddings": 131_072,
        "vocab_size": 262_208,
        "sliding_window_pattern": 6,
        "rope_theta": 1e6,
    },
}
# What general.architecture is in GGUF -> the same in config.json. Mistral is stored as llama.
GGUF_ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
}
ROPE_FACTORS = "rope_freqs.weight"  # what GGUF divides frequencies by
LOCAL_THETA = 1e4  # of Gemma 3's layers with a window, where a file does not say


@dataclass(frozen=True)
class Rope:
    """How a layer turns queries and keys by their position: what `rope_` takes."""

    theta: float
    scaling: Mapping[str, Any] | None = None
    style: str = "neox"


@dataclass(frozen=True)
class Description:
    """A decoder-only transformer with gated feed-forward layers and RMS norms before them.

    `windows` and `ropes` have an entry for each layer; a window of None sees everything.
    `norm_offset` is what norm weights lack in the file (Gemma's are stored as w - 1).
    `embedding_scale` multiplies embeddings, `attention_scale` scores; a softcap c makes x to
    c tanh(x / c). `post_norms`: a norm also behind attention and feed-forward. `context` is the
    longest sequence that the model was made for. `path` is the file that all this stands in.
    """

    path: Path
    architecture: str
    vocabulary: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    eps: float
    activation: str
    tied: bool
    attention_scale: float
    windows: tuple[int | None, ...]
    ropes: tuple[Rope, ...]
    names: Names = field(repr=False)
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    norm_offset: float = 0.0
    embedding_scale: float = 1.0
    attention_softcap: float | None = None
    final_softcap: float | None = None

    def __post_init__(self) -> None:
        if self.head_dim > WIDEST_HEAD or self.head_dim % 2:
            raise ModelError(
                f"{self.path}: expected heads of an even size up to {WIDEST_HEAD}, but got "
                f"{self.head_dim}"
            )
        if self.heads % self.kv_heads:
            raise ModelError(
                f"{self.path}: expected the {self.kv_heads} key and value heads to divide the "
                f"{self.heads} heads"
            )

    @property
    def layers(self) -> int:
        return len(self.windows)

    @classmethod
    def from_config(cls, settings: Settings, tensors: Collection[str]) -> Description:
        """Of a config.json and the names of the tensors beside it."""
        if "text_config" in settings.values:  # Gemma 3 that also takes pictures
            settings = Settings(settings.path, settings.get("text_config", dict))
        kind = settings.get("model_type", str, "not given")
        if kind not in DEFAULTS:
            raise ModelError(
                f"{settings.path}: model_type is {kind!r}, but tensai runs {', '.join(DEFAULTS)}"
            )
        values = {**DEFAULTS[kind], **settings.values}
        return _from_config(cls, kind, Settings(settings.path, values), tensors)

    @classmethod
    def from_metadata(cls, settings: Settings, tensors: Collection[str]) -> Description:
        """Of a GGUF file's metadata and the names of its tensors."""
        kind = settings.get("general.architecture", str, "not given")
        if kind not in GGUF_ARCHITECTURES:
            raise ModelError(
                f"{settings.path}: general.architecture is {kind!r}, but tensai runs "
                f"{', '.join(GGUF_ARCHITECTURES)}"
            )
        # Below, the keys of an architecture are used without its name in front.
        own = {key.removeprefix(f"{kind}."): value for key, value in settings.values.items()}
        return _from_metadata(cls, kind, Settings(settings.path, own), tensors)


def _from_config(
    cls: type[Description], kind: str, settings: Settings, tensors: Collection[str]
) -> Description:
    gemma = kind.startswith("gemma")
    hidden, heads = settings.count("hidden_size"), settings.count("num_attention_heads")
    names = folder_names(gemma, tensors)
    tied = settings.get("tie_word_embeddings", bool, False)
    if tied and names.embedding not in tensors and names.head in tensors:
        names = replace(names, embedding=names.head)
    layers = layer_count(settings, "num_hidden_layers", names, tensors)
    dim = settings.count("head_dim", hidden // heads or 1)
    key = "hidden_activation" if gemma else "hidden_act"
    activation = settings.get(key, str, "silu")
    if activation not in ACTIVATIONS:
        raise ModelError(
            f"{settings.path}: {key} is {activation!r}, but tensai's decoder runs "
            f"{', '.join(ACTIVATIONS)}"
        )
    if gemma and settings.get("use_bidirectional_attention", bool, False):
        raise ModelError(
            f"{settings.path}: use_bidirectional_attention is true, but tensai's decoder lets a "
            "token see only those before it"
        )
    windows = _windows(kind, settings, layers)
    scored = settings.positive("query_pre_attn_scalar", dim) if gemma else float(dim)
    bias = kind != "mistral" and settings.get("attention_bias", bool, False)
    return cls(
        path=settings.path,
        architecture=kind,
        vocabulary=settings.count("vocab_size"),
        hidden=hidden,
        intermediate=settings.count("intermediate_size"),
        heads=heads,
        kv_heads=settings.count("num_key_value_heads", heads),
        head_dim=dim,
        context=settings.count("max_position_embeddings"),
        eps=settings.positive("rms_norm_eps", 1e-6),
        activation=ACTIVATIONS[activation],
        tied=tied,
        attention_scale=1 / math.sqrt(scored),
        windows=windows,
        ropes=_ropes(kind, settings, windows),
        names=names,
        qkv_bias=bias or kind == "qwen2",
        output_bias=bias and kind != "qwen2",
        mlp_bias=kind == "llama" and settings.get("mlp_bias", bool, False),
        qk_norm=kind in ("qwen3", "gemma3_text"),
        post_norms=gemma,
        norm_offset=float(gemma),
        embedding_scale=math.sqrt(hidden) if gemma else 1.0,
        attention_softcap=_optional(settings, "attn_logit_softcapping")
        if kind == "gemma2"
        else None,
        final_softcap=_optional(settings, "final_logit_softcapping") if gemma else None,
    )


def _optional(settings: Settings, key: str) -> float | None:
    """A number that may be missing or null."""
    if settings.values.get(key) is None:
        return None
    return settings.positive(key)


def _windows(kind: str, settings: Settings, layers: int) -> tuple[int | None, ...]:
    """What transformers makes of these settings, which differs by architecture."""
    everything: tuple[int | None, ...] = (None,) * layers
    if kind == "llama" or settings.values.get("sliding_window") is None:
        return everything
    if kind.startswith("qwen") and not settings.get("use_sliding_window", bool, False):
        return everything
    window = settings.count("sliding_window")
    kinds = settings.values.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise ModelError(f"{settings.path}: expected {layers} layer_types, but got {kinds!r}")
        unknown = set(map(str, kinds)) - {"sliding_attention", "full_attention"}
        if unknown:
            raise ModelError(
                f"{settings.path}: layer_types has {', '.join(sorted(unknown))}, but tensai's "
                "decoder runs sliding_attention and full_attention"
            )
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    if kind == "mistral":
        return (window,) * layers
    if kind.startswith("qwen"):
        first = settings.get("max_window_layers", int)
        return tuple(window if number >= first else None for number in range(layers))
    pattern = 2 if kind == "gemma2" else settings.count("sliding_window_pattern")
    return _every(pattern, window, layers)


def _every(pattern: int, window: int, layers: int) -> tuple[int | None, ...]:
    """One layer of `pattern` sees everything, the others before it have a window."""
    return tuple(window if (number + 1) % pattern else None for number in range(layers))


def _ropes(kind: str, settings: Settings, windows: Sequence[int | None]) -> tuple[Rope, ...]:
    """Before its release 5, transformers had rope_theta and rope_scaling; then rope_parameters."""
    theta = settings.positive("rope_theta", 1e4)
    local_theta = settings.positive("rope_local_base_freq", LOCAL_THETA)
    new, old = settings.values.get("rope_parameters"), settings.values.get("rope_scaling")
    if kind == "gemma3_text":
        kinds = _object(settings, new or {})
        everything = _rope(settings, kinds.get("full_attention") or old or {}, theta)
        near = _rope(settings, kinds.get("sliding_attention") or {}, local_theta)
        return tuple(everything if window is None else near for window in windows)
    return (_rope(settings, new or old or {}, theta),) * len(windows)


def _object(settings: Settings, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ModelError(f"{settings.path}: expected rope settings as an object, not {values!r}")
    return values


def _rope(settings: Settings, values: Any, theta: float) -> Rope:
    scaling = Settings(settings.path, _object(settings, values))
    theta = scaling.positive("rope_theta", theta)
    if scaling.positive("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"{settings.path}: tensai turns whole heads; partial_rotary_factor is set")
    kind = scaling.get("rope_type", str, values.get("type") or "default")
    if kind == "default":
        return Rope(theta)
    known = {**values, "rope_type": kind}
    if kind in ("llama3", "yarn") and not values.get("original_max_position_embeddings"):
        known["original_max_position_embeddings"] = settings.count("max_position_embeddings")
    return _checked(settings.path, Rope(theta, known))


def _checked(path: Path, rope: Rope) -> Rope:
    """A rope whose scaling is of a kind that there is, with the numbers that it needs."""
    try:
        frequencies(2, rope.theta, rope.scaling)
    except (ValueError, TypeError) as error:
        raise ModelError(f"{path}: how positions are scaled is wrong: {error}") from error
    return rope


# GGUF has no setting for these: the sizes of Gemma whose scores are scaled by hidden / heads.
_WIDE_GEMMAS = {("gemma2", 46), ("gemma3_text", 62)}
_GGUF_GEMMA_PATTERNS = {"gemma2": 2, "gemma3_text": 6}
# Which may differ from attention.key_length, or between layers, where heads have several sizes.
_SAME_LENGTHS = (
    "attention.value_length",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "rope.dimension_count_swa",
)


def _from_metadata(
    cls: type[Description], kind: str, settings: Settings, tensors: Collection[str]
) -> Description:
    architecture = GGUF_ARCHITECTURES[kind]
    gemma = architecture.startswith("gemma")
    hidden, heads = settings.count("embedding_length"), settings.count("attention.head_count")
    layers = layer_count(settings, "block_count", GGUF_NAMES, tensors)
    dim = settings.count("attention.key_length", hidden // heads or 1)
    turning = settings.count("rope.dimension_count", dim)
    if turning != dim:
        raise ModelError(
            f"{settings.path}: tensai turns whole heads of {dim} elements, but "
            f"rope.dimension_count is {turning}"
        )
    windows = _gguf_windows(architecture, settings, layers)
    scored = hidden // heads if (architecture, layers) in _WIDE_GEMMAS else dim
    scale = 1 / math.sqrt(scored)
    embedding_scale = math.sqrt(hidden) if gemma else 1.0
    gemma2 = architecture == "gemma2"
    same = {"attention.scale": scale, "embedding_scale": embedding_scale}
    same |= dict.fromkeys(_SAME_LENGTHS, dim)
    same |= {} if gemma else {"final_logit_softcapping": 0}
    check_neutral(settings, same if gemma2 else {**same, "attn_logit_softcapping": 0})
    return cls(
        path=settings.path,
        architecture=architecture,
        vocabulary=len(settings.get("tokenizer.ggml.tokens", list)),
        hidden=hidden,
        intermediate=settings.count("feed_forward_length"),
        heads=heads,
        kv_heads=settings.count("attention.head_count_kv", heads),
        head_dim=dim,
        context=settings.count("context_length"),
        eps=settings.positive("attention.layer_norm_rms_epsilon"),
        activation="gelu_tanh" if gemma else "silu",
        tied=GGUF_NAMES.head not in tensors,
        attention_scale=scale,
        windows=windows,
        ropes=_gguf_ropes(kind, settings, tensors, windows),
        names=GGUF_NAMES,
        qkv_bias=GGUF_NAMES.of("q", 0, "bias") in tensors,
        output_bias=GGUF_NAMES.of("o", 0, "bias") in tensors,
        mlp_bias=GGUF_NAMES.of("gate", 0, "bias") in tensors,
        qk_norm=GGUF_NAMES.of("q_norm", 0) in tensors,
        post_norms=gemma,
        embedding_scale=embedding_scale,
        attention_softcap=settings.positive("attn_logit_softcapping", 50.0) if gemma2 else None,
        final_softcap=settings.positive("final_logit_softcapping", 30.0)
        if gemma2
        else _optional(settings, "final_logit_softcapping"),
    )


def _gguf_ropes(
    kind: str, settings: Settings, tensors: Collection[str], windows: Sequence[int | None]
) -> tuple[Rope, ...]:
    gemma3 = kind == "gemma3"
    theta = settings.positive("rope.freq_base", 1e6 if gemma3 else 1e4)
    # Files of llama-type models have the rows of queries and keys in another order.
    style = "gptj" if kind == "llama" else "neox"
    scaling = _gguf_scaling(settings)
    if ROPE_FACTORS in tensors:
        if scaling is not None:
            raise ModelError(
                f"{settings.path}: positions are scaled by {scaling['rope_type']!r} and by the "
                f"tensor {ROPE_FACTORS!r}, but tensai runs one of them"
            )
        scaling = {"rope_type": "factors"}  # which the decoder reads
    everything = Rope(theta, scaling, style)
    if scaling is not None and ROPE_FACTORS not in tensors:
        _checked(settings.path, everything)
    if not gemma3:
        return (everything,) * len(windows)
    near = Rope(settings.positive("rope.freq_base_swa", LOCAL_THETA), None, style)
    return tuple(everything if window is None else near for window in windows)


def _gguf_scaling(settings: Settings) -> dict[str, Any] | None:
    """How positions are scaled, with what llama.cpp takes where a file is silent."""
    kind = settings.get("rope.scaling.type", str, "linear")
    if kind not in ("none", "linear", "yarn"):
        raise ModelError(
            f"{settings.path}: positions are scaled by {kind!r}, but tensai runs linear and yarn"
        )
    # The second is what files had before there were several ways.
    old = settings.positive("rope.scale_linear", 1.0)
    factor = settings.positive("rope.scaling.factor", old)
    stretched = settings.positive("rope.scaling.attn_factor", 1.0)
    if kind != "yarn":
        check_neutral(settings, {"rope.scaling.attn_factor": 1})
        linear = kind == "linear" and factor != 1
        return {"rope_type": kind, "factor": factor} if linear else None
    context = settings.count("context_length")
    found: dict[str, Any] = {
        "rope_type": kind,
        "factor": factor,
        "original_max_position_embeddings": settings.count(
            "rope.scaling.original_context_length", context
        ),
        "attention_factor": stretched * (0.1 * math.log(factor) + 1 if factor > 1 else 1.0),
    }
    for key in ("beta_fast", "beta_slow"):
        value = _optional(settings, f"rope.scaling.yarn_{key}")
        if value is not None:
            found[key] = value
    return found


def _gguf_windows(architecture: str, settings: Settings, layers: int) -> tuple[int | None, ...]:
    if not architecture.startswith("gemma"):
        return (None,) * layers
    window = settings.count("attention.sliding_window")
    key = "attention.sliding_window_pattern"
    pattern = settings.get(key, (int, list), _GGUF_GEMMA_PATTERNS[architecture])
    if not isinstance(pattern, list):
        return _every(settings.count(key, pattern), window, layers)
    if len(pattern) != layers:
        raise ModelError(f"{settings.path}: expected {layers} truths for {key!r}, not {pattern!r}")
    return tuple(window if near else None for near in pattern)
