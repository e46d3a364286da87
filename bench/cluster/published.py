"""Models of a trillion parameters as sparse files: headers are real, data are holes. Names and
shapes follow from the published configs."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = 128  # of the FP8 checkpoints' scales
BYTES = {"BF16": 2, "F8_E4M3": 1, "F32": 4}
Tensor = tuple[str, str, tuple[int, ...]]


@dataclass(frozen=True)
class Model:
    """The numbers of a config.json of the DeepSeek-V3 family."""

    name: str
    files: int
    experts: int
    heads: int
    dense_layers: int
    vocabulary: int
    fp8: bool = True
    extra_layer: bool = False  # multi-token prediction
    layers: int = 61
    hidden: int = 7168
    dense: int = 18432
    expert: int = 2048
    q_rank: int = 1536
    kv_rank: int = 512
    nope: int = 128
    rope: int = 64
    value: int = 128

    def config(self) -> dict[str, object]:
        config: dict[str, object] = {
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "n_routed_experts": self.experts,
            "num_attention_heads": self.heads,
            "moe_intermediate_size": self.expert,
            "intermediate_size": self.dense,
            "first_k_dense_replace": self.dense_layers,
            "vocab_size": self.vocabulary,
            "torch_dtype": "bfloat16",
        }
        if self.fp8:
            config["quantization_config"] = {
                "activation_scheme": "dynamic",
                "fmt": "e4m3",
                "quant_method": "fp8",
                "weight_block_size": [BLOCK, BLOCK],
            }
        return config

    def matrix(self, name: str, rows: int, cols: int) -> Iterator[Tensor]:
        if not self.fp8:
            yield f"{name}.weight", "BF16", (rows, cols)
            return
        yield f"{name}.weight", "F8_E4M3", (rows, cols)
        yield f"{name}.weight_scale_inv", "F32", (-(-rows // BLOCK), -(-cols // BLOCK))

    def mlp(self, at: str, width: int) -> Iterator[Tensor]:
        yield from self.matrix(f"{at}.gate_proj", width, self.hidden)
        yield from self.matrix(f"{at}.up_proj", width, self.hidden)
        yield from self.matrix(f"{at}.down_proj", self.hidden, width)

    def layer(self, index: int) -> Iterator[Tensor]:
        at = f"model.layers.{index}"
        attention = f"{at}.self_attn"
        yield from self.matrix(f"{attention}.q_a_proj", self.q_rank, self.hidden)
        yield f"{attention}.q_a_layernorm.weight", "BF16", (self.q_rank,)
        wide = self.heads * (self.nope + self.rope)
        yield from self.matrix(f"{attention}.q_b_proj", wide, self.q_rank)
        both = self.kv_rank + self.rope
        yield from self.matrix(f"{attention}.kv_a_proj_with_mqa", both, self.hidden)
        yield f"{attention}.kv_a_layernorm.weight", "BF16", (self.kv_rank,)
        values = self.heads * (self.nope + self.value)
        yield from self.matrix(f"{attention}.kv_b_proj", values, self.kv_rank)
        yield from self.matrix(f"{attention}.o_proj", self.hidden, self.heads * self.value)
        if index < self.dense_layers:
            yield from self.mlp(f"{at}.mlp", self.dense)
        else:
            yield f"{at}.mlp.gate.weight", "BF16", (self.experts, self.hidden)
            yield f"{at}.mlp.gate.e_score_correction_bias", "F32", (self.experts,)
            for expert in range(self.experts):
                yield from self.mlp(f"{at}.mlp.experts.{expert}", self.expert)
            yield from self.mlp(f"{at}.mlp.shared_experts", self.expert)
        yield f"{at}.input_layernorm.weight", "BF16", (self.hidden,)
        yield f"{at}.post_attention_layernorm.weight", "BF16", (self.hidden,)

    def tensors(self) -> Iterator[Tensor]:
        yield "model.embed_tokens.weight", "BF16", (self.vocabulary, self.hidden)
        for index in range(self.layers):
            yield from self.layer(index)
        if self.extra_layer:
            yield from self.layer(self.layers)
            at = f"model.layers.{self.layers}"
            yield f"{at}.embed_tokens.weight", "BF16", (self.vocabulary, self.hidden)
            yield f"{at}.enorm.weight", "BF16", (self.hidden,)
            yield f"{at}.hnorm.weight", "BF16", (self.hidden,)
            yield f"{at}.eh_proj.weight", "BF16", (self.hidden, 2 * self.hidden)
            yield f"{at}.shared_head.norm.weight", "BF16", (self.hidden,)
            yield f"{at}.shared_head.head.weight", "BF16", (self.vocabulary, self.hidden)
        yield "model.norm.weight", "BF16", (self.hidden,)
        yield "lm_head.weight", "BF16", (self.vocabulary, self.hidden)


DEEPSEEK = {"experts": 256, "heads": 128, "dense_layers": 3, "vocabulary": 129280}
KIMI = {"experts": 384, "heads": 64, "dense_layers": 1, "vocabulary": 163840}
MODELS = [
    Model("DeepSeek-V3", files=163, extra_layer=True, **DEEPSEEK),
    Model("Kimi-K2", files=61, **KIMI),
    Model("Kimi-K2-bf16", files=412, fp8=False, **KIMI),
]


def nbytes(tensor: Tensor) -> int:
    total = BYTES[tensor[1]]
    for size in tensor[2]:
        total *= size
    return total


def write(model: Model, folder: Path) -> int:
    """Writes the sparse files; returns the bytes of all tensors."""
    folder.mkdir(parents=True)
    tensors = list(model.tensors())
    total = sum(map(nbytes, tensors))
    shards: list[list[Tensor]] = [[]]
    filled = 0
    for tensor in tensors:
        if filled >= total * len(shards) / model.files:
            shards.append([])
        shards[-1].append(tensor)
        filled += nbytes(tensor)
    where = {}
    for index, shard in enumerate(shards):
        name = f"model-{index + 1:05}-of-{len(shards):06}.safetensors"
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        at = 0
        for tensor in sorted(shard, key=lambda one: -BYTES[one[1]]):
            end = at + nbytes(tensor)
            header[tensor[0]] = {"dtype": tensor[1], "shape": tensor[2], "data_offsets": [at, end]}
            where[tensor[0]] = name
            at = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + at)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(model.config(), indent=2))
    return total
