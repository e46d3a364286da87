"""octavo verify: changed scales are seen, exit codes, and what quantize says of its own output."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

RECIPES = ["fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp4", "nvfp4"]


@pytest.fixture
def model(octavo):
    return tiny_model.llama(octavo.folder / "model", tiny_model.llama_weights(4))


def change(folder: Path, suffix: str, edit) -> None:
    """Edits the tensors whose names end so, in place, as numbers of their own type."""
    file = folder / "model.safetensors"
    whole = bytearray(file.read_bytes())
    begin = 8 + int.from_bytes(whole[:8], "little")
    types = {"F32": "<f4", "U8": "u1", "F8_E4M3": "u1", "BF16": "<u2"}
    for name, entry in json.loads(whole[8:begin]).items():
        if name == "__metadata__" or not name.endswith(suffix):
            continue
        first, last = (begin + offset for offset in entry["data_offsets"])
        numbers = np.frombuffer(bytes(whole[first:last]), types[entry["dtype"]])
        whole[first:last] = edit(numbers).astype(numbers.dtype).tobytes()
    file.write_bytes(whole)


def multiply(folder: Path, recipe: str, octaves: int, where: str = "") -> None:
    """Scales of the modules whose names end so, times a power of two."""
    if recipe in ("mxfp8", "mxfp4"):
        change(folder, f"{where}.weight_scale", lambda scales: scales.astype(int) + octaves)
    elif recipe == "nvfp4":  # a divisor
        change(folder, f"{where}.weight_global_scale", lambda g: g * 2.0**-octaves)
    else:
        change(folder, f"{where}.weight_scale", lambda scales: scales * 2.0**octaves)


def overwrite(folder: Path, where: str) -> None:
    change(folder, f"{where}.weight_scale", lambda s: np.full_like(s, np.float64(s).mean()))


def forget_sums(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["octavo"]["sums"]
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("recipe", RECIPES)
def test_any_change_shows_in_the_sums(octavo, model, recipe):
    octavo.good("quantize", "model", "-o", "out", "--recipe", recipe)
    out = octavo.folder / "out"
    assert "sums:" not in octavo.good("verify", "out").out
    whole = (out / "model.safetensors").read_bytes()
    for edit in (
        lambda: multiply(out, recipe, 1, "layers.1.mlp.up_proj"),
        lambda: multiply(out, recipe, -8),
        lambda: overwrite(out, "layers.2.mlp.down_proj") if recipe != "fp8" else change(
            out, "model.norm.weight", lambda bits: bits ^ 1),
    ):  # fmt: skip
        edit()
        seen = octavo("verify", "out")
        assert seen.code == 1 and "sums: the data of 'model.safetensors'" in seen.out
        assert "loads in" not in seen.out
        against = octavo("verify", "out", "--against", "model", "--json")
        assert against.code == 1
        assert any(one["rule"] == "against" for one in against.json["findings"])
        (out / "model.safetensors").write_bytes(whole)
    octavo.good("verify", "out", "--against", "model")


@pytest.mark.parametrize("recipe", RECIPES)
def test_far_changes_show_without_sums(octavo, model, recipe):
    octavo.good("quantize", "model", "-o", "out", "--recipe", recipe)
    out = octavo.folder / "out"
    forget_sums(out)
    octavo.good("verify", "out")
    whole = (out / "model.safetensors").read_bytes()
    for octaves in (2, 4, 6, -4, -8):
        multiply(out, recipe, octaves, "layers.1.mlp.up_proj")
        seen = octavo("verify", "out")
        assert seen.code == 1 and "plausible: model.layers.1.mlp.up_proj" in seen.out, octaves
        (out / "model.safetensors").write_bytes(whole)
    for octaves in (4, 6, -4, -8):
        multiply(out, recipe, octaves)
        seen = octavo("verify", "out")
        assert seen.code == 1 and "were all scales changed?" in seen.out, octaves
        (out / "model.safetensors").write_bytes(whole)
    if recipe in ("fp8", "fp8-block"):  # one scale, and 4 to 8: too few to tell
        return
    overwrite(out, "layers.1.mlp.up_proj")
    seen = octavo("verify", "out")
    assert seen.code == 1 and "were scales overwritten?" in seen.out


def test_against_names_the_weight_and_the_factor(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    out = octavo.folder / "out"
    forget_sums(out)
    multiply(out, "fp8-channel", 1, "layers.1.mlp.up_proj")
    change(out, "model.norm.weight", lambda bits: bits ^ 1)
    octavo.good("verify", "out")  # too little to be seen alone
    seen = octavo("verify", "out", "--against", "model")
    assert seen.code == 1
    assert "against: model.layers.1.mlp.up_proj.weight: 131" in seen.out
    assert "all together they are " in seen.out and "times the model's" in seen.out
    assert "against: model.norm.weight: 256 of 256 values are not the model's" in seen.out
    octavo("verify", "out", "--against", "nowhere").refused(1, "nowhere")
    other = tiny_model.llama(octavo.folder / "other", tiny_model.llama_weights(4, seed=1))
    assert octavo("verify", "out", "--against", other).code == 1


def test_sglang_has_mxfp4_for_experts_alone(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "mxfp4")
    seen = octavo.good("verify", "out").out
    assert "loads in       vllm, transformers, trtllm\n" in seen and "does not load: sglang" in seen
    assert octavo("verify", "out", "--for", "sglang").code == 1


def test_one_loader_is_enough_unless_it_is_named(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "mxfp8")
    seen = octavo.good("verify", "out").out
    assert "loads in       vllm, transformers\n" in seen and "does not load: sglang" in seen
    octavo.good("verify", "out", "--for", "vllm,transformers")
    assert octavo("verify", "out", "--for", "vllm,sglang").code == 1
    assert octavo("verify", "out", "--strict").code == 1


def test_what_loads_wrong_without_a_word_is_not_good(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-block", "--target", "modelopt")
    octavo.good("verify", "out")
    config = octavo.folder / "out" / "config.json"
    words = json.loads(config.read_text())
    del words["quantization_config"]  # hf_quant_config.json says it, which transformers ignores
    config.write_text(json.dumps(words))
    assert "loads in       vllm" in octavo("verify", "out").out
    assert octavo("verify", "out").code == 1
    octavo.good("verify", "out", "--for", "vllm")


@pytest.mark.parametrize("target", ["octavo", "comfyui"])
def test_dialects_of_one_program(octavo, model, target):
    shown = octavo.good("quantize", "model", "-o", "out", "--recipe", "mxfp8", "--target", target)
    assert f"loads in       {target}\n" in shown.out
    octavo.good("verify", "out", "--for", target)
    assert octavo("verify", "out", "--for", "vllm").code == 1
    octavo.good("quantize", "model", "-o", "ct", "--recipe", "mxfp8")
    octavo.good("verify", "ct", "--for", "octavo")
    assert octavo("verify", "ct", "--for", "comfyui").code == 1


def test_mxfp8_of_deepseek_stops_at_the_scale_in_vllm(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "mxfp8", "--target", "deepseek")
    seen = octavo("verify", "out", "--for", "vllm")
    assert seen.code == 1 and "stops at 'weight_scale_inv'" in seen.out


def test_quantize_says_what_verify_says(octavo, model):
    shown = octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel").out
    assert "which tensors a 'llama' has is known" in shown
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"model_type": "new"}))
    shown = octavo.good("quantize", "model", "-o", "b", "--recipe", "fp8-channel").out
    assert "which tensors a 'new' has is not known, and was not checked" in shown
    told = octavo.good("quantize", "model", "-o", "c", "--recipe", "fp8-channel", "--json").json
    assert told["verified"]["good"] and not told["verified"]["checked"]["architecture"]


def test_quantize_fails_where_verify_does(octavo):
    tensors = tiny_model.llama_weights(4)
    del tensors["model.layers.3.self_attn.o_proj.weight"]
    tiny_model.llama(octavo.folder / "model", tensors)
    made = octavo("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    assert made.code == 1 and "does not load" in made.out and "octavo verify out" in made.err
    assert octavo("verify", "out").code == 1
    bad = tiny_model.llama_weights(4)
    bad["lm_head.weight"][3, 5] = 0x7FC0
    tiny_model.llama(octavo.folder / "nan", bad)
    made = octavo("quantize", "nan", "-o", "b", "--recipe", "fp8-channel")
    assert made.code == 1 and "values: 1 of its values are NaN" in made.out
    assert octavo("verify", "b").code == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 2**62),
        ("num_attention_heads", 0),
        ("hidden_size", -256),
        ("num_key_value_heads", "four"),
        ("architectures", ["MixtralForCausalLM"]),
    ],
)
def test_nonsense_in_the_config_is_refused_before_work(octavo, model, key, value):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {key: value}))
    octavo("quantize", "model", "-o", "out").refused(1, "config.json", key, "target octavo")
    octavo("quantize", "model", "--dry-run").refused(1, key)
    assert octavo.files() == {"model"}
    octavo.good("quantize", "model", "-o", "out", "--target", "octavo")


def narrow(octavo, layers=2):
    """A model whose width is no multiple of 128; 576 is SmolLM2's."""
    tensors = tiny_model.llama_weights(layers, width=192)
    return tiny_model.llama(octavo.folder / "model", tensors)


