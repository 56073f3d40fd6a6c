"""The encoder of BERT (Devlin et al., 2018) on tensai's tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..device import Device
from ..errors import ModelError
from ..tensor import Tensor
from .files import Array, Settings
from .shards import Weights

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


class Linear(NamedTuple):
    """x weight + bias; the weight is (inputs, outputs), which products read fastest."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Norm(NamedTuple):
    """Layer normalization."""

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return x.layer_norm(self.weight, self.bias, self.eps)


class Layer(NamedTuple):
    """The parameters of one layer."""

    query: Linear
    key: Linear
    value: Linear
    mix: Linear
    mix_norm: Norm
    widen: Linear
    narrow: Linear
    norm: Norm


class BertEncoder:
    """Token ids in, the last layer's hidden states out.

    `device` holds the weights as float32 for as long as the encoder lives. Raises ModelError,
    which names the file, when `weights` lacks a tensor or has one of another shape than `config`
    asks for.
    """

    def __init__(self, config: BertConfig, weights: Weights, device: Device) -> None:
        self.config = config
        self.device = device
        parameters = _Parameters(weights, device)
        hidden = config.hidden
        table = "embeddings.{}_embeddings.weight"
        words = parameters.read(table.format("word"), config.vocabulary, hidden)
        # Every token of a lone sentence is of type 0, so that row goes into the positions.
        types = parameters.read(table.format("token_type"), config.types, hidden)
        positions = parameters.read(table.format("position"), config.positions, hidden)
        # A vocabulary of many languages may be larger than what a device binds at once.
        largest = device.limits.get("maxStorageBufferBindingSize", words.nbytes)
        self._words = device.upload(words) if words.nbytes <= largest else words
        self._positions = device.upload(positions + types[0])
        self._norm = parameters.norm("embeddings", hidden, config.eps)
        self._layers = [parameters.layer(number, config) for number in range(config.layers)]

    def __call__(self, ids: Array, mask: Array) -> Tensor:
        """Hidden states (batch, length, hidden), float32, of int32 token ids (batch, length).

        `mask` (batch, length), bool, is true for tokens and false for padding, which no token
        sees. Where it is false, the result means nothing.
        """
        batch, length = ids.shape
        packed = (batch, length, self.config.hidden)
        heads = self.config.heads
        activation = ACTIVATIONS[self.config.activation]
        seen = self.device.upload(mask[:, None, None, :])
        x = self._embed(ids) + self._positions[:length]
        # One row a token, so that a product with a weight is one product for the whole batch.
        x = self._norm(x.reshape(batch * length, self.config.hidden))
        for layer in self._layers:
            query, key, value = (
                linear(x).reshape(packed) for linear in (layer.query, layer.key, layer.value)
            )
            context = query.attention(key, value, heads=heads, mask=seen)
            x = layer.mix_norm(x + layer.mix(context.reshape(x.shape)))
            x = layer.norm(x + layer.narrow(activation(layer.widen(x))))
        return x.reshape(packed)

    def _embed(self, ids: Array) -> Tensor:
        if isinstance(self._words, Tensor):
            return self.device.embed(self._words, ids)
        return self.device.upload(self._words[ids])


class _Parameters:
    """A file's tensors, by the names that BERT has for them, on a device."""

    def __init__(self, weights: Weights, device: Device) -> None:
        self.weights = weights
        self.device = device
        # Models that were saved with a head on top have their encoder's tensors below this name.
        self.prefix = "bert." if "bert.embeddings.word_embeddings.weight" in weights else ""

    def read(self, name: str, *shape: int) -> Array:
        name = self.prefix + name
        # Files converted from the first release of BERT call a norm's parameters so.
        older = name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
        return self.weights.tensor(older if older in self.weights else name, shape)

    def linear(self, name: str, outputs: int, inputs: int) -> Linear:
        weight = self.read(f"{name}.weight", outputs, inputs)
        bias = self.read(f"{name}.bias", outputs)
        return Linear(self.device.upload(weight.T), self.device.upload(bias))

    def norm(self, name: str, length: int, eps: float) -> Norm:
        weight = self.read(f"{name}.LayerNorm.weight", length)
        bias = self.read(f"{name}.LayerNorm.bias", length)
        return Norm(self.device.upload(weight), self.device.upload(bias), eps)

    def layer(self, number: int, config: BertConfig) -> Layer:
        name = f"encoder.layer.{number}"
        hidden, wide = config.hidden, config.intermediate
        return Layer(
            query=self.linear(f"{name}.attention.self.query", hidden, hidden),
            key=self.linear(f"{name}.attention.self.key", hidden, hidden),
            value=self.linear(f"{name}.attention.self.value", hidden, hidden),
            mix=self.linear(f"{name}.attention.output.dense", hidden, hidden),
            mix_norm=self.norm(f"{name}.attention.output", hidden, config.eps),
            widen=self.linear(f"{name}.intermediate.dense", wide, hidden),
            narrow=self.linear(f"{name}.output.dense", hidden, wide),
            norm=self.norm(f"{name}.output", hidden, config.eps),
        )
