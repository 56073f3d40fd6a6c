"""The parameters of a decoder's layers, and reading them from a model's files onto a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ..quantized import QuantizedTensor
from ..tensor import Tensor
from .description import ROPE_FACTORS, Description, Rope
from .files import Array
from .matrices import Matrices


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


class Reader:
    """A model's tensors by what they are for. `nbytes`: what all matrices take on the device.

    Raises ModelError, which names the file and the tensor, before anything is uploaded, when a
    tensor is missing, of another shape than `description` asks for, larger than the device binds
    at once, or of the model's layers or outer parts and yet none that is read.
    """

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
        self.nbytes = self._check()

    def _check(self) -> int:
        d, matrices = self.description, self.matrices
        outer = [d.names.embedding] + ([] if d.tied else [d.names.head])
        total, read = 0, {*outer, d.names.norm}
        for name in outer:
            total += matrices.check([name], [(d.vocabulary, d.hidden)], False)
        for number in range(d.layers):
            for parts, _ in self._products():
                for group in self._groups(number, parts):
                    shapes = [self.shapes[part] for part in group]
                    total += matrices.check(self._names(number, group), shapes, True)
                read.update(self._names(number, parts))
            for name, length in self._vectors(number):
                matrices.source.check_shape(name, (length,))
                read.add(name)
        matrices.source.check_shape(d.names.norm, (d.hidden,))
        self._check_foreign(read)
        return total

    def _check_foreign(self, read: set[str]) -> None:
        """ModelError for a tensor that would have changed the model, if it were read."""
        d, source = self.description, self.matrices.source
        if d.tied:
            read = {*read, d.names.head}  # which was compared with the embedding
        for name in d.names.foreign(source.names(), read):
            raise ModelError(
                f"{source.file(name)}: tensor {name!r} is part of the model, but tensai's decoder "
                f"would not read it: {source.sizes} and the other tensors ask for none of that name"
            )

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
