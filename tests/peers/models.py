"""Tiny models with random weights, and helpers of the tests that quantize and load them."""

import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("OCTAVO_PROGRAM", str(ROOT / "build" / "release" / "bin" / "octavo"))

SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
}


def make(kind, folder, seed=0, dtype=torch.bfloat16):
    """A model of a kind, saved as its authors would save it."""
    torch.manual_seed(seed)
    if kind == "llama":
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    else:
        config = transformers.Qwen3MoeConfig(
            **SIZES, head_dim=64, moe_intermediate_size=128, num_experts=4, num_experts_per_tok=2
        )
        model = transformers.Qwen3MoeForCausalLM(config)
    model.to(dtype).save_pretrained(folder)
    return folder


def package():
    """The Python package that `make release` builds, or the one that OCTAVO_PACKAGE names."""
    built = os.environ.get("OCTAVO_PACKAGE", str(ROOT / "build" / "release" / "package"))
    sys.path.insert(0, built)
    return importlib.import_module("octavo")


def octavo(*arguments, codes=(0,)):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode in codes, done.stderr
    return done.stdout


def loaded(folder, **more):
    """In bf16, unless another dtype is given; "auto" is what config.json says."""
    more = {"dtype": torch.bfloat16} | more
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **more).eval()


def logits(folder, **more):
    model = loaded(folder, **more)
    ids = torch.randint(0, SIZES["vocab_size"], (2, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(ids).logits.float()


def without_activations(folder, copy):
    """The same weights without activation quantization: the error left is that of the weights."""
    shutil.copytree(folder, copy)
    path = pathlib.Path(copy) / "config.json"
    config = json.loads(path.read_text())
    for group in config["quantization_config"].get("config_groups", {}).values():
        group["input_activations"] = None
    path.write_text(json.dumps(config))
    return copy


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def verdict(folder):
    """The findings of `octavo verify`."""
    words = [PROGRAM, "verify", str(folder), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["findings"]