def test_the_default_recipe_fits_the_model(octavo, model):
    assert octavo.good("quantize", "model", "--dry-run", "--json").json["recipe"] == "fp8-block"
    made = octavo.good("quantize", "model", "-o", "out", "--json").json
    assert made["recipe"] == "fp8-block" and made["notes"] == []


def test_the_default_recipe_of_a_narrow_model(octavo):
    narrow(octavo)
    made = octavo.good("quantize", "model", "-o", "out", "--json").json
    assert made["recipe"] == "fp8-channel"
    assert made["notes"][0].startswith(
        "recipe fp8-channel was chosen for this model: fp8-block wou"
    )
    assert sum("metrics" in tensor for tensor in made["tensors"]) == 14
    assert made["bytes_after"] < 0.6 * made["bytes_before"]
    again = octavo.good("quantize", "model", "-o", "out", "--resume")
    assert "is complete" in again.err
    # A target with one recipe says what else there is.
    plan = octavo.good("quantize", "model", "--target", "deepseek", "--dry-run", "--json").json
    assert plan["recipe"] == "fp8-block" and "use recipe mxfp8" in plan["notes"][0]
    assert octavo.good("quantize", "model", "--target", "comfyui", "--dry-run", "--json").json[
        "recipe"
    ] == "fp8"  # fmt: skip


