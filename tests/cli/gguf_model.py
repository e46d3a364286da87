"""Small GGUF files, written by the Python package gguf: a Llama of one layer, in any type."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

HIDDEN, HEADS, KV_HEADS, WIDE, VOCABULARY = 256, 4, 2, 512, 64

# Where a block has its f16 numbers.
HALVES = {
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q8_0: [0],
    Type.Q2_K: [80, 82],
    Type.Q3_K: [108],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
    Type.MXFP4: [],
}

SHAPES = {
    "token_embd.weight": (VOCABULARY, HIDDEN),
    "blk.0.attn_q.weight": (HIDDEN, HIDDEN),
    "blk.0.attn_k.weight": (HIDDEN // 2, HIDDEN),
    "blk.0.attn_v.weight": (HIDDEN // 2, HIDDEN),
    "blk.0.attn_output.weight": (HIDDEN, HIDDEN),
    "blk.0.ffn_gate.weight": (WIDE, HIDDEN),
    "blk.0.ffn_up.weight": (WIDE, HIDDEN),
    "blk.0.ffn_down.weight": (HIDDEN, WIDE),
    "blk.0.attn_norm.weight": (HIDDEN,),
    "blk.0.ffn_norm.weight": (HIDDEN,),
    "output_norm.weight": (HIDDEN,),
}

MODEL_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "blk.0.attn_q": "model.layers.0.self_attn.q_proj",
    "blk.0.attn_k": "model.layers.0.self_attn.k_proj",
    "blk.0.attn_v": "model.layers.0.self_attn.v_proj",
    "blk.0.attn_output": "model.layers.0.self_attn.o_proj",
    "blk.0.ffn_gate": "model.layers.0.mlp.gate_proj",
    "blk.0.ffn_up": "model.layers.0.mlp.up_proj",
    "blk.0.ffn_down": "model.layers.0.mlp.down_proj",
    "blk.0.attn_norm": "model.layers.0.input_layernorm",
    "blk.0.ffn_norm": "model.layers.0.post_attention_layernorm",
}


def model_name(name: str) -> str:
    return MODEL_NAMES[name.removesuffix(".weight")] + ".weight"


def random_halves(random: np.random.Generator, count: int, narrow: bool = False) -> np.ndarray:
    """Finite f16 of every magnitude, subnormal and negative ones too; or near those of weights."""
    bits = random.integers(0, 1 << 16, count, np.uint16)
    if narrow:
        return (random.random(count) * 0.01).astype(np.float16)
    return np.where(bits & 0x7C00 == 0x7C00, bits & 0x83FF, bits).astype(np.uint16).view(np.float16)


def random_blocks(
    random: np.random.Generator, shape: tuple[int, ...], kind: Type, narrow: bool = False
) -> np.ndarray:
    """Bytes of a tensor of this type: every code and every small scale occurs."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (int(np.prod(shape)) // elements, size), np.uint8)
    for at in HALVES[kind]:
        halves = random_halves(random, len(blocks), narrow)
        blocks[:, at : at + 2] = halves.view(np.uint8).reshape(-1, 2)
    if kind == Type.MXFP4 and narrow:
        blocks[:, 0] = random.integers(110, 122, len(blocks))
    return blocks.reshape(*shape[:-1], -1)


def stored_values(
    random: np.random.Generator, shape: tuple[int, ...], kind: Type, narrow: bool = False
) -> np.ndarray:
    """A tensor as GGUFWriter takes it."""
    if kind in HALVES and len(shape) > 1:
        return random_blocks(random, shape, kind, narrow)
    values = random.standard_normal(shape, np.float32) * np.float32(0.02)
    if kind == Type.F16:
        return values.astype(np.float16)
    if kind == Type.BF16 and len(shape) > 1:
        return gguf.quants.quantize(values, Type.BF16)
    return values


BYTE_TOKENS = [chr(0x100 + i) for i in range(32)]


def add_metadata(writer: gguf.GGUFWriter, architecture: str) -> None:
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    if architecture == "qwen3":
        writer.add_key_length(HIDDEN // HEADS)


def add_byte_level(writer: gguf.GGUFWriter) -> None:
    letters = list("abcdefghijklmnopqrstuvwxyz") + ["\u0120"]
    tokens = ["<|bos|>", "<|eos|>", *letters, "th", "the", "\u0120a", "an"]
    tokens += [f"<unused{i}>" for i in range(VOCABULARY - len(tokens))]
    kinds = [3, 3] + [1] * (len(letters) + 4)
    kinds += [5] * (VOCABULARY - len(kinds))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h", "th e", "\u0120 a", "a n"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{{ messages }}")


def add_sentence_piece(writer: gguf.GGUFWriter) -> None:
    pieces = ["<unk>", "<s>", "</s>", "\u2581", "t", "h", "e", "a", "n"]
    pieces += ["\u2581t", "he", "th", "the", "\u2581the", "an", "\u2581a"]
    scores = [0.0] * 9 + [-1.0, -2.0, -4.0, -5.0, -3.0, -6.0, -7.0]
    kinds = [2, 3, 3] + [1] * (len(pieces) - 3)
    while len(pieces) < VOCABULARY:
        pieces.append(f"<0x{len(pieces):02X}>")
        scores.append(0.0)
        kinds.append(6)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def write_model(
    path: Path,
    kind: Type,
    architecture: str = "llama",
    seed: int = 0,
    narrow: bool = False,
    tokenizer=add_byte_level,
) -> dict[str, np.ndarray]:
    """Writes a model, and returns what the package decodes it to, under the model's names."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    add_metadata(writer, architecture)
    if tokenizer is not None:
        tokenizer(writer)
    values = {}
    for name, shape in SHAPES.items():
        own = kind if len(shape) > 1 else Type.F32
        stored = stored_values(random, shape, own, narrow)
        raw = own if own in HALVES or own == Type.BF16 else None
        writer.add_tensor(name, stored, raw_dtype=raw)
        with np.errstate(over="ignore"):  # MXFP4 with the largest scales
            decoded = gguf.quants.dequantize(stored, own).astype(np.float32).reshape(shape)
        values[model_name(name)] = in_models_order(name, decoded, architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def in_models_order(name: str, values: np.ndarray, architecture: str = "llama") -> np.ndarray:
    """Undoes the order of llama.cpp's converter: rows of a head lie as pairs of its two halves."""
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-2], 0)
    if architecture != "llama" or not heads:
        return values
    pairs = values.reshape(heads, -1, 2, values.shape[-1])
    return pairs.swapaxes(1, 2).reshape(values.shape)
