"""Tiny language models of every architecture, of random weights, and what transformers gives.

`make` writes a folder as transformers saves one; `write_gguf` the same weights as a GGUF, as
llama.cpp's converter would: rows of llama's queries and keys permuted, 1 added to Gemma's norms.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors import safe_open
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

VOCABULARY = 264
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "bos_token_id": 259,
    "eos_token_id": 260,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MERGES = [("t", "h"), ("th", "e"), ("a", "n")]
# Each architecture, with whatever sets it apart from the others.
CONFIGS: dict[str, tuple[type, dict[str, Any]]] = {
    "llama2": (LlamaConfig, {"num_key_value_heads": 4}),
    "llama3": (LlamaConfig, {"rope_scaling": LLAMA3_ROPE, "rope_theta": 5e5, "head_dim": 32}),
    "smollm": (
        LlamaConfig,
        {"tie_word_embeddings": True, "num_attention_heads": 8},
    ),
    "biased": (LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "mistral": (MistralConfig, {"sliding_window": 9}),
    "qwen2": (Qwen2Config, {"tie_word_embeddings": True}),
    "qwen3": (Qwen3Config, {"head_dim": 24}),
    "gemma2": (
        Gemma2Config,
        {
            "head_dim": 32,
            "sliding_window": 10,
            "query_pre_attn_scalar": 40,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 6.0,
            "tie_word_embeddings": True,
        },
    ),
    "gemma3": (
        Gemma3TextConfig,
        {
            "head_dim": 32,
            "sliding_window": 8,
            "query_pre_attn_scalar": 32,
            "num_hidden_layers": 7,
            "tie_word_embeddings": True,
        },
    ),
}


def make(
    folder: Path, name: str, dtype: torch.dtype = torch.float32, shard: str = "5GB", **more: Any
) -> Path:
    """A folder with config.json, safetensors and tokenizer.json."""
    kind, options = CONFIGS[name]
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(kind(**{**SIZES, **options, **more}))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key or key.endswith("bias"):  # which start as ones and zeros
                parameter += 0.2 * torch.randn_like(parameter)
    model.generation_config.eos_token_id = 260
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def tokenizer() -> Tokenizer:
    """A byte-level vocabulary: a token for each byte, three merged ones, and four special ones."""
    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "an"]
    vocabulary = {letter: index for index, letter in enumerate(letters)}
    made = Tokenizer(models.BPE(vocabulary, MERGES))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>", "<a>", "<b>"])
    return made


def reference(folder: Path) -> Any:
    """The model by transformers, in float32 on the CPU."""
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def logits(model: Any, ids: Any) -> np.ndarray[Any, Any]:
    """transformers' logits (len(ids), vocabulary)."""
    with torch.no_grad():
        made: np.ndarray[Any, Any] = model(torch.tensor([list(ids)])).logits[0].numpy()
    return made


def greedy(model: Any, ids: Any, count: int) -> list[int]:
    """transformers' most likely tokens after ids, whatever ends a text."""
    with torch.no_grad():
        made = model.generate(
            torch.tensor([list(ids)]),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    return [int(id) for id in made[0, len(ids) :]]


# GGUF ---------------------------------------------------------------------------------------

ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}
GGUF_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
}
GEMMA_PARTS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def write_gguf(folder: Path, path: Path, kind: str = "F32") -> Path:
    """The weights of a folder as a GGUF whose matrices are of `kind`."""
    config = AutoModelForCausalLM.from_pretrained(folder).config
    architecture = ARCHITECTURES.get(config.model_type, config.model_type)
    gemma = architecture.startswith("gemma")
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    writer.add_rope_dimension_count(dim)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if gemma:
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(rope, dim))
    _write_tokenizer(writer)
    parts = {**GGUF_PARTS, **(GEMMA_PARTS if gemma else {})}
    for name, tensor in _tensors(folder).items():
        array = tensor.numpy()
        if gemma and name.endswith("norm.weight"):
            array = array + 1
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads
            array = permuted(array, heads if "q_proj" in name else config.num_key_value_heads)
        stored = kind if array.ndim == 2 else "F32"
        code = gguf.GGMLQuantizationType[stored]
        data = gguf.quants.quantize(np.ascontiguousarray(array), code)
        writer.add_tensor(_gguf_name(name, parts), data, raw_dtype=code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def permuted(array: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of each head's first and second half in turn."""
    split = array.reshape(heads, 2, -1, *array.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(array.shape)


def llama3_factors(rope: Any, dim: int) -> np.ndarray[Any, Any]:
    """What llama.cpp divides frequencies by instead of knowing Llama 3's rule."""
    frequencies = rope["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    original = rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((original * frequencies / (2 * np.pi) - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            names = opened.keys()
            found.update({name: opened.get_tensor(name).float() for name in names})
    return found


def _gguf_name(name: str, parts: dict[str, str]) -> str:
    outer = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in outer:
        return outer[name]
    _, _, number, rest = name.split(".", 3)
    part, _, ending = rest.rpartition(".")
    return f"blk.{number}.{parts[part]}.{ending}"


def _write_tokenizer(writer: gguf.GGUFWriter) -> None:
    vocabulary = sorted(tokenizer().get_vocab().items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([name for name, _ in vocabulary])
    writer.add_token_types([3 if index >= 259 else 1 for _, index in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(259)
    writer.add_eos_token_id(260)
    writer.add_add_bos_token(False)