def test_an_explicit_recipe_that_leaves_most_of_it(octavo):
    narrow(octavo)
    made = octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-block")
    first = next(line for line in made.out.splitlines() if "note:" in line)
    assert "recipe fp8-block leaves 12 of 14 weights" in first
    assert "use recipe fp8-channel, which leaves none" in first


def wide(octavo, **more):
    """The same model in float32."""
    tensors = {
        name: (bits.astype("<u4") << 16).view("<f4")
        for name, bits in tiny_model.llama_weights().items()
    }
    folder = tiny_model.llama(octavo.folder / "model", tensors)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | more))
    return folder


@pytest.mark.parametrize("said", [{"torch_dtype": "float32"}, {"dtype": "float16"}, {}])
@pytest.mark.parametrize("recipe", RECIPES)
def test_dtype_is_what_transformers_computes_in(octavo, recipe, said):
    """MX and NVFP4 weights are decoded to bfloat16 there, and no product takes two types."""
    wide(octavo, **said)
    made = octavo.good("quantize", "model", "-o", "out", "--recipe", recipe)
    config = octavo.folder / "out" / "config.json"
    words = json.loads(config.read_text())
    if recipe.startswith("fp8"):
        assert said.items() <= words.items() and "bfloat16" not in made.out
        return
    key = next(iter(said), "dtype")
    assert words[key] == "bfloat16" and "note: config.json says dtype bfloat16, instead" in made.out
    config.write_text(json.dumps(words | {key: "float32"}))
    seen = octavo("verify", "out", "--for", "transformers")
    assert seen.code == 1 and "stops in the first product" in seen.out
    octavo.good("verify", "out", "--for", "vllm")
