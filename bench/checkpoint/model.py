"""A checkpoint shaped like a Llama, of random weights: `python -m bench.checkpoint.model DIR`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib

import numpy as np

POOL = 1 << 24  # random weights that tensors are cut from: the numbers matter, not that they differ


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    files: int

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


SHAPES = {
    "tiny": Shape(256, 512, 2, 4, 2, 1024, 1),
    "1.1b": Shape(2048, 5632, 22, 32, 4, 32000, 2),  # 2.2 GB of bf16
    "4b": Shape(3072, 8192, 32, 24, 8, 64000, 4),  # 8 GB of bf16
}


def tensors(shape: Shape) -> list[tuple[str, tuple[int, ...]]]:
    hidden, kv = shape.hidden, shape.kv_heads * shape.head_size
    out = [("model.embed_tokens.weight", (shape.vocabulary, hidden))]
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        out += [
            (prefix + "self_attn.q_proj.weight", (hidden, hidden)),
            (prefix + "self_attn.k_proj.weight", (kv, hidden)),
            (prefix + "self_attn.v_proj.weight", (kv, hidden)),
            (prefix + "self_attn.o_proj.weight", (hidden, hidden)),
            (prefix + "mlp.gate_proj.weight", (shape.intermediate, hidden)),
            (prefix + "mlp.up_proj.weight", (shape.intermediate, hidden)),
            (prefix + "mlp.down_proj.weight", (hidden, shape.intermediate)),
            (prefix + "input_layernorm.weight", (hidden,)),
            (prefix + "post_attention_layernorm.weight", (hidden,)),
        ]
    return [
        *out,
        ("model.norm.weight", (hidden,)),
        ("lm_head.weight", (shape.vocabulary, hidden)),
    ]


def config(shape: Shape) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


def write_file(path: pathlib.Path, part: list[tuple[str, tuple[int, ...]]], seed: int) -> int:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, sizes in part:
        size = 2 * int(np.prod(sizes))
        header[name] = {"dtype": "BF16", "shape": list(sizes), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(seed)
    pool = (random.standard_normal(POOL, dtype=np.float32) * 0.02).view(np.uint32)
    pool = (pool >> 16).astype(np.uint16)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, sizes in part:
            left = int(np.prod(sizes))
            while left > 0:
                start = int(random.integers(0, POOL // 2))
                piece = pool[start : start + min(left, POOL // 2)]
                file.write(piece.data)
                left -= len(piece)
    return at


def write_model(folder: pathlib.Path, shape: Shape) -> int:
    """Makes the folder; returns the bytes of all tensors."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config(shape), indent=2))
    all_tensors = tensors(shape)
    total = sum(2 * int(np.prod(sizes)) for _, sizes in all_tensors)
    parts: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in range(shape.files)]
    done = file = 0
    for name, sizes in all_tensors:
        # Not within a layer: model_free_ptq needs all parts of a fused matrix in one file.
        if not name.startswith("model.layers.") or name.endswith("self_attn.q_proj.weight"):
            file = min(shape.files - 1, done * shape.files // total)
        parts[file].append((name, sizes))
        done += 2 * int(np.prod(sizes))
    weight_map = {}
    for i, part in enumerate(parts):
        name = f"model-{i + 1:05}-of-{shape.files:05}.safetensors"
        name = name if shape.files > 1 else "model.safetensors"
        write_file(folder / name, part, i)
        weight_map |= {tensor: name for tensor, _ in part}
    if shape.files > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shape", choices=SHAPES, default="1.1b")
    arguments = parser.parse_args()
    print(write_model(arguments.folder, SHAPES[arguments.shape]), "bytes")
