"""A decoder-only transformer on tensai's tensors, as a Description says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import ops
from ..device import Device
from ..errors import ModelError
from ..quantized import QuantizedTensor
from ..tensor import Tensor
from .description import ROPE_FACTORS, Description, Rope
from .files import Array
from .matrices import Matrices
from .source import TensorSource

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Linear:
    """x times a matrix, or several side by side that are packed differently, plus a bias."""

    parts: tuple[QuantizedTensor, ...]
    bias: Tensor | None = None


@dataclass(frozen=True)
class Layer:
    """The parameters of one layer."""

    attention_norm: Tensor
    qkv: Linear
    norms: Tensor | None  # of queries and keys, (2, head_dim)
    output: Linear
    attention_post_norm: Tensor | None
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear
    mlp_post_norm: Tensor | None
    rope: Rope
    window: int | None


class Cache:
    """Keys and values of the tokens so far, for each layer (capacity, kv_heads * head_dim)."""

    def __init__(self, description: Description, device: Device, capacity: int) -> None:
        self.capacity = capacity
        shape = (capacity, description.kv_heads * description.head_dim)
        # What lies beyond the tokens so far never counts.
        self.layers = [
            (device.empty(shape), device.empty(shape)) for _ in range(description.layers)
        ]

    @staticmethod
    def nbytes(description: Description, capacity: int) -> int:
        """What a cache will take."""
        width = description.kv_heads * description.head_dim
        return 2 * 4 * capacity * width * description.layers


class Decoder:
    """The weights of a model on a device, and its forward pass.

    `activations` is "f32" or "int8" (see ops.linear). Raises ModelError, which names the file and
    the tensor, before anything is uploaded, when a tensor is missing, of another shape than
    `description` asks for, or larger than the device binds at once.
    """

    def __init__(
        self,
        description: Description,
        source: TensorSource,
        device: Device,
        weights: str | None = None,
        activations: str = "f32",
        progress: Progress = lambda done, total: None,
    ) -> None:
        self.description = description
        self.device = device
        self.activations = activations
        reader = _Reader(description, Matrices(source, device, weights))
        self.nbytes = reader.check()
        total = sum(source.raw(name).nbytes for name in source.names())
        matrices = reader.matrices
        names, d = description.names, description
        self.embedding = matrices.read([names.embedding], coarse=False)
        self.layers = []
        for number in range(d.layers):
            self.layers.append(reader.layer(number))
            progress(matrices.done, total)
        self.norm = matrices.vector([names.norm], [d.hidden], d.norm_offset)
        self.head = self.embedding if d.tied else matrices.read([names.head], coarse=False)
        progress(total, total)

    def __call__(self, ids: Tensor, cache: Cache, at: Tensor, length: Tensor) -> Tensor:
        """Hidden states (rows, hidden) of tokens (rows,) at positions at, at + 1, ...

        Their keys and values go into the cache; `length` is at + rows. Both are int32 tensors of
        one element.
        """
        d = self.description
        x = self.device.embed(self.embedding, ids)
        if d.embedding_scale != 1:
            x = x * d.embedding_scale
        for layer, (k, v) in zip(self.layers, cache.layers, strict=True):
            x = self._attention(x, layer, k, v, at, length)
            x = self._feed_forward(x, layer)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """(rows, hidden) -> (rows, vocabulary), float32."""
        d = self.description
        made = ops.linear(
            hidden, self.head, norm=self.norm, eps=d.eps, activations=self.activations
        )
        if d.final_softcap is not None:
            made = (made * (1 / d.final_softcap)).tanh() * d.final_softcap
        return made

    def _attention(
        self, x: Tensor, layer: Layer, k: Tensor, v: Tensor, at: Tensor, length: Tensor
    ) -> Tensor:
        d, rope = self.description, layer.rope
        qkv = self._linear(x, layer.qkv, norm=layer.attention_norm)
        q = ops.append_kv_(
            k,
            v,
            qkv,
            at,
            d.heads,
            d.kv_heads,
            rope.theta,
            rope.style,
            rope.scaling,
            norms=layer.norms,
            eps=d.eps,
        )
        seen = q.attention(
            k,
            v,
            heads=d.heads,
            kv_heads=d.kv_heads,
            causal=True,
            scale=d.attention_scale,
            kv_length=length,
            window=layer.window,
            softcap=d.attention_softcap,
        )
        return self._added(seen, layer.output, layer.attention_post_norm, x)

    def _feed_forward(self, x: Tensor, layer: Layer) -> Tensor:
        gate = self.description.activation
        if len(layer.gate_up.parts) == 1:
            wide = self._linear(x, layer.gate_up, norm=layer.mlp_norm, gate=gate)
        else:
            both = self._linear(x, layer.gate_up, norm=layer.mlp_norm)
            half = both.shape[1] // 2
            act = both[:, :half].silu() if gate == "silu" else both[:, :half].gelu("tanh")
            wide = act * both[:, half:]
        return self._added(wide, layer.down, layer.mlp_post_norm, x)

    def _added(
        self, x: Tensor, linear: Linear, post_norm: Tensor | None, residual: Tensor
    ) -> Tensor:
        if post_norm is None:
            return self._linear(x, linear, residual=residual)
        made: Tensor = self._linear(x, linear).rms_norm(post_norm, self.description.eps, residual)
        return made

    def _linear(
        self,
        x: Tensor,
        linear: Linear,
        norm: Tensor | None = None,
        residual: Tensor | None = None,
        gate: str | None = None,
    ) -> Tensor:
        eps = self.description.eps
        if len(linear.parts) == 1:
            return ops.linear(
                x,
                linear.parts[0],
                linear.bias,
                norm=norm,
                eps=eps,
                residual=residual,
                gate=gate,
                activations=self.activations,
            )
        made = self.device.concat(
            [
                ops.linear(x, part, norm=norm, eps=eps, activations=self.activations)
                for part in linear.parts
            ],
            axis=1,
        )
        return made if linear.bias is None else made + linear.bias


class _Reader:
    """A model's tensors by what they are for."""

    def __init__(self, description: Description, matrices: Matrices) -> None:
        self.description = description
        self.matrices = matrices
        d = description
        q, kv = d.heads * d.head_dim, d.kv_heads * d.head_dim
        self.shapes = {
            "q": (q, d.hidden),
            "k": (kv, d.hidden),
            "v": (kv, d.hidden),
            "o": (d.hidden, q),
            "gate": (d.intermediate, d.hidden),
            "up": (d.intermediate, d.hidden),
            "down": (d.hidden, d.intermediate),
        }
        self.ropes = _with_factors(description, matrices)

    def check(self) -> int:
        """Bytes of all matrices; ModelError for a tensor that is missing, or does not fit."""
        d, matrices = self.description, self.matrices
        outer = [d.names.embedding] + ([] if d.tied else [d.names.head])
        total = 0
        for name in outer:
            total += matrices.check([name], [(d.vocabulary, d.hidden)], False)
        for number in range(d.layers):
            for parts, _ in self._products():
                for group in self._groups(number, parts):
                    shapes = [self.shapes[part] for part in group]
                    total += matrices.check(self._names(number, group), shapes, True)
            for name, length in self._vectors(number):
                matrices.source.check_shape(name, (length,))
        matrices.source.check_shape(d.names.norm, (d.hidden,))
        return total

    def _vectors(self, number: int) -> list[tuple[str, int]]:
        """The norms and biases of a layer, and how long each is."""
        d = self.description
        norms = ["attention_norm", "mlp_norm"]
        norms += ["attention_post_norm", "mlp_post_norm"] if d.post_norms else []
        found = [(d.names.of(part, number), d.hidden) for part in norms]
        for part in ("q_norm", "k_norm") if d.qk_norm else ():
            found.append((d.names.of(part, number), d.head_dim))
        for parts, biased in self._products():
            for part in parts if biased else ():
                found.append((d.names.of(part, number, "bias"), self.shapes[part][0]))
        return found

    def _products(self) -> list[tuple[tuple[str, ...], bool]]:
        """The matrices of a layer that lie one below the other, and whether they have biases."""
        d = self.description
        return [
            (("q", "k", "v"), d.qkv_bias),
            (("o",), d.output_bias),
            (("gate", "up"), d.mlp_bias),
            (("down",), d.mlp_bias),
        ]

    def layer(self, number: int) -> Layer:
        """Everything of one layer, on the device."""
        d = self.description
        norms = None
        if d.qk_norm:
            names = [d.names.of(part, number) for part in ("q_norm", "k_norm")]
            pair = self.matrices.vector(names, [d.head_dim] * 2, d.norm_offset)
            norms = pair.reshape(2, d.head_dim)
        qkv, output, gate_up, down = (self._linear(number, *each) for each in self._products())
        return Layer(
            attention_norm=self._norm("attention_norm", number),
            qkv=qkv,
            norms=norms,
            output=output,
            attention_post_norm=self._post_norm("attention_post_norm", number),
            mlp_norm=self._norm("mlp_norm", number),
            gate_up=gate_up,
            down=down,
            mlp_post_norm=self._post_norm("mlp_post_norm", number),
            rope=self.ropes[number],
            window=d.windows[number],
        )

    def _norm(self, part: str, number: int) -> Tensor:
        d = self.description
        return self.matrices.vector([d.names.of(part, number)], [d.hidden], d.norm_offset)

    def _post_norm(self, part: str, number: int) -> Tensor | None:
        return self._norm(part, number) if self.description.post_norms else None

    def _names(self, number: int, parts: Sequence[str]) -> list[str]:
        return [self.description.names.of(part, number) for part in parts]

    def _groups(self, number: int, parts: tuple[str, ...]) -> list[tuple[str, ...]]:
        """The parts together where all are packed alike, else each for itself."""
        kinds = {self.matrices.kind(name) for name in self._names(number, parts)}
        return [parts] if len(kinds) == 1 else [(part,) for part in parts]

    def _linear(self, number: int, parts: tuple[str, ...], bias: bool) -> Linear:
        groups = self._groups(number, parts)
        matrices = tuple(self.matrices.read(self._names(number, group)) for group in groups)
        if not bias:
            return Linear(matrices)
        names = [self.description.names.of(part, number, "bias") for part in parts]
        lengths = [self.shapes[part][0] for part in parts]
        return Linear(matrices, self.matrices.vector(names, lengths))


def _with_factors(description: Description, matrices: Matrices) -> tuple[Rope, ...]:
    """The ropes, with the factors that a GGUF keeps as a tensor."""
    if ROPE_FACTORS not in matrices.source:
        return description.ropes
    found: Array = matrices.numbers([ROPE_FACTORS], [description.head_dim // 2])
    if not np.isfinite(found).all() or (found <= 0).any():
        raise ModelError(f"{description.path}: tensor {ROPE_FACTORS!r} has numbers that are none")
    scaling = {"rope_type": "factors", "factors": tuple(found.tolist())}
    return tuple(
        Rope(rope.theta, scaling, rope.style) if rope.scaling is not None else rope
        for rope in description.ropes
    )
