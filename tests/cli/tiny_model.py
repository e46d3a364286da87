"""Small checkpoints from nothing: a writer of safetensors files, and a Llama of random weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

NAMES = {
    "float32": "F32",
    "float16": "F16",
    "uint16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "uint8": "U8",
}


def bf16(values: np.ndarray) -> np.ndarray:
    """Float32 cut to its upper half, which is a bfloat16."""
    return (np.ascontiguousarray(values, "<f4").view("<u4") >> 16).astype("<u2")


def write(
    path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None
) -> None:
    header, at = {"__metadata__": metadata or {"format": "pt"}}, 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(np.ascontiguousarray(array).tobytes() for array in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def llama_weights(layers: int = 2, width: int = 256, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)

    def matrix(rows: int, cols: int) -> np.ndarray:
        return bf16(random.standard_normal((rows, cols), np.float32) * 0.02)

    tensors = {"model.embed_tokens.weight": matrix(64, width)}
    for i in range(layers):
        at = f"model.layers.{i}."
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            tensors[f"{at}self_attn.{name}.weight"] = matrix(width, width)
        for name in ("gate_proj", "up_proj"):
            tensors[f"{at}mlp.{name}.weight"] = matrix(2 * width, width)
        tensors[f"{at}mlp.down_proj.weight"] = matrix(width, 2 * width)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{name}.weight"] = bf16(np.ones(width, np.float32))
    tensors["model.norm.weight"] = bf16(np.ones(width, np.float32))
    tensors["lm_head.weight"] = matrix(64, width)
    return tensors


def llama(folder: Path, tensors: dict[str, np.ndarray] | None = None, shards: int = 1) -> Path:
    """A folder with config.json, and an index where there are several shards."""
    folder.mkdir()
    tensors = llama_weights() if tensors is None else tensors
    width = tensors["model.embed_tokens.weight"].shape[1]
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "tokenizer.json").write_text("{}")
    if shards == 1:
        write(folder / "model.safetensors", tensors)
        return folder
    names = list(tensors)
    where = {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[i::shards]}
        write(folder / file, part)
        where |= dict.fromkeys(part, file)
    total = sum(array.nbytes for array in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def runnable(folder: Path, layers: int = 2, tensors: dict[str, np.ndarray] | None = None) -> Path:
    """A Llama that can run: all that config.json must say, and no tokenizer."""
    tensors = llama_weights(layers) if tensors is None else tensors
    llama(folder, tensors)
    (folder / "tokenizer.json").unlink()
    vocabulary, width = tensors["model.embed_tokens.weight"].shape
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": tensors["model.layers.0.self_attn.k_proj.weight"].shape[0]
        * 4
        // width,
        "intermediate_size": tensors["model.layers.0.mlp.up_proj.weight"].shape[0],
        "vocab_size": vocabulary,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder
