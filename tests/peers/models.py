"""Tiny models with random weights, and helpers of the tests that quantize and load them."""

import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = pathlib.Path(os.environ.get("OCTAVO_TEXT", "/usr/share/common-licenses/GPL-3"))
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


# Logits relative to the largest. Both compute in f32 (u = 6e-8) and sum in different orders: a
# product of K terms is off by at most (K + 8) u of the sum of their magnitudes, 3e-5 of K = 512,
# and by sqrt(K) u, 1e-6, where errors are of either sign, as they are. A mistake in a formula
# changes logits by more than 1e-3.
TOLERANCE = 1e-4
# Those whose target is compressed-tensors.
RECIPES = (
    "fp8", "fp8-channel", "fp8-block", "int8-channel", "mxfp8", "mxfp6", "mxfp4", "nvfp4", "int4"
)  # fmt: skip


def tolerance_of(recipe, layers):
    """Of NVFP4 the peer rounds the product of a weight's two scales to bf16, and the weight: each
    may be an ulp of bf16 off, 2^-8 of itself, of either sign, in four products of each layer."""
    return 2**-8 * (4 * layers) ** 0.5 if recipe == "nvfp4" else TOLERANCE


def logits_in_f32(folder, prompts):
    """Weights are decoded as they are read: where products do it, some recipes get bf16."""
    more = {}
    if "quantization_config" in json.loads((pathlib.Path(folder) / "config.json").read_text()):
        more["quantization_config"] = transformers.CompressedTensorsConfig(run_compressed=False)
    loader = transformers.AutoModelForCausalLM
    model = loader.from_pretrained(folder, dtype=torch.float32, **more).float().eval()
    with torch.no_grad():
        return [model(torch.tensor([ids])).logits[0].numpy() for ids in prompts]


def logits_of_recipe(octavo_package, source, folder, recipe, prompts, more=()):
    """Of a quantized model by octavo and by transformers, and by transformers with its inputs as
    they are, not quantized; the last is None where the recipe quantizes weights alone. The source
    is float32: of another one the peer decodes weights to its type, with a rounding more."""
    folder.mkdir()
    words = ["--recipe", recipe, "--target", "compressed-tensors", *more]
    octavo("quantize", source, "-o", folder / "q", *words)
    model = octavo_package.load_model(folder / "q")
    got, wanted = [model.logits(ids) for ids in prompts], logits_in_f32(folder / "q", prompts)
    config = json.loads((folder / "q" / "config.json").read_text())["quantization_config"]
    if not any(group["input_activations"] for group in config["config_groups"].values()):
        return got, wanted, None
    weights_only = without_activations(folder / "q", folder / "weights-only")
    return got, wanted, logits_in_f32(weights_only, prompts)


def check_quantized_inputs(got, wanted, weights_only):
    """The two round inputs that differ in their last bits. One that lies between two codes may go
    either way, and then more of the next layer's do; in the end the codes of both are independent
    roundings of the same numbers: as far from the logits of unrounded inputs, and from each other
    no farther than two independent errors are. Of the squared errors of n tokens, which are about
    as large as they differ, the mean is known to 1 / sqrt(n), so norms are to 7 % of 48 tokens."""
    got, wanted, plain = map(np.concatenate, (got, wanted, weights_only))
    error, ours, theirs = (
        np.linalg.norm(a - b) for a, b in ((got, wanted), (got, plain), (wanted, plain))
    )
    both = (ours**2 + theirs**2) ** 0.5
    print(f"apart by {error / both:.2f} of two errors; ours is {ours / theirs:.2f} of the peer's")
    assert error <= 1.2 * both  # three times 7 %
    assert 0.8 * theirs <= ours <= 1.2 * theirs


def verdict(folder):
    """The findings of `octavo verify`."""
    words = [PROGRAM, "verify", str(folder), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["findings"]
