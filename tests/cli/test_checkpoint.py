"""Checkpoints on the command line: quantize, verify, convert, dequantize, compare, inspect."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

LINEARS = 14  # of the two layers


def tree(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def model(octavo):
    return tiny_model.llama(octavo.folder / "model")


def test_quantize_says_what_it_did(octavo, model):
    result = octavo.good("quantize", "model", "-o", "out", "--recipe", "mxfp8")
    assert "model to mxfp8 for compressed-tensors" in result.out
    assert f"{LINEARS} of 21 quantized, 8.25 bits per weight" in result.out
    assert "worst tensors" in result.out and result.err == "wrote out\n"
    config = json.loads((octavo.folder / "out" / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    assert (octavo.folder / "out" / "tokenizer.json").exists()


def test_json_has_every_tensor(octavo, model):
    report = octavo.good("quantize", "model", "-o", "out", "--recipe", "nvfp4", "--json").json
    assert len(report["tensors"]) == 21
    measured = [tensor for tensor in report["tensors"] if "metrics" in tensor]
    assert len(measured) == LINEARS
    # Normal values in NVFP4 have 20.5 dB, and no tensor here is anything else.
    assert all(19 < tensor["metrics"]["sqnr"] < 22 for tensor in measured)
    assert all(tensor["advice"].startswith("fp8-") for tensor in measured)


@pytest.mark.parametrize("recipe", ["fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp4", "nvfp4"])
def test_there_and_back(octavo, model, recipe):
    octavo.good("quantize", "model", "-o", "out", "--recipe", recipe)
    octavo.good("verify", "out", "--for", "vllm,transformers")
    seen = octavo.good("inspect", "out", "--json").json
    assert seen["dialect"] == "compressed-tensors"
    assert sum(tensor["quantized"] for tensor in seen["tensors"]) == LINEARS
    octavo.good("dequantize", "out", "-o", "plain", "--dtype", "f32")
    compared = octavo.good("compare", "out", "plain", "--json").json
    assert all(t["metrics"]["max_abs"] == 0 for t in compared["tensors"] if "metrics" in t)


def test_convert_is_lossless(octavo, model):
    octavo.good("quantize", "model", "-o", "ct", "--recipe", "fp8-block", "--target", "deepseek")
    octavo.good("convert", "ct", "-o", "other", "--target", "compressed-tensors")
    octavo.good("convert", "other", "-o", "back", "--target", "deepseek")
    first, again = (octavo.folder / name / "model.safetensors" for name in ("ct", "back"))
    assert first.read_bytes() == again.read_bytes()
    compared = octavo.good("compare", "ct", "other").out
    assert "equal     21 of 21 tensors" in compared


def test_dry_run_writes_nothing(octavo, model):
    before = octavo.files()
    shown = octavo.good("quantize", "model", "--recipe", "mxfp4", "--dry-run").out
    assert "model.layers.*.self_attn.q_proj.weight" in shown and "unquantized: a norm" in shown
    plan = octavo.good("quantize", "model", "--recipe", "mxfp4", "--dry-run", "--json").json
    assert octavo.files() == before
    octavo.good("quantize", "model", "-o", "out", "--recipe", "mxfp4")
    header = 8 + int.from_bytes(
        (octavo.folder / "out/model.safetensors").read_bytes()[:8], "little"
    )
    assert (octavo.folder / "out/model.safetensors").stat().st_size == plan["bytes_after"] + header


def test_recipes_by_name(octavo, model):
    report = octavo.good(
        "quantize", "model", "-o", "out", "--recipe", "nvfp4", "--recipe-for", "down_proj=mxfp8",
        "--recipe-for", r"layers\.0\.=none", "--exclude", "o_proj", "--target", "octavo", "--json",
    ).json  # fmt: skip
    presets = {t["name"]: t.get("preset") for t in report["tensors"]}
    assert presets["model.layers.1.mlp.down_proj.weight"] == "mxfp8"
    assert presets["model.layers.0.mlp.down_proj.weight"] == "mxfp8"  # the first that fits
    assert presets["model.layers.0.mlp.up_proj.weight"] is None
    assert presets["model.layers.1.self_attn.o_proj.weight"] is None
    assert presets["model.layers.1.mlp.up_proj.weight"] == "nvfp4"


def test_limits(octavo, model):
    missed = octavo(
        "quantize", "model", "-o", "a", "--recipe", "mxfp4", "--fail-if", "cosine<0.999"
    )
    assert missed.code == 3 and "limit missed: cosine of 'model.layers." in missed.err
    octavo.good("quantize", "model", "-o", "b", "--recipe", "mxfp8", "--fail-if", "cosine<0.999")
    assert octavo("compare", "model", "a", "--fail-if", "sqnr<20").code == 3


def test_verify_names_what_is_wrong(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    config = octavo.folder / "out" / "config.json"
    changed = json.loads(config.read_text())
    changed["quantization_config"]["ignore"] = []
    config.write_text(json.dumps(changed))
    result = octavo("verify", "out")
    assert result.code == 1 and "lm_head" in result.out
    assert not octavo("verify", "out", "--json").json["good"]
    assert octavo.good("verify", "--rules").out.count("\n") > 5


def test_inspect(octavo, model):
    assert "14 quantized" not in octavo.good("inspect", "model").out
    tree_shown = octavo.good("inspect", "model", "--tree").out
    assert "0..1" in tree_shown and "x 2" in tree_shown
    seen = octavo.good("inspect", "model", "--stats", "--json").json
    norm = next(t for t in seen["tensors"] if t["name"] == "model.norm.weight")
    assert norm["statistics"] == {
        "min": 1, "max": 1, "mean": 1, "std": 0, "zero": 0, "nan": 0, "inf": 0
    }  # fmt: skip
    embed = next(t for t in seen["tensors"] if t["name"] == "model.embed_tokens.weight")
    raw = tiny_model.llama_weights()["model.embed_tokens.weight"].astype("<u4") << 16
    values = raw.view("<f4").astype(np.float64)
    assert embed["statistics"]["max"] == values.max()
    assert embed["statistics"]["std"] == pytest.approx(values.std(), rel=1e-9)


def test_shards_stay_shards(octavo):
    tiny_model.llama(octavo.folder / "model", shards=3)
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    assert len(list((octavo.folder / "out").glob("*-of-00003.safetensors"))) == 3
    octavo.good("verify", "out")


@pytest.mark.parametrize(
    "arguments",
    [
        "--recipe mxpf8",
        "--target vllm",
        "--include (",
        "--recipe-for down_proj",
        "--recipe-for down=fp9",
        "--max-memory lots",
        "--max-memory 0",
        "--format e3m4",
        "--include dwon_proj",
        "--exclude (?<!a)",
        "--shard-size -5",
        "--scale-rule up",
        "--scale-rounding f32",
        "--nonfinite ignore",
        "--plot x.svg",
        "--fail-if cosine",
        "--report report.txt",
    ],
)
def test_wrong_usage(octavo, model, arguments):
    result = octavo("quantize", "model", "-o", "out", *arguments.split())
    result.refused(2)
    assert octavo.files() == {"model"}


def test_hostile_expressions_take_no_time(octavo, model):
    """The standard library's matcher took minutes for these."""
    start = time.monotonic()
    for hostile in ("(.*)*(.*)*(.*)*Q", "(a|a|.)*Q", "(.{0,20}){0,20}Q"):
        shown = octavo.good("quantize", "model", "--dry-run", "--exclude", hostile)
        assert "is found in no tensor's name" in shown.out
    assert time.monotonic() - start < 30


