"""octavo quantize --sweep, --tile of checkpoints and --format auto."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

from tests.cli.test_quantize import some_values  # noqa: E402


@pytest.fixture
def model(octavo):
    return tiny_model.llama(octavo.folder / "model")


def test_a_sweep_of_an_array(octavo):
    octavo.save("x.npy", some_values((16, 256)))
    words = ["quantize", "x.npy", "--sweep", "recipe=mxfp8,fp8-1x128", "--sweep", "tile=16,64"]
    done = octavo.good(*words, "--report", "sweep.html")
    assert done.err == "wrote sweep.html\n"
    rows = [line.split() for line in done.out.splitlines()]
    for recipe in ("mxfp8", "fp8-1x128"):
        for tile in ("16", "64"):
            assert sum(row[:3] == [recipe, "tile", tile] for row in rows) == 1
    page = (octavo.folder / "sweep.html").read_text()
    assert page.count("<svg") == 2 and "fp8-1x128 tile 64" in page
    points = octavo.good(*words, "--json").json["points"]
    assert [point["bits_per_value"] for point in points] == [8.5, 8.125, 10.0, 8.5]
    one = octavo.good("quantize", "x.npy", "--recipe", "mxfp8", "--tile", "16", "--json").json
    assert points[0]["bytes"] == one["nbytes"]


def test_a_sweep_of_a_checkpoint_says_what_cannot_be(octavo, model):
    done = octavo.good("quantize", "model", "--recipe", "mxfp8", "--sweep", "tile=16,32,64,128")
    lines = [line for line in done.out.splitlines() if line.strip().startswith("tile")]
    assert len(lines) == 4 and ["cannot" in line for line in lines] == [True, False, True, True]
    whole = octavo.good(
        "quantize",
        "model",
        "--recipe",
        "mxfp8",
        "--sweep",
        "tile=16,32,64,128",
        "--target",
        "octavo",
        "--json",
    ).json
    assert all("why_not" not in point for point in whole["points"])
    octavo("quantize", "model", "--recipe", "mxfp8", "--sweep", "tile=64").refused(1, "tile 1x64")


def test_a_sweep_has_no_method(octavo, model):
    """It rounds to nearest, and would say so of GPTQ."""
    words = ("quantize", "model", "--recipe", "mxfp8", "--sweep", "tile=32,64")
    octavo(*words, "--method", "gptq").refused(2, "--sweep", "--method")
    octavo.good(*words, "--method", "rtn")


def test_mistakes(octavo, model):
    octavo.save("x.npy", np.ones((4, 32), np.float32))
    sweep = ("quantize", "x.npy", "--recipe", "mxfp8", "--sweep")
    octavo(*sweep, "tile").refused(2, "OPTION=VALUE")
    octavo(*sweep, "tile=16,").refused(2, "empty")
    octavo(*sweep, "colour=red").refused(2, "expected one of recipe")
    octavo(*sweep, "recipe=mxfp4").refused(2, "--recipe")
    octavo(*sweep, "tile=16", "-o", "y.safetensors").refused(2, "--sweep writes no tensors")
    octavo("quantize", "x.npy", "--sweep", "tile=16").refused(2, "without a recipe")
    octavo("quantize", "model", "--sweep", "recipe=mxfp8", "-o", "out").refused(2, "-o")
    octavo(*sweep, "tile=16", "--seed", 3).refused(2, "--seed")
    model_sweep = ("quantize", "model", "--sweep", "recipe=mxfp8")
    octavo(*model_sweep, "--delete-source-shards").refused(2, "--delete-source-shards")
    octavo(*model_sweep, "--plan", "plan.json").refused(2, "--sweep", "the plan says")


def test_tiles_of_checkpoints(octavo, model):
    octavo.good(
        "quantize",
        "model",
        "-o",
        "out",
        "--recipe",
        "fp8-block",
        "--tile",
        "64",
        "--target",
        "octavo",
    )
    assert "tile 64x64" in octavo.good("inspect", "out").out
    octavo("quantize", "model", "-o", "no", "--recipe", "mxfp4", "--tile", "64").refused(
        1, "can hold no weight", "tile 1x64"
    )
    octavo("quantize", "model", "-o", "no", "--tile", "1by3").refused(2, "--tile")


def test_format_auto(octavo, model):
    octavo.save("x.npy", some_values())
    found = octavo.good("quantize", "x.npy", "--recipe", "fp8", "--format", "auto", "--json").json
    assert "e4m3fn" in str(found["scaling"])
    octavo.good(
        "quantize",
        "model",
        "-o",
        "out",
        "--recipe",
        "fp8",
        "--format",
        "auto",
        "--target",
        "octavo",
    )
    octavo("quantize", "model", "-o", "no", "--format", "auto", "--recipe", "fp8-channel").refused(
        1, "holds FP8 of e4m3fn alone"
    )


def test_int8_checkpoints(octavo, model):
    done = octavo.good("quantize", "model", "-o", "out", "--recipe", "int8-channel", "--json").json
    assert {"vllm", "transformers", "sglang"} <= set(done["servers"]["loads"])
    octavo.good("verify", "out", "--for", "vllm", "--for", "transformers")
    octavo.good("convert", "out", "-o", "own", "--target", "octavo")
    octavo.good("dequantize", "out", "-o", "plain", "--dtype", "f32")
    octavo.good("dequantize", "own", "-o", "plain-2", "--dtype", "f32")
    assert (octavo.folder / "plain" / "model.safetensors").read_bytes() == (
        octavo.folder / "plain-2" / "model.safetensors"
    ).read_bytes()
    assert "int8" in octavo.good("inspect", "out").out
