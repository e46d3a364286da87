"""Checkpoints that are not what they say: indexes, configs and tensors that lie or are missing."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402


@pytest.fixture
def model(octavo):
    return tiny_model.llama(octavo.folder / "model")


def without(octavo, *ends, layers=(0, 1)):
    """A model whose layers lack what ends so, quantized."""
    tensors = tiny_model.llama_weights()
    for layer in layers:
        for end in ends:
            del tensors[f"model.layers.{layer}.{end}"]
    tiny_model.llama(octavo.folder / "model", tensors)
    octavo("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    return octavo("verify", "out")


@pytest.mark.parametrize("layers", [(0, 1), (0,), (1,)])
@pytest.mark.parametrize("end", ["mlp.up_proj.weight", "post_attention_layernorm.weight"])
def test_tensors_that_layers_lack(octavo, end, layers):
    result = without(octavo, end, layers=layers)
    assert result.code == 1 and "loads in" not in result.out
    for layer in layers:
        assert f"architecture: model.layers.{layer}.{end}: it is missing" in result.out


def changed(octavo, change):
    config = octavo.folder / "out" / "config.json"
    words = json.loads(config.read_text())
    change(words)
    config.write_text(json.dumps(words))
    return octavo("verify", "out")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda c: c.pop("model_type"), "config"),
        (lambda c: c.pop("architectures"), "config"),
        (lambda c: c.update(hidden_size=512), "shapes"),
        (lambda c: c["quantization_config"].update(format="int-quantized"), "declared-keys"),
        (lambda c: group(c)["weights"].update(dynamic=True), "declared-keys"),
        (lambda c: group(c)["weights"].update(num_bits=4), "declared-scheme"),
        (lambda c: group(c)["input_activations"].update(num_bits=4), "declared-keys"),
    ],
)
def test_inconsistent_configs(octavo, model, change, rule):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    octavo.good("verify", "out")
    assert f"{rule}: " in changed(octavo, change).out
    result = octavo("verify", "out", "--for", "vllm")
    assert result.code == 1 and f"{rule}: " in result.out, result.out


def group(config):
    return config["quantization_config"]["config_groups"]["group_0"]


def test_inconsistent_fmt(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-block", "--target", "deepseek")
    result = changed(octavo, lambda c: c["quantization_config"].update(fmt="e5m2"))
    assert result.code == 1 and "fmt 'e5m2'" in result.out


def test_nan_in_a_norm(octavo):
    weights = tiny_model.llama_weights()
    norm = "model.layers.1.input_layernorm.weight"
    weights[norm] = weights[norm].copy()
    weights[norm][7] = 0x7FC0
    tiny_model.llama(octavo.folder / "model", weights)
    assert octavo("quantize", "model", "-o", "out", "--recipe", "fp8-channel").code == 1
    for more in ([], ["--no-codes"]):
        result = octavo("verify", "out", *more)
        assert result.code == 1 and f"values: {norm}: 1 of its values are NaN" in result.out


def test_indexes_that_leave_shards_out(octavo):
    folder = tiny_model.llama(octavo.folder / "model", shards=3)
    index = folder / "model.safetensors.index.json"
    words = json.loads(index.read_text())
    second = "model-00002-of-00003.safetensors"
    kept = {name: file for name, file in words["weight_map"].items() if file != second}
    for weights in (kept, {}):
        index.write_text(json.dumps(words | {"weight_map": weights}))
        for command in (
            ["quantize", "model", "-o", "out"],
            ["verify", "model"],
            ["inspect", "model"],
        ):
            octavo(*command).refused(1, "model.safetensors.index.json")
    index.unlink()
    for name in ("model-00002-of-00003", "model-00003-of-00003"):
        (folder / f"{name}.safetensors").unlink()
    octavo("quantize", "model", "-o", "out").refused(1, "1 of 3 files")
    assert octavo.files() == {"model"}


@pytest.mark.parametrize("text", ["[1, 2]", "null", "3", '"x"'])
def test_a_config_that_is_no_object(octavo, model, text):
    (model / "config.json").write_text(text)
    for command in (["quantize", "model", "-o", "out"], ["verify", "model"], ["inspect", "model"]):
        octavo(*command).refused(1, "config.json holds no JSON object", "model")
    assert octavo.files() == {"model"}


def test_help_names_the_recipe_that_is_taken(octavo, model):
    shown = " ".join(octavo.good("quantize", "--help").out.split())
    assert "default for checkpoints: fp8-block" in shown
    report = octavo.good("quantize", "model", "-o", "out", "--json").json
    assert report["recipe"] == "fp8-block"


def test_options_are_flags_on_the_command_line(octavo, model):
    shown = octavo.good("quantize", "model", "--dry-run", "--exclude", "dwon").out
    assert "--exclude: 'dwon' is found in no tensor's name" in shown
    octavo("quantize", "model", "-o", "out", "--include", "dwon").refused(2, "--include: 'dwon'")
    octavo("quantize", "model", "-o", "out", "--include", "q_proj").refused(1, "(--include)")
    octavo("quantize", "model", "-o", "out", "--exclude", "(").refused(2, "--exclude: ")


def test_advice_can_be_followed(octavo, model):
    arguments = ["--recipe", "nvfp4", "--target", "comfyui", "--json"]
    report = octavo.good("quantize", "model", "-o", "out", *arguments).json
    advised = {t["advice"].split()[0] for t in report["tensors"] if "metrics" in t}
    assert advised == {"mxfp8"}  # it does not support block and channel scales


def test_advice_is_an_option_to_paste(octavo, model):
    shown = octavo.good("quantize", "model", "-o", "out", "--recipe", "mxfp4").out
    name = re.search(r"advice for (\S+\.weight): (\S+) instead of mxfp4", shown)
    option = re.search(r"^ +(--recipe-for '.*')$", shown, re.M)
    assert name and option
    again = ["quantize", "model", "-o", "again", "--recipe", "mxfp4", *shlex.split(option[1])]
    report = octavo.good(*again, "--json").json
    presets = {t["name"]: t.get("preset") for t in report["tensors"]}
    assert presets[name[1]] == name[2]
    assert "mxfp4" in presets.values()  # only that tensor, and what is loaded as one with it


def test_equal_tensors_have_equal_advice(octavo):
    tiny_model.llama(octavo.folder / "model", tiny_model.llama_weights(layers=4))
    for recipe in ("mxfp4", "nvfp4"):
        report = octavo.good("quantize", "model", "-o", recipe, "--recipe", recipe, "--json").json
        advised = {t["advice"].split(" gains")[0] for t in report["tensors"] if "metrics" in t}
        assert len(advised) == 1
        (shared,) = report["advice"]
        assert shared["tensors"] == 4 * 7 and shared["recipe_for"]


def test_verify_lists_everything_in_json_and_collapses_on_a_terminal(octavo):
    tiny_model.llama(octavo.folder / "model", tiny_model.llama_weights(layers=25, width=32))
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    result = changed(octavo, lambda c: c.update(hidden_size=512, num_attention_heads=7))
    assert "more like it (--json has all)" in result.out
    found = octavo("verify", "out", "--json").json
    shapes = {f["tensor"] for f in found["findings"] if f["rule"] == "shapes"}
    assert len(shapes) == 25 * 9 + 3  # nothing is cut off
    assert {f["message"] for f in found["findings"] if f["rule"] == "config"} == {
        "config.json says num_attention_heads 7 does not divide hidden_size 512, "
        "and there is no head_dim"
    }


def test_verify_prints_what_it_checked(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    shown = octavo.good("verify", "out").out
    assert "loads in       vllm, transformers, sglang, trtllm\n" in shown
    assert "checked        35 tensors in 1 file, " in shown
    assert "which tensors a 'llama' has is known" in shown
    changed(octavo, lambda c: c.update(model_type="gemma9", architectures=["Gemma9ForCausalLM"]))
    shown = octavo.good("verify", "out").out
    assert "which tensors a 'gemma9' has is not known, and was not checked" in shown
    found = octavo.good("verify", "out", "--json").json
    assert found["checked"]["tensors"] == 35 and not found["checked"]["architecture"]
    assert found["loaders"]["vllm"] == {"loads": True, "errors": 0, "warnings": 0}


def test_verify_counts_per_loader(octavo):
    weights = tiny_model.llama_weights()
    kept = {
        n: w
        for n, w in weights.items()
        if "proj" not in n or n.endswith("layers.0.self_attn.o_proj.weight")
    }
    tiny_model.llama(octavo.folder / "model", kept)
    octavo("quantize", "model", "-o", "out", "--recipe", "mxfp8")
    changed(octavo, lambda c: c.update(model_type="other"))
    shown = octavo("verify", "out").out
    assert "(compressed-tensors, 1 quantized weight): " in shown
    assert "does not load: sglang (1 error), trtllm (1 error)" in shown
    assert "loads in       vllm, transformers" in shown


def test_an_index_that_leaves_a_tensor_out(octavo):
    folder = tiny_model.llama(octavo.folder / "model", shards=2)
    index = folder / "model.safetensors.index.json"
    words = json.loads(index.read_text())
    left = "model.layers.1.mlp.up_proj.weight"
    del words["weight_map"][left]
    index.write_text(json.dumps(words))
    result = octavo("verify", "model")
    assert result.code == 1 and f"error transformers: index: {left}: " in result.out
    assert f"warning vllm, sglang, trtllm: index: {left}: " in result.out


@pytest.mark.parametrize(
    "change",
    [
        lambda side: side.update(group_size=32),
        lambda side: side.update(kv_cache_quant_algo="FP8"),
        lambda side: side.update(exclude_modules=[]),
    ],
)
def test_inconsistent_sidecar_file(octavo, model, change):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "nvfp4", "--target", "modelopt")
    octavo.good("verify", "out", "--for", "vllm,sglang,trtllm")
    path = octavo.folder / "out" / "hf_quant_config.json"
    words = json.loads(path.read_text())
    change(words["quantization"])
    path.write_text(json.dumps(words))
    result = octavo("verify", "out", "--for", "vllm,sglang,trtllm")
    assert result.code == 1 and "sidecar-file: " in result.out


def test_a_head_that_is_quantized(octavo, model):
    octavo.good(
        "quantize", "model", "-o", "out", "--recipe", "fp8-channel", "--include", "lm_head|proj"
    )
    assert octavo("verify", "out", "--for", "trtllm").code == 1
    result = octavo.good("verify", "out")
    assert "special-modules: lm_head: " in result.out
    loads = next(line for line in result.out.splitlines() if line.startswith("  loads in"))
    assert "transformers" in loads and "trtllm" not in loads


def test_an_empty_config(octavo, model):
    (model / "config.json").write_text("")
    octavo("verify", "model").refused(1, "config.json", "empty")


def test_weights_that_are_more_than_codes_and_scales(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    for words in (
        {"transform_config": {"config_groups": {"u": {"type": "hadamard"}}}},
        {"sparsity_config": {"format": "sparse-24-bitmask"}},
    ):
        result = changed(octavo, lambda c, words=words: c["quantization_config"].update(words))
        assert result.code == 1 and "all: transforms: config.json has a " in result.out
        for command in (
            ["convert", "out", "-o", "other", "--target", "modelopt"],
            ["dequantize", "out", "-o", "other"],
            ["compare", "model", "out"],
            ["quantize", "out", "-o", "other"],
        ):
            octavo(*command).refused(1, next(iter(words)))
        shown = octavo.good("inspect", "out")
        assert next(iter(words)) in shown.err and "shown as it is stored" in shown.err
        changed(octavo, lambda c, words=words: c["quantization_config"].pop(next(iter(words))))
    octavo.good("verify", "out")
    assert octavo.files() == {"model", "out"}


def test_json_is_whole_where_the_result_cannot_be_read_again(octavo):
    """The report has more bytes than a pipe holds, so the program waits in the middle of it."""
    tiny_model.llama(octavo.folder / "model", tiny_model.llama_weights(layers=10, width=32))
    command = ["quantize", "model", "-o", "out", "--recipe", "fp8-channel", "--json"]
    process = subprocess.Popen(
        [octavo.path, *command],
        cwd=octavo.folder,
        env=octavo.environment(),
        bufsize=0,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    first = process.stdout.read(1)
    written = octavo.folder / "out" / "model.safetensors"
    written.write_bytes(written.read_bytes()[:-1])
    rest, err = process.communicate()
    assert len(rest) > 2**17  # or it did not wait
    report = json.loads(first + rest)
    assert report["tensors"] and "model.safetensors" in report["servers"]["error"]
    assert process.returncode == 1 and b"it is unknown whether servers load it" in err
