"""Every recipe and target that transformers loads, as docs/numerics/dialects.md has them."""

import json

import models
import pytest
import torch
from safetensors.torch import load_file

PAIRS = [
    ("compressed-tensors", "fp8", []),
    ("compressed-tensors", "fp8-channel", []),
    ("compressed-tensors", "int8-channel", []),
    ("compressed-tensors", "fp8-block", []),
    ("compressed-tensors", "mxfp8", []),
    ("compressed-tensors", "mxfp6", []),
    ("compressed-tensors", "mxfp4", []),
    ("compressed-tensors", "nvfp4", []),
    ("compressed-tensors", "int4", []),
    ("compressed-tensors", "int4", ["--tile", "32", "--scale-policy", "mse"]),
    ("deepseek", "fp8-block", []),
    ("deepseek", "fp8-block", ["--scale-rule", "rceil"]),
    ("deepseek", "mxfp8", []),
]
# transformers cannot merge these experts, llm-compressor's neither; `octavo verify` reports it.
NOT_AS_EXPERTS = {
    ("compressed-tensors", "fp8-block"),
    ("compressed-tensors", "mxfp8"),
    ("compressed-tensors", "nvfp4"),
}


@pytest.mark.parametrize(("target", "recipe", "more"), PAIRS)
def test_logits_are_those_of_the_dequantized_model(model, target, recipe, more, tmp_path):
    quantized, plain = tmp_path / "quantized", tmp_path / "plain"
    # Experts of NVFP4 load as something else, without an error, of which quantize exits with 1.
    silent = model.name == "moe" and recipe == "nvfp4"
    words = [model, "-o", quantized, "--recipe", recipe, "--target", target, *more]
    models.octavo("quantize", *words, codes=(1,) if silent else (0,))
    if model.name == "moe" and (target, recipe) in NOT_AS_EXPERTS:
        done = models.verdict(quantized)
        assert any(line["loader"] == "transformers" for line in done)
        return
    models.octavo("dequantize", quantized, "-o", plain, "--dtype", "bf16")
    weights_only = models.without_activations(quantized, tmp_path / "weights-only")
    loaded, wanted = models.logits(weights_only), models.logits(plain)
    # Codes have at most seven significant bits (INT8, FP8 four) and scales eight (bf16) or one:
    # their product is exact in f32, and rounds to bf16 in one way. NVFP4's scale is a product or
    # quotient of three numbers, which the loader rounds to f32 and then to bf16 before it
    # multiplies: weights may differ by an ulp of bf16, 2^-8 of themselves, and logits by no more
    # than some of that.
    assert models.relative(loaded, wanted) <= (2**-7 if recipe == "nvfp4" else 0)
    # With dynamic activation quantization as in a server the logits are still close to the model's.
    source = models.logits(model)
    assert models.relative(models.logits(quantized), source) < (0.3 if "4" in recipe else 0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    "recipe", ["fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp6", "mxfp4", "nvfp4"]
)
def test_models_of_other_types_compute(recipe, dtype, tmp_path):
    """With the dtype that config.json says, as a caller that loads a model by its name has it."""
    source = models.make("llama", tmp_path / "model", dtype=dtype)
    models.octavo("quantize", source, "-o", tmp_path / "q", "--recipe", recipe)
    assert not [one for one in models.verdict(tmp_path / "q") if one["loader"] == "transformers"]
    error = models.relative(models.logits(tmp_path / "q", dtype="auto"), models.logits(source))
    assert error < (0.3 if "4" in recipe else 0.1)


MIXED = [
    ("fp8-channel", "nvfp4"),
    ("nvfp4", "mxfp8"),
    ("mxfp4", "fp8-block"),
    ("mxfp8", "fp8"),
    ("mxfp6", "mxfp4"),
    ("int4", "nvfp4"),
    ("mxfp8", "int4"),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("recipe", "other"), MIXED)
def test_mixed_recipes_compute(recipe, other, dtype, tmp_path):
    """Any pair of recipes does, with transformers 5.17 and compressed-tensors 0.20."""
    source = models.make("llama", tmp_path / "model", dtype=dtype)
    words = ["--recipe", recipe, "--recipe-for", f"down_proj={other}"]
    models.octavo("quantize", source, "-o", tmp_path / "q", *words)
    assert not [one for one in models.verdict(tmp_path / "q") if one["loader"] == "transformers"]
    error = models.relative(models.logits(tmp_path / "q", dtype="auto"), models.logits(source))
    assert error < (0.3 if "4" in recipe + other else 0.1)


def test_a_mix_within_a_budget_is_the_dequantized_model(tmp_path):
    """A folder of several recipes as --budget chooses them, run."""
    source = models.make("llama", tmp_path / "model")
    words = ["--budget", "6bpw", "--target", "compressed-tensors"]
    models.octavo("quantize", source, "-o", tmp_path / "q", *words)
    said = json.loads((tmp_path / "q" / "config.json").read_text())["quantization_config"]
    assert len(said["config_groups"]) > 1
    assert not [one for one in models.verdict(tmp_path / "q") if one["loader"] == "transformers"]
    models.octavo("dequantize", tmp_path / "q", "-o", tmp_path / "plain", "--dtype", "bf16")
    weights_only = models.without_activations(tmp_path / "q", tmp_path / "weights-only")
    loaded, wanted = models.logits(weights_only), models.logits(tmp_path / "plain")
    # As above: NVFP4's weights may differ by an ulp of bf16.
    assert models.relative(loaded, wanted) <= 2**-7
    assert models.relative(models.logits(tmp_path / "q"), models.logits(source)) < 0.3


@pytest.mark.parametrize(
    ("recipe", "suffix", "most"),
    [("nvfp4", "input_global_scale", 448 * 6), ("fp8", "input_scale", 448)]
    + [("int8-channel", "input_scale", 127)],
)
def test_static_scales_of_statistics_load(recipe, suffix, most, tmp_path):
    """Calibrated, quantized with activations (NVFP4: W4A4), verified, loaded and run."""
    source = models.make("llama", tmp_path / "model")
    ids = torch.randint(0, models.SIZES["vocab_size"], (1024,)).tolist()
    (tmp_path / "ids.json").write_text(json.dumps(ids))
    stats = tmp_path / "stats.safetensors"
    text = ["--ids", tmp_path / "ids.json", "--window", 128]
    models.octavo("calibrate", source, "-o", stats, *text, "--hessians", "none")
    words = ["--recipe", recipe, "--input-scales", "statistics", "--statistics", stats]
    models.octavo("quantize", source, "-o", tmp_path / "q", *words)
    assert not [one for one in models.verdict(tmp_path / "q") if one["loader"] == "transformers"]
    # What the loader has is what the statistics say, up to bf16's rounding.
    model = models.loaded(tmp_path / "q")
    seen, amaxes = dict(model.named_parameters()) | dict(model.named_buffers()), load_file(stats)
    module = "model.layers.1.mlp.down_proj"
    amax = amaxes[f"{module}.amax"].max().item()
    wanted = most / amax if recipe == "nvfp4" else amax / most
    assert seen[f"{module}.{suffix}"].float().item() == pytest.approx(wanted, rel=2**-7)
    error = models.relative(models.logits(tmp_path / "q"), models.logits(source))
    assert 0 < error < (0.4 if recipe == "nvfp4" else 0.15)
