"""Llama-shaped GGUF files of random weights, for timing: nobody's text comes out of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np


@dataclass(frozen=True)
class Shape:
    """The sizes of a llama."""

    dim: int
    layers: int
    heads: int
    kv_heads: int
    wide: int
    vocabulary: int = 32_000

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Each matrix of the file, as (outputs, inputs)."""
        kv = self.dim // self.heads * self.kv_heads
        found = {"token_embd": (self.vocabulary, self.dim)}
        for layer in range(self.layers):
            found |= {
                f"blk.{layer}.attn_q": (self.dim, self.dim),
                f"blk.{layer}.attn_k": (kv, self.dim),
                f"blk.{layer}.attn_v": (kv, self.dim),
                f"blk.{layer}.attn_output": (self.dim, self.dim),
                f"blk.{layer}.ffn_gate": (self.wide, self.dim),
                f"blk.{layer}.ffn_up": (self.wide, self.dim),
                f"blk.{layer}.ffn_down": (self.dim, self.wide),
            }
        return found | {"output": (self.vocabulary, self.dim)}


SHAPES = {
    "tiny": Shape(256, 2, 8, 2, 768),
    "1.1B": Shape(2048, 22, 32, 4, 5632),
    "8B": Shape(4096, 32, 32, 8, 14336),
}
# Standard deviation of the codes that random bytes are.
SPREAD = {"Q4_0": 4.61, "Q8_0": 73.9}


def blocks(
    rng: np.random.Generator, outputs: int, inputs: int, kind: str, deviation: float
) -> np.ndarray:
    """Random blocks of 32, (outputs, bytes), of values with this standard deviation."""
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
    raw = rng.bytes(outputs * inputs // 32 * size)
    made = np.frombuffer(raw, np.uint8).copy().reshape(-1, size)
    scale = np.array([deviation / SPREAD[kind]], np.float16)
    made[:, :2] = scale.view(np.uint8)
    return made.reshape(outputs, -1)


def write(path: Path, shape: Shape, kind: str) -> None:
    """Write the file; `kind` is "Q4_0" or "Q8_0", of every matrix."""
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(str(path), "llama", use_temp_file=False)
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.dim)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.wide)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.dim // shape.heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("llama")
    named = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    named += [f"t{index}".encode() for index in range(len(named), shape.vocabulary)]
    # Only ASCII as bytes: a server can't put half of a character into JSON.
    kinds = [2, 3, 3, *[6] * 128, *[1] * 128]
    writer.add_token_list(named)
    writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(shape.vocabulary - 259)])
    writer.add_token_types(kinds + [1] * (shape.vocabulary - len(kinds)))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    ones = np.ones(shape.dim, np.float32)
    names = [
        f"blk.{layer}.{part}_norm" for layer in range(shape.layers) for part in ("attn", "ffn")
    ]
    for name in [*names, "output_norm"]:
        writer.add_tensor(f"{name}.weight", ones)
    for name, (outputs, inputs) in shape.matrices().items():
        # Rows of the embedding are of order 1, and products keep that order.
        deviation = 1.0 if name == "token_embd" else inputs**-0.5
        made = blocks(rng, outputs, inputs, kind, deviation)
        writer.add_tensor(f"{name}.weight", made, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
