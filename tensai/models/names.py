"""What files call the tensors of a decoder-only language model, and how many layers they have."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from ..errors import ModelError
from .files import Settings

# What transformers once saved though it computes it, positions and masks, and scales for caches of
# keys and values in eight bits.
HARMLESS = re.compile(
    r"\b((original_)?inv_freq|(cos|sin)_cached|attn_rot_embd(\.weight)?"
    r"|masked_bias|(self_)?attn\.bias|[kv]_scale)$"
)


@dataclass(frozen=True)
class Names:
    """What a file calls the tensors. `{}` stands for a layer's number."""

    embedding: str
    norm: str
    head: str
    layer: dict[str, str]

    def of(self, part: str, number: int, kind: str = "weight") -> str:
        """The tensor `part` ("q", "attention_norm", ...) of a layer; `kind` may be "bias"."""
        return f"{self.layer[part].format(number)}.{kind}"

    def foreign(self, tensors: Collection[str], read: Collection[str]) -> list[str]:
        """The tensors of the decoder's blocks and outer parts that are neither read nor harmless.

        Of other parts, like towers for pictures, a file may have whatever it likes.
        """
        layers = self.layer["q"].split("{}")[0]
        own = [name.removesuffix(".weight") for name in (self.embedding, self.norm, self.head)]
        inner = (layers, *own)
        return [
            name
            for name in tensors
            if name.startswith(inner) and name not in read and not HARMLESS.search(name)
        ]


def folder_names(post_norms: bool, tensors: Collection[str]) -> Names:
    """What transformers calls them; `post_norms`: as in Gemma."""
    ending = "embed_tokens.weight"
    # Shortest first: a model with other towers may have more embeddings.
    found = sorted((name for name in tensors if name.endswith(ending)), key=len)
    prefix = found[0].removesuffix(ending) if found else "model."
    heads = [name for name in tensors if name.endswith("lm_head.weight")]
    parts = {
        "attention_norm": "input_layernorm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "q_norm": "self_attn.q_norm",
        "k_norm": "self_attn.k_norm",
        "mlp_norm": "pre_feedforward_layernorm" if post_norms else "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
        "attention_post_norm": "post_attention_layernorm",
        "mlp_post_norm": "post_feedforward_layernorm",
    }
    return Names(
        embedding=prefix + ending,
        norm=f"{prefix}norm.weight",
        head=heads[0] if heads else "lm_head.weight",
        layer={part: f"{prefix}layers.{{}}.{name}" for part, name in parts.items()},
    )


GGUF_NAMES = Names(
    embedding="token_embd.weight",
    norm="output_norm.weight",
    head="output.weight",
    layer={
        part: f"blk.{{}}.{name}"
        for part, name in {
            "attention_norm": "attn_norm",
            "q": "attn_q",
            "k": "attn_k",
            "v": "attn_v",
            "o": "attn_output",
            "q_norm": "attn_q_norm",
            "k_norm": "attn_k_norm",
            "mlp_norm": "ffn_norm",
            "gate": "ffn_gate",
            "up": "ffn_up",
            "down": "ffn_down",
            "attention_post_norm": "post_attention_norm",
            "mlp_post_norm": "post_ffw_norm",
        }.items()
    },
)


def layer_count(settings: Settings, key: str, names: Names, tensors: Collection[str]) -> int:
    """How many layers the settings say, which must be those whose tensors are there.

    Compared before anything is made for each layer: a wrong number may be a very large one.
    """
    layers = settings.count(key)
    start = re.escape(names.layer["q"].split("{}")[0])
    found = {match[1] for name in tensors if (match := re.match(rf"{start}(\d+)\.", name))}
    # Of none at all the decoder says which tensors it misses.
    if len(found) != layers and (found or layers > len(tensors)):
        raise ModelError(
            f"{settings.path}: {key!r} is {layers}, but there are tensors of {len(found)} layers; "
            "it must be their number: the files are of different models, or incomplete"
        )
    return layers
