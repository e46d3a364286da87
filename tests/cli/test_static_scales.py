"""Static scales of activations from end to end: octavo calibrate, quantize, verify, eval."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny_model
from safetensors.numpy import load_file
from test_gptq import weights_of

# recipe, target, what a module's scale is called, and what it is of the largest input.
STATIC = [
    ("nvfp4", "compressed-tensors", "input_global_scale", lambda amax: 448 * 6 / amax),
    ("nvfp4", "modelopt", "input_scale", lambda amax: amax / (448 * 6)),
    ("fp8", "compressed-tensors", "input_scale", lambda amax: amax / 448),
    ("fp8", "modelopt", "input_scale", lambda amax: amax / 448),
    ("int8-channel", "compressed-tensors", "input_scale", lambda amax: amax / 127),
]
MODULES = [
    f"model.layers.{layer}.{part}"
    for layer in range(2)
    for part in (
        *(f"self_attn.{name}_proj" for name in "qkvo"),
        *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    )
]


@pytest.fixture
def model(octavo):
    tiny_model.runnable(octavo.folder / "model")
    ids = np.random.default_rng(0).integers(0, 64, 600).tolist()
    (octavo.folder / "ids.json").write_text(json.dumps(ids))
    text = ("--ids", "ids.json", "--window", "128")
    octavo.good("calibrate", "model", *text, "-o", "stats.safetensors", "--hessians", "none")
    return octavo


def number(stored: np.ndarray) -> float:
    """The one f32, or bf16, of a tensor's bytes."""
    data = stored.reshape(-1)
    return float(
        data.view("<f4")[0]
        if data.size == 4
        else (data.view("<u2").astype("<u4") << 16).view("<f4")[0]
    )


@pytest.mark.parametrize(("recipe", "target", "name", "scale_of"), STATIC)
def test_scales_are_those_of_the_statistics(model, recipe, target, name, scale_of):
    quantize = ("quantize", "model", "--recipe", recipe, "--target", target)
    model.good(
        *(*quantize, "-o", "out", "--input-scales", "statistics"),
        *("--statistics", "stats.safetensors"),
    )
    made, stats = weights_of(model.folder / "out"), load_file(model.folder / "stats.safetensors")
    for module in MODULES:
        wanted = scale_of(float(stats[f"{module}.amax"].max()))
        # Rounded to bf16, a loader's type: by 2^-9 of itself.
        assert number(made[f"{module}.{name}"]) == pytest.approx(wanted, rel=2**-8)
    seen = model.good("verify", "out", "--json").json
    assert seen["good"]
    assert any(one["loads"] for one in seen["loaders"].values())
    evaluate = ("eval", "out", "--against", "model", "--ids", "ids.json", "--json")
    if recipe == "int8-channel":  # servers do; octavo says so and does not guess
        model(*evaluate).refused(1, "8 bits of type 'int', strategy 'tensor'")
        return
    said = model.good(*evaluate).json
    static = next(one for one in said["models"] if not one["is_original"])["total"]["kl"]["value"]
    assert 0 < static < 0.1


def test_none_are_written_unless_asked_for(model):
    model.good("quantize", "model", "-o", "out", "--recipe", "nvfp4")
    made = weights_of(model.folder / "out")
    assert not [name for name in made if name.endswith(("input_scale", "input_global_scale"))]


def test_one_is_one(model):
    words = ("--recipe", "nvfp4", "--target", "modelopt", "--input-scales", "one")
    model.good("quantize", "model", "-o", "out", *words)
    made = weights_of(model.folder / "out")
    assert all(number(made[f"{module}.input_scale"]) == 1.0 for module in MODULES)
    model.good("verify", "out")


def test_another_models_statistics_are_refused(model):
    weights = tiny_model.llama_weights(seed=1)
    tiny_model.runnable(model.folder / "other", tensors=weights)
    refused = model(
        *("quantize", "other", "-o", "out", "--recipe", "nvfp4"),
        *("--input-scales", "statistics", "--statistics", "stats.safetensors"),
    )
    refused.refused(1, "stats.safetensors")
    assert not (model.folder / "out").exists()
