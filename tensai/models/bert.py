"""The encoder of BERT (Devlin et al., 2018) on tensai's tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..device import Device
from ..errors import ModelError
from ..tensor import Tensor
from .files import Array, Settings, Weights

# What config.json may call the activation -> what it is.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: x.gelu(),
    "gelu_new": lambda x: x.gelu(approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: x.gelu(approximate="tanh"),
    "relu": lambda x: x.relu(),
    "silu": lambda x: x.silu(),
    "swish": lambda x: x.silu(),
}
WIDEST_HEAD = 256  # of tensai's attention


@dataclass(frozen=True)
class BertConfig:
    """The sizes in a BERT's config.json."""

    vocabulary: int
    positions: int
    types: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    eps: float
    activation: str

    @classmethod
    def read(cls, settings: Settings) -> BertConfig:
        """Take the sizes from config.json; ModelError for anything but a BERT that tensai runs."""

        def must_be(key: str, default: str, allowed: tuple[str, ...]) -> str:
            value: str = settings.get(key, str, default)
            if value not in allowed:
                raise ModelError(
                    f"{settings.path}: {key} is {value!r}, but tensai's encoder runs "
                    f"{', '.join(allowed)}"
                )
            return value

        must_be("model_type", "not given", ("bert",))
        must_be("position_embedding_type", "absolute", ("absolute",))
        config = cls(
            vocabulary=settings.count("vocab_size"),
            positions=settings.count("max_position_embeddings"),
            types=settings.count("type_vocab_size", 2),
            hidden=settings.count("hidden_size"),
            intermediate=settings.count("intermediate_size"),
            layers=settings.count("num_hidden_layers"),
            heads=settings.count("num_attention_heads"),
            eps=float(settings.get("layer_norm_eps", (float, int), 1e-12)),
            activation=must_be("hidden_act", "gelu", tuple(ACTIVATIONS)),
        )
        size, rest = divmod(config.hidden, config.heads)
        if rest or size > WIDEST_HEAD:
            raise ModelError(
                f"{settings.path}: expected num_attention_heads to divide hidden_size into heads "
                f"of at most {WIDEST_HEAD}, but got {config.heads} and {config.hidden}"
            )
        return config


class BertEncoder:
    """Token ids in, the last layer's hidden states out.

    `device` holds the weights as float32 for as long as the encoder lives.
    """

    def __init__(self, config: BertConfig, weights: Weights, device: Device) -> None:
        self.config = config
        self.device = device
        self._weights = weights
        self._prefix = "" if "embeddings.word_embeddings.weight" in weights else "bert."
        hidden, wide = config.hidden, config.intermediate
        table = "embeddings.{}_embeddings.weight"
        words = self._read(table.format("word"), config.vocabulary, hidden)
        # Every token of a lone sentence is of type 0, so that row goes into the positions.
        types = self._read(table.format("token_type"), config.types, hidden)
        positions = self._read(table.format("position"), config.positions, hidden) + types[0]
        # A vocabulary of many languages may be larger than what a device binds at once.
        largest = device.limits.get("maxStorageBufferBindingSize", words.nbytes)
        self._words = device.upload(words) if words.nbytes <= largest else words
        self._positions = device.upload(positions)
        self._embedding_norm = self._norm("embeddings")
        self._layers = [
            {
                "query": self._linear(f"encoder.layer.{number}.attention.self.query", hidden, hidden),
                "key": self._linear(f"encoder.layer.{number}.attention.self.key", hidden, hidden),
                "value": self._linear(f"encoder.layer.{number}.attention.self.value", hidden, hidden),
                "mix": self._linear(f"encoder.layer.{number}.attention.output.dense", hidden, hidden),
                "mix_norm": self._norm(f"encoder.layer.{number}.attention.output"),
                "widen": self._linear(f"encoder.layer.{number}.intermediate.dense", wide, hidden),
                "narrow": self._linear(f"encoder.layer.{number}.output.dense", hidden, wide),
                "norm": self._norm(f"encoder.layer.{number}.output"),
            }
            for number in range(config.layers)
        ]

    def __call__(self, ids: Array, mask: Array) -> Tensor:
        """Hidden states (batch, length, hidden), float32, of token ids (batch, length).

        `mask` (batch, length), bool, is true for tokens and false for padding, which no token
        sees. Where it is false, the result means nothing.
        """
        batch, length = ids.shape
        heads = self.config.heads
        seen = self.device.upload(mask[:, None, None, :])
        x = self._embed(ids) + self._positions[:length]
        # One row a token, so that a product with a weight is one product for the whole batch.
        x = x.reshape(batch * length, self.config.hidden)
        x = self._normalize(x, self._embedding_norm)
        packed = (batch, length, self.config.hidden)
        activation = ACTIVATIONS[self.config.activation]
        for layer in self._layers:
            query = _apply(x, layer["query"]).reshape(packed)
            key = _apply(x, layer["key"]).reshape(packed)
            value = _apply(x, layer["value"]).reshape(packed)
            context = query.attention(key, value, heads, None, False, None, None, None, seen).reshape(x.shape)
            x = self._normalize(x + _apply(context, layer["mix"]), layer["mix_norm"])
            wide = activation(_apply(x, layer["widen"]))
            x = self._normalize(x + _apply(wide, layer["narrow"]), layer["norm"])
        return x.reshape(packed)

    def _embed(self, ids: Array) -> Tensor:
        if isinstance(self._words, Tensor):
            return self.device.embed(self._words, ids)
        return self.device.upload(self._words[ids])

    def _normalize(self, x: Tensor, norm: tuple[Tensor, Tensor]) -> Tensor:
        return x.layer_norm(*norm, eps=self.config.eps)

    def _read(self, name: str, *shape: int) -> Array:
        full = self._prefix + name
        if full not in self._weights:
            # Files converted from the first release of BERT call a norm's parameters so.
            older = full.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
            full = older if older in self._weights else full
        return self._weights.tensor(full, shape)

    def _linear(self, name: str, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """A layer's weight, transposed to (columns, rows), and its bias."""
        weight = self._read(f"{name}.weight", rows, columns)
        bias = self._read(f"{name}.bias", rows)
        return self.device.upload(weight), self.device.upload(bias)

    def _norm(self, name: str) -> tuple[Tensor, Tensor]:
        weight = self._read(f"{name}.LayerNorm.weight", self.config.hidden)
        bias = self._read(f"{name}.LayerNorm.bias", self.config.hidden)
        return self.device.upload(weight), self.device.upload(bias)


def _apply(x: Tensor, linear: tuple[Tensor, Tensor]) -> Any:
    weight, bias = linear
    return x.matmul_t(weight) + bias


__all__ = ["ACTIVATIONS", "BertConfig", "BertEncoder", "np"]
