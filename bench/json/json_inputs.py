"""JSON documents: what a large checkpoint brings along, and what a hostile one could."""

from __future__ import annotations

import json


def module_names(count: int) -> list[str]:
    """Weights of a mixture of experts, as DeepSeek-V3 names them."""
    names = []
    layer = 0
    while len(names) < count:
        prefix = f"model.layers.{layer}"
        names += [f"{prefix}.self_attn.{p}_proj.weight" for p in ("q_a", "q_b", "kv_b", "o")]
        names += [f"{prefix}.mlp.gate.weight", f"{prefix}.input_layernorm.weight"]
        for expert in range(256):
            names += [
                f"{prefix}.mlp.experts.{expert}.{p}_proj.weight" for p in ("gate", "up", "down")
            ]
        layer += 1
    return names[:count]


def safetensors_header(tensors: int) -> str:
    at = 0
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for name in module_names(tensors):
        header[name] = {"dtype": "BF16", "shape": [64, 128], "data_offsets": [at, at + 16384]}
        at += 16384
    return json.dumps(header, separators=(",", ":"))


def shard_index(tensors: int) -> str:
    files = [f"model-{i + 1:05d}-of-00163.safetensors" for i in range(163)]
    weight_map = {name: files[i * 163 // tensors] for i, name in enumerate(module_names(tensors))}
    index = {"metadata": {"total_size": tensors * 16384}, "weight_map": weight_map}
    return json.dumps(index, indent=2) + "\n"


# Modelled on Mamba-2's, whose time_step_limit is infinite, with digits that a double does not keep.
CONFIG = """{
  "architectures": [
    "Mamba2ForCausalLM"
  ],
  "bos_token_id": 0,
  "hidden_size": 4096,
  "layer_norm_epsilon": 1e-05,
  "initializer_range": 0.10,
  "n_groups": 8,
  "rope_theta": 1000000.0,
  "seed": 18446744073709551616,
  "time_step_limit": [
    0.0,
    Infinity
  ],
  "residual_in_fp32": true,
  "torch_dtype": "bfloat16",
  "_name": "mod\u00e8le",
  "auto_map": {
    "z": 1,
    "a": 2
  }
}"""
CONFIG_FINITE = CONFIG.replace("Infinity", "1e308")


def hostile() -> dict[str, bytes]:
    """Name of each case and its bytes."""
    deep, mega = 100_000, 1 << 20
    texts = {
        "duplicate key": '{"dtype": "F32", "dtype": "F8_E4M3"}',
        "duplicate key, one escaped": '{"a": 1, "\\u0061": 2}',
        "integer beyond int64": "[18446744073709551616]",
        "integer of 400 digits": "[" + "7" * 400 + "]",
        "fraction of 400 digits": "[0." + "7" * 400 + "]",
        "digits of 0.10 and -0": "[0.10, -0, 1E+2]",
        "1e999": "[1e999]",
        "1e-999": "[1e-999]",
        "NaN, Infinity": "[NaN, Infinity, -Infinity]",
        "lone surrogate": '["\\ud800"]',
        "control character": '["\n"]',
        "truncated": '{"a": [1, 2',
        "trailing garbage": '{"a": 1} x',
        "trailing comma": "[1, 2,]",
        "comment": "[1 /* one */]",
        "byte order mark": "\ufeff{}",
        "NUL, then garbage": "{}\0 garbage",
        "key order": '{"z": 1, "a": 2, "m": 3}',
        f"depth {deep}": "[" * deep + "]" * deep,
        f"depth {deep} of objects": '{"a":' * deep + "1" + "}" * deep,
        "depth 2^20, closed": "[" * mega + "]" * mega,
        "depth 2^20, open": "[" * mega,
        "string of 10 MB, open": '["' + "x" * 10_000_000,
        "number of 10 MB": "[" + "1" * 10_000_000 + "]",
        "2.2 million small numbers": "[" + "0," * 2_200_000 + "0]",
        "2.2 million empty arrays": "[" + "[]," * 2_200_000 + "0]",
        "200 000 keys": json.dumps({f"key{i}": i for i in range(200_000)}),
        "terminal escape in a word": "[tr\x1b[2Jue]",
    }
    cases = {name: text.encode() for name, text in texts.items()}
    cases["invalid UTF-8"] = b'["\xff\xfe"]'
    cases["overlong UTF-8"] = b'["\xc0\xaf"]'
    cases["surrogate in UTF-8"] = b'["\xed\xa0\x80"]'
    return cases


def python_verdict(data: bytes) -> str:
    """What json.loads says, with which transformers and vLLM read config.json."""
    try:
        value = json.loads(data.decode())
        again = json.dumps(value)
    except (ValueError, RecursionError) as error:
        return f"refused: {type(error).__name__}"
    return f"accepted: {again[:60]}"
