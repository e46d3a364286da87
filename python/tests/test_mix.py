"""quantize_checkpoint(budget=, fit=): recipes chosen by error."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import octavo as ov


@pytest.fixture
def model(tmp_path):
    """A layer of a Llama, half of its matrices with outliers."""
    rng = np.random.default_rng(1)
    tensors, at = {}, {}
    shapes = dict.fromkeys(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), (128, 128))
    shapes |= {"self_attn.o_proj": (128, 128), "mlp.gate_proj": (256, 128)}
    shapes |= {"mlp.up_proj": (256, 128), "mlp.down_proj": (128, 256)}
    for i, (name, shape) in enumerate(shapes.items()):
        values = rng.standard_normal(shape).astype(np.float32)
        if i % 2:
            values[rng.random(shape) < 0.01] *= 30
        tensors[f"model.layers.0.{name}.weight"] = values.view(np.uint32) >> 16
    header, end = {}, 0
    for name, bits in tensors.items():
        size = bits.size * 2
        header[name] = {"dtype": "BF16", "shape": bits.shape, "data_offsets": [end, end + size]}
        at[name], end = end, end + size
    text = json.dumps(header).encode()
    folder = tmp_path / "model"
    folder.mkdir()
    data = b"".join(bits.astype("<u2").tobytes() for bits in tensors.values())
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_budget_and_fit(model, tmp_path):
    report = ov.quantize_checkpoint(model, tmp_path / "a", budget=5)
    chosen = report.mix["chosen"]
    assert chosen["bits_per_weight"] <= 5 and report.bytes_after == chosen["bytes"]
    assert "How recipes were chosen" in report.html()
    again = ov.quantize_checkpoint(model, tmp_path / "b", fit=chosen["bytes"], threads=1)
    files = [Path(tmp_path, name, "model.safetensors").read_bytes() for name in "ab"]
    assert files[0] == files[1]
    assert again.mix["chosen"] == chosen
    text = ov.quantize_checkpoint(
        model, tmp_path / "c", budget="5bpw", candidates=["nvfp4", "mxfp8"]
    )
    assert text.mix["recipes"] == ["nvfp4", "mxfp8", "none"]
    assert {unit["recipe"] for unit in text.mix["units"]} <= {"nvfp4", "mxfp8"}


def test_dry_run_has_the_mix_and_the_plan(model):
    plan = ov.quantize_checkpoint(model, budget=4.5, dry_run=True)
    assert plan.verb == "plan" and plan.mix["chosen"]["bits_per_weight"] <= 4.5
    presets = {tensor["name"]: tensor["preset"] for tensor in plan.tensors if tensor["quantized"]}
    for unit in plan.mix["units"]:
        if unit["recipe"] != "none":
            assert presets[unit["name"] + ".weight"] == unit["recipe"]
    assert ov.quantize_checkpoint(model, recipe="nvfp4", dry_run=True).mix is None


def test_progress_can_stop_it(model, tmp_path):
    def stop(*_):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        ov.quantize_checkpoint(model, tmp_path / "out", budget=5, progress=stop)
    assert not (tmp_path / "out").exists()


def test_what_is_refused(model, tmp_path):
    def quantize(**words):
        return ov.quantize_checkpoint(model, tmp_path / "out", **words)

    for words, why in (
        ({"budget": 5, "fit": "1G"}, "got budget and fit"),
        ({"candidates": ["nvfp4"]}, "candidates without budget or fit"),
        ({"budget": "five"}, "bits per weight, such as 4.5bpw"),
        ({"budget": 0}, "bits per weight"),
        ({"fit": 0}, "expected a number of bytes above 0"),
        ({"budget": 3}, "the least that these recipes can is"),
        ({"budget": 5, "recipe": "nvfp4"}, "got the recipe 'nvfp4' and a budget"),
        ({"budget": 5, "delete_source": True}, "delete_source"),
        ({"budget": 5, "candidates": ["nvfp5"]}, "nvfp5"),
    ):
        with pytest.raises(ValueError, match=why):
            quantize(**words)
    with pytest.raises(TypeError, match=r"budget=\[5\]"):
        quantize(budget=[5])
    assert not (tmp_path / "out").exists()


def test_recipes_that_are_several(model, tmp_path):
    report = ov.quantize_checkpoint(model, tmp_path / "out", "attention-fp8")
    for tensor in report.tensors:
        attention = "self_attn" in tensor["name"]
        assert tensor["preset"] == ("fp8-channel" if attention else "nvfp4")
