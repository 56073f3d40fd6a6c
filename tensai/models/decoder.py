"""A decoder-only transformer on tensai's tensors, as a Description says."""

from __future__ import annotations

from collections.abc import Callable

from .. import ops
from ..device import Device
from ..tensor import Tensor
from .description import Description
from .files import MOST
from .layers import Layer, Linear, Reader

Progress = Callable[[int, int], None]


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
    def longest(description: Description, device: Device) -> int:
        """The largest capacity that a device has buffers for."""
        row = 4 * description.kv_heads * description.head_dim
        limits = [
            device.limits.get(name, MOST)
            for name in ("maxStorageBufferBindingSize", "maxBufferSize")
        ]
        return min(min(limits) // row, MOST)

    @staticmethod
    def nbytes(description: Description, capacity: int) -> int:
        """What a cache will take."""
        width = description.kv_heads * description.head_dim
        return 2 * 4 * capacity * width * description.layers


class Decoder:
    """The weights of a model on a device, which `reader` reads, and its forward pass.

    `activations` is "f32" or "int8" (see ops.linear).
    """

    def __init__(
        self,
        reader: Reader,
        activations: str = "f32",
        progress: Progress = lambda done, total: None,
    ) -> None:
        self.description = d = reader.description
        self.activations = activations
        self.nbytes = reader.nbytes
        matrices, names = reader.matrices, d.names
        self.device = matrices.device
        self.embedding = matrices.read([names.embedding], coarse=False)
        self.layers = []
        for number in range(d.layers):
            self.layers.append(reader.layer(number))
            progress(matrices.done, matrices.total)
        self.norm = matrices.vector([names.norm], [d.hidden], d.norm_offset)
        self.head = self.embedding if d.tied else matrices.read([names.head], coarse=False)
        progress(matrices.total, matrices.total)

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