def test_prints_which_loaders_load_the_result(octavo, model):
    arguments = ["--recipe", "mxfp8", "--target", "compressed-tensors"]
    shown = octavo.good("quantize", "model", "-o", "a", *arguments).out
    assert "loads in       vllm, transformers\n" in shown
    assert "does not load: sglang (support: it has no MXFP8" in shown
    servers = octavo.good("quantize", "model", "-o", "b", *arguments, "--json").json["servers"]
    assert servers["loads"] == ["vllm", "transformers"]
    assert set(servers["does_not_load"]) == {"sglang", "trtllm"}


def test_finished_work_is_not_resumed(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    before = tree(octavo.folder / "out")
    again = octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel", "--resume")
    assert "out is complete" in again.err and again.out == ""
    assert tree(octavo.folder / "out") == before
    same = ["quantize", "model", "-o", "out", "--recipe", "fp8-channel", "--resume"]
    octavo(*same, "--report", "r.html").refused(2, "octavo compare")
    missed = octavo(*same, "--fail-if", "cosine<1")  # by what config.json keeps
    assert missed.code == 3 and "limit missed: cosine of" in missed.err
    assert octavo.good(*same, "--fail-if", "cosine<0.5").out == ""
    told = octavo.good(*same, "--json").json
    assert told["was_complete"] and len(told["tensors"]) == 21
    assert not any("metrics" in tensor for tensor in told["tensors"])
    octavo(*same, "--exclude", "down_proj").refused(1, "other options")
    octavo("quantize", "model", "-o", "out", "--recipe", "mxfp8", "--resume").refused(1, "out")
    octavo.good("dequantize", "out", "-o", "plain")
    assert "complete" in octavo.good("dequantize", "out", "-o", "plain", "--resume").err
    octavo("dequantize", "out", "-o", "plain", "--dtype", "f32", "--resume").refused(1)


def test_options_that_repeat_leave_the_model_alone(octavo, model):
    octavo.good("quantize", "--include", "mlp", "--exclude", "down", "model", "-o", "out")
    octavo.good(
        "quantize", "--recipe-for", "mlp=fp8", "--fail-if", "cosine<0.5", "model", "-o", "b"
    )
    octavo.good("verify", "--for", "vllm", "out")
    octavo.good("compare", "--fail-if", "cosine<0.5", "model", "out")


def test_verify_wants_a_config_of_modelopts_too(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "nvfp4", "--target", "modelopt")
    config = octavo.folder / "out" / "config.json"
    words = json.loads(config.read_text())
    del words["quantization_config"]
    config.write_text(json.dumps(words))
    octavo("verify", "out", "--for", "vllm")  # declared in the sidecar file
    (octavo.folder / "out" / "hf_quant_config.json").unlink()
    result = octavo("verify", "out", "--for", "vllm")
    assert result.code == 1 and "loads in" not in result.out


def test_subfolders_come_along(octavo, model):
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text("{}")
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    assert (octavo.folder / "out" / "1_Pooling" / "config.json").read_text() == "{}"


def test_floods_are_cut_short(octavo):
    tensors = tiny_model.llama_weights(8)
    for name in list(tensors):
        if name.endswith("k_proj.weight"):
            tensors[name] = tensors[name][:64]
    tiny_model.llama(octavo.folder / "model", tensors)
    arguments = ["quantize", "model", "-o", "out", "--recipe", "fp8-block"]
    shown = octavo.good(*arguments).out
    assert shown.count("k_proj.weight' stays unquantized") == 3
    assert shown.count("and 5 more like it") == 3  # k, and q and v with it
    octavo.good("verify", "out")
    report = octavo.good("quantize", "model", "-o", "b", "--recipe", "fp8-block", "--json").json
    assert len(report["notes"]) == 24


def test_verify_is_not_taken_in(octavo, model):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-block", "--target", "deepseek")
    file = octavo.folder / "out" / "model.safetensors"
    whole = file.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    words = json.loads(whole[8 : 8 + header])
    at = words["model.layers.0.mlp.up_proj.weight"]["data_offsets"][0] + 8 + header
    file.write_bytes(whole[:at] + b"\x7f" + whole[at + 1 :])
    damaged = octavo("verify", "out")
    assert damaged.code == 1 and "1 code is NaN, the first in row 0, column 0" in damaged.out
    octavo.good("verify", "out", "--no-codes")
    file.write_bytes(whole)
    (octavo.folder / "out" / "config.json").unlink()
    assert octavo("verify", "out").code == 1
    assert "loads in" not in octavo("verify", "out").out


def test_wants_an_output(octavo, model):
    octavo("quantize", "model").refused(2, "-o", "--dry-run")
    octavo.save("x.npy", np.zeros((4, 32), np.float32))
    octavo("quantize", "x.npy", "--recipe", "fp8", "--dry-run").refused(2, "--dry-run")


def with_change(octavo, name, change):
    tensors = tiny_model.llama_weights()
    change(tensors)
    return tiny_model.llama(octavo.folder / name, tensors)


def test_refused_and_nothing_left_behind(octavo, model):
    octavo("quantize", "model", "-o", "model").refused(1)
    octavo("quantize", "nowhere", "-o", "out").refused(1, "nowhere")
    octavo.good("quantize", "model", "-o", "out")
    octavo("quantize", "model", "-o", "out").refused(1, "out")
    octavo("quantize", "out", "-o", "twice").refused(1)
    octavo("convert", "model", "-o", "x", "--target", "modelopt").refused(1)
    octavo("dequantize", "out", "-o", "y", "--dtype", "e4m3fn").refused(2, "--dtype")
    assert octavo.files() == {"model", "out"}


def test_values_that_are_not_finite(octavo):
    def poison(tensors):
        tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = 0x7FC0

    with_change(octavo, "model", poison)
    octavo("quantize", "model", "-o", "out").refused(
        1, "model.layers.1.mlp.up_proj.weight", "--exclude", "--non-finite clamp"
    )
    assert octavo.files() == {"model"}
    result = octavo.good("quantize", "model", "-o", "out", "--nonfinite", "clamp")
    assert "1 NaN" in result.out


def test_hostile_names(octavo):
    def add(tensors):
        matrix = tensors["model.layers.0.self_attn.q_proj.weight"]
        tensors["../../etc/<script>alert(1)</script>\u0000\x1b[31m.weight"] = matrix

    with_change(octavo, "model", add)
    arguments = ["--recipe", "mxfp8", "--include", "script", "--report", "report.html"]
    result = octavo.good("quantize", "model", "-o", "out", *arguments)
    assert "\x1b" not in result.out and "\0" not in result.out
    page = (octavo.folder / "report.html").read_text()
    assert "<script>alert" not in page and "\\x00\\x1b" in page
    for command in (["inspect"], ["inspect", "--tree"], ["verify"]):
        shown = octavo(command[0], "out", *command[1:])
        assert shown.code in (0, 1) and "\x1b" not in shown.out
    assert octavo.files() == {"model", "out", "report.html"}


def test_broken_folders(octavo):
    folder = tiny_model.llama(octavo.folder / "model", shards=2)
    second = folder / "model-00002-of-00002.safetensors"
    whole = second.read_bytes()
    second.write_bytes(whole[:-1])
    octavo("quantize", "model", "-o", "out").refused(1, "model-00002")
    second.unlink()
    octavo("quantize", "model", "-o", "out").refused(1, "model-00002")
    octavo("inspect", "model").refused(1)
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-00002", "../model-00002"))
    octavo("verify", "model").refused(1)
    index.write_text("{")
    octavo("compare", "model", "model").refused(1)
    assert octavo.files() == {"model"}


def test_interrupted_and_resumed(octavo):
    """Ctrl-C in the middle, then --resume: the same bytes as in one go."""
    tiny_model.llama(octavo.folder / "model", tiny_model.llama_weights(24, 512), shards=4)
    slow = ["--recipe", "fp8-block", "--scale-policy", "mse", "--threads", "1"]
    octavo.good("quantize", "model", "-o", "straight", *slow)
    process = subprocess.Popen(
        [octavo.path, "quantize", "model", "-o", "out", *slow],
        cwd=octavo.folder,
        env=octavo.environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    while process.poll() is None and not (octavo.folder / "out").exists():
        time.sleep(0.01)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    error = process.communicate()[1].decode()
    assert process.returncode == -signal.SIGINT, error
    assert "--resume" in error
    assert not (octavo.folder / "out" / "config.json").exists()
    octavo.good("quantize", "model", "-o", "out", *slow, "--resume")
    assert tree(octavo.folder / "out") == tree(octavo.folder / "straight")
