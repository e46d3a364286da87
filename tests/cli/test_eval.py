"""octavo eval and calibrate on a small model: what they print, write and refuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest
import tiny_model
from safetensors.numpy import load_file


@pytest.fixture
def model(octavo):
    tiny_model.runnable(octavo.folder / "model")
    ids = np.random.default_rng(0).integers(0, 64, 700)
    (octavo.folder / "ids.json").write_text(json.dumps(ids.tolist()))
    return octavo


EVAL = ("eval", "--ids", "ids.json", "--window", "128")


def quantized(octavo, recipe, name):
    octavo.good("quantize", "model", "-o", name, "--recipe", recipe)


def without_seconds(result):
    return {**result.json, "seconds": 0}


def test_perplexity_alone(model):
    result = model.good(*EVAL, "model")
    assert "700 tokens in windows of 128" in result.out and "+-" in result.out
    seen = model.good(*EVAL, "model", "--json").json
    total = seen["models"][0]["total"]
    assert seen["against"] is None and total["scored"] == 700 - 6
    # Weights of 0.02 say next to nothing: about as many tokens as there are.
    assert 50 < total["perplexity"]["value"] < 80 and "kl" not in total


def test_several_models_against_an_original(model):
    quantized(model, "mxfp8", "eight")
    quantized(model, "nvfp4", "four")
    arguments = [*EVAL, "eight", "four", "--against", "model"]
    text = model.good(*arguments, "--report", "page.html")
    assert "the original" in text.out and "after layer" in text.out and "wrote" in text.err
    page = (model.folder / "page.html").read_text()
    assert "eight" in page and "four" in page and page.startswith("<!DOCTYPE html>")
    seen = model.good(*arguments, "--json").json
    original, eight, four = (one["total"] for one in seen["models"])
    assert "kl" not in original
    assert 0 < eight["kl"]["value"] < four["kl"]["value"]
    assert four["layers"][-1]["relative_error"] > eight["layers"][-1]["relative_error"] > 0
    assert len(four["layers"]) == 3 and four["layers"][0]["cosine"] == 1


def test_threads_and_memory_change_nothing(model):
    """Hidden states of 12000 tokens take 12 MB, and what a layer needs 25."""
    ids = np.random.default_rng(1).integers(0, 64, 12000)
    (model.folder / "ids.json").write_text(json.dumps(ids.tolist()))
    first = without_seconds(model.good(*EVAL, "model", "--json", "--threads", "1"))
    for more in (["--threads", "3"], ["--max-memory", "32M", "--temporary", "."]):
        assert without_seconds(model.good(*EVAL, "model", "--json", *more)) == first
    little = (*EVAL, "model", "--max-memory")
    model(*little, "32M", "--temporary", "nowhere").refused(1, "nowhere", "--temporary")
    model(*little, "16M").refused(1, "got max_memory of 16 MiB", "at least")


def test_activations(model):
    """Rounded to bfloat16: near, and not the same; a state of one is none of the other."""
    whole, rounded = (
        model.good(*EVAL, "model", "--activations", one, "--json").json["models"][0]["total"]
        for one in ("float32", "bfloat16")
    )
    one, other = (seen["log_loss"]["value"] for seen in (whole, rounded))
    assert one != other and abs(one - other) < 1e-3 * one
    model(*EVAL, "model", "--activations", "int8").refused(2, "expected float32 or bfloat16")


def test_several_texts(model):
    (model.folder / "few.txt").write_text("5 6 7\n8 9")
    seen = model.good(*EVAL, "model", "--ids", "few.txt", "--tokens", "300", "--json").json
    texts = seen["models"][0]["texts"]
    assert [one["tokens"] for one in texts] == [300, 5]
    assert [one["scored"] for one in texts] == [297, 4]
    assert seen["tokens"] == 305


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("7", ["1 tokens", "two at least"]),
        ("", ["is empty"]),
        ("1 2 x", ["expected ids"]),
        ("1 2 64", ["has the id 64", "has 64 rows"]),
    ],
)
def test_bad_ids(model, content, words):
    (model.folder / "bad").write_text(content)
    model("eval", "model", "--ids", "bad").refused(1, "[eval]", *words)


def test_bad_texts(model):
    (model.folder / "text").write_bytes(b"abc\xff")
    model("eval", "model", "--text", "text").refused(1, "no UTF-8 at byte 3")
    model("eval", "model", "--text", "missing").refused(1, "could not open")
    (model.folder / "text").write_bytes(b"a text")
    model("eval", "model", "--text", "text").refused(1, "no tokenizer", "--ids")
    model("eval", "model").refused(2, "got no --text")


def test_bad_outputs(model):
    model(*EVAL, "model", "--report", "missing/page.html").refused(1, "missing/page.html")
    model(*EVAL, "model", "--report", "page.txt").refused(2, ".html")
    model(*EVAL, "model", "--resume", "ids.json").refused(1, "ids.json")


def test_models_of_another_shape(model):
    tiny_model.runnable(model.folder / "other", layers=1)
    model(*EVAL, "other", "--against", "model").refused(1, "1 layers", "one by one")


def killed(model, arguments):
    """A command with --resume state, killed when it has stored its state for the first time."""
    state = model.folder / "state" / "state.json"
    for _ in range(40):
        started = subprocess.Popen(
            [model.path, *arguments],
            cwd=model.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + 30
        while not state.exists() and started.poll() is None:
            assert time.monotonic() < until
        started.send_signal(signal.SIGKILL)
        if started.wait() == -signal.SIGKILL and state.exists():
            break
    else:
        pytest.fail("was always done before the kill")
    assert json.loads(state.read_text())["next_layer"] in (0, 1, 2)


def test_resume_after_a_kill(model):
    quantized(model, "nvfp4", "four")
    arguments = [*EVAL, "four", "--against", "model", "--json"]
    whole = without_seconds(model.good(*arguments))
    state = model.folder / "state"
    killed(model, [*arguments, "--resume", "state"])
    model(*EVAL[:-1], "64", "four", "--against", "model", "--resume", "state").refused(
        1, "another run", "window"
    )
    model(*arguments, "--resume", "state", "--activations", "bfloat16").refused(1, "bfloat16")
    assert without_seconds(model.good(*arguments, "--resume", "state")) == whole
    assert not state.exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk here")
def test_a_result_that_cannot_be_given_is_not_lost(model):
    """The page is written, then the result, and the state is kept until both are."""
    arguments = [*EVAL, "model", "--json", "--resume", "state"]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [model.path, *arguments, "--report", "page.html"],
            cwd=model.folder, stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert ended.returncode == 1 and "could not write to standard output" in ended.stderr
    assert (model.folder / "page.html").exists()
    state = model.folder / "state" / "state.json"
    assert json.loads(state.read_text())["next_layer"] == 2
    assert model.good(*arguments).json["tokens"] == 700
    assert not state.exists() and not state.parent.exists()


def test_a_page_that_cannot_be_written_takes_nothing_with_it(model):
    """Of the folder that was there when the evaluation began."""
    pages = model.folder / "pages"
    pages.mkdir()
    ended = subprocess.Popen(
        [model.path, *EVAL, "model", "--json", "--resume", "state", "--report", "pages/page.html"],
        cwd=model.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 30
    while not (model.folder / "state").exists() and ended.poll() is None:
        assert time.monotonic() < until
    pages.rmdir()
    out, err = ended.communicate()
    assert ended.returncode == 1 and "pages/page.html" in err
    assert json.loads(out)["tokens"] == 700
    assert (model.folder / "state" / "state.json").exists()


def test_texts_that_do_not_end(model):
    model("eval", "model", "--text", "/dev/zero").refused(1, "is a device", "expected a text")


def test_calibrate_stays_within_its_memory(model):
    """Hessians in f32, and those of a layer in f64 beside them: 10 MiB, and the walk has 25 MB."""
    ids = np.random.default_rng(1).integers(0, 64, 12000)
    (model.folder / "ids.json").write_text(json.dumps(ids.tolist()))
    arguments = ("calibrate", "model", *EVAL[1:], "-o", "s.safetensors", "--max-memory")
    model.good(*arguments, "28M", "--hessians", "none")
    model(*arguments, "28M", "--hessians", "full:.").refused(
        1, "got max_memory of 28 MiB", "the statistics of 14 modules"
    )


def test_calibrate(model):
    arguments = ("calibrate", "model", "--ids", "ids.json", "--window", "128")
    result = model.good(*arguments, "-o", "stats.safetensors", "--hessians", "full:down_proj")
    assert "700 tokens" in result.out and "14 linear layers" in result.out
    stats = load_file(model.folder / "stats.safetensors")
    name = "model.layers.1.mlp.down_proj"
    assert stats[f"{name}.hessian"].shape == (512, 512)
    assert stats[f"{name}.block_hessian"].shape == (32, 16, 16)
    hessian = stats[f"{name}.hessian"]
    np.testing.assert_array_equal(hessian, hessian.T)
    np.testing.assert_array_equal(np.diagonal(hessian), stats[f"{name}.mean_square"])
    np.testing.assert_array_equal(hessian[16:32, 16:32], stats[f"{name}.block_hessian"][1])
    assert (stats[f"{name}.amax"] ** 2 >= stats[f"{name}.mean_square"]).all()
    assert stats[f"{name}.rows"] == [700]
    assert "model.layers.0.self_attn.k_amax" in stats and "lm_head.amax" not in stats
    again = ("-o", "again.safetensors", "--hessians", "full:down_proj", "--threads", "1")
    model.good(*arguments, *again, "--max-memory", "64M")
    for key, value in load_file(model.folder / "again.safetensors").items():
        np.testing.assert_array_equal(stats[key], value)


def test_calibrate_goes_on_after_a_kill(model):
    arguments = ["calibrate", "model", *EVAL[1:], "-o"]
    model.good(*arguments, "whole.safetensors")
    resumed = [*arguments, "resumed.safetensors", "--resume", "state"]
    killed(model, resumed)
    assert not (model.folder / "resumed.safetensors").exists()
    model(*resumed, "--hessians", "none").refused(1, "another run", "Hessians of blocks")
    model(*resumed[:5], "64", *resumed[6:]).refused(1, "another run", "window")
    weights = model.folder / "model" / "model.safetensors"
    of_this = weights.read_bytes()
    tiny_model.write(weights, tiny_model.llama_weights(seed=9))
    model(*resumed).refused(1, "another run", "models")
    weights.write_bytes(of_this)
    model.good(*resumed)
    whole, again = (model.folder / f"{name}.safetensors" for name in ("whole", "resumed"))
    assert whole.read_bytes() == again.read_bytes()
    assert not (model.folder / "state").exists()


def test_calibrate_mistakes(model):
    arguments = ("calibrate", "model", "--ids", "ids.json", "-o")
    model(*arguments, "s.safetensors", "--hessians", "some").refused(2, "--hessians", "block16")
    model(*arguments, "s.safetensors", "--hessians", "full:nothing").refused(1, "no module")
    model(*arguments, "s.txt").refused(2, ".safetensors")
    model(*arguments, "missing/s.safetensors").refused(1, "missing/s.safetensors")
    assert not (model.folder / "s.safetensors").exists()
