"""A long run on a checkpoint: what it shows, what it survives, what it refuses to trust."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import time
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

SLOW = ["--recipe", "fp8-block", "--scale-policy", "mse", "--threads", "1"]


@pytest.fixture
def model(octavo):
    return tiny_model.llama(octavo.folder / "model")


def slow_model(octavo, shards=4):
    """A model that takes seconds to quantize, so that progress can be observed."""
    return tiny_model.llama(
        octavo.folder / "model", tiny_model.llama_weights(10, 384), shards=shards
    )


def started(octavo, *arguments, **more):
    """With kernels that are slow everywhere, and give the bytes of all others."""
    return subprocess.Popen(
        [octavo.path, *map(str, arguments)],
        cwd=octavo.folder,
        env=octavo.environment({"OCTAVO_BACKEND": "cpu/portable"}),
        **more,
    )


def wait_for(condition, process):
    end = time.monotonic() + 60
    while not condition():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)


def interrupted_after_a_shard(octavo):
    """Work that was stopped when at least one of its files was finished; returns that file."""
    out = octavo.folder / "out"
    process = started(octavo, "quantize", "model", "-o", "out", *SLOW, stderr=subprocess.PIPE)
    wait_for(lambda: list(out.glob("model-*.safetensors")), process)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == -signal.SIGINT
    return min(out.glob("model-*.safetensors"))


def tree(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_bar_on_a_terminal(octavo):
    """Bytes, rate, time left and a tensor, in a line that is drawn over and cleared at the end."""
    slow_model(octavo)
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = started(
        octavo, "quantize", "model", "-o", "out", *SLOW, stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert process.wait() == 0
    text = seen.decode()
    drawn = [line for line in text.split("\r\x1b[K") if line.startswith("quantize [")]
    assert len(drawn) >= 2
    wanted = (
        r"quantize \[#*\.*\] +\d+ %  [\d.]+ \w+ of [\d.]+ \w+  [\d.]+ \w+/s  \d+ s left(  \S+)?$"
    )
    for line in drawn:
        assert re.match(wanted, line.rstrip()), line
        assert len(line.rstrip("\r\n")) < 100
    shares = [int(re.search(r"(\d+) %", line)[1]) for line in drawn]
    assert shares == sorted(shares) and shares[-1] <= 100
    assert any("model.layers." in line for line in drawn)
    # The progress bar is cleared before the final message.
    assert re.search(r"\r\x1b\[K(octavo: .*\r\n)?wrote out\r\n$", text)


def test_a_reader_that_leaves_does_not_end_the_work(octavo):
    """`octavo quantize ... 2>&1 | head -1`: the pipe breaks, the output is whole."""
    slow_model(octavo)
    read, write = os.pipe()
    process = started(octavo, "quantize", "model", "-o", "out", *SLOW, stdout=write, stderr=write)
    os.close(write)
    os.close(read)
    assert process.wait(timeout=120) == 0
    assert (octavo.folder / "out" / "config.json").exists()


def test_report_in_the_folder_that_is_made(octavo, model):
    octavo.good(
        "quantize", "model", "-o", "out", "--recipe", "mxfp8", "--report", "out/report.html"
    )
    assert (octavo.folder / "out" / "report.html").read_text().startswith("<!DOCTYPE html>")
    octavo.good("verify", "out", "--for", "vllm")
    octavo("quantize", "model", "-o", "new", "--report", "nowhere/report.html").refused(
        1, "nowhere"
    )
    assert octavo.files() == {"model", "out"}


def test_dry_run_says_what_it_does_not_use(octavo, model):
    result = octavo.good(
        "quantize", "model", "--dry-run", "-o", "out", "--report", "r.html", "--fail-if", "sqnr<1"
    )
    assert "-o, --report, --fail-if" in result.err
    assert octavo.good("quantize", "model", "--dry-run").err == ""
    octavo("quantize", "model", "--dry-run", "--report", "r.txt").refused(2, ".html")
    octavo("quantize", "model", "--dry-run", "--max-memory", "lots").refused(2, "--max-memory")
    assert octavo.files() == {"model"}


def test_values_that_f32_does_not_hold_are_refused(octavo):
    weights = np.random.default_rng(0).standard_normal((128, 256))
    weights[3, 7] = 1e300
    folder = octavo.folder / "model"
    folder.mkdir()
    tiny_model.NAMES.setdefault("float64", "F64")
    tiny_model.write(folder / "model.safetensors", {"a.q_proj.weight": weights})
    for recipe in ("fp8", "mxfp8", "fp8-block"):
        result = octavo("quantize", "model", "-o", "out", "--recipe", recipe)
        result.refused(1, "a.q_proj.weight")
        assert "[3, 7]" in result.err and "1e+300" in result.err
    assert octavo.files() == {"model"}


def test_nan_in_what_is_copied_is_reported(octavo):
    weights = tiny_model.llama_weights()
    weights["model.norm.weight"] = weights["model.norm.weight"].copy()
    weights["model.norm.weight"][:3] = [0x7FC0, 0x7FC0, 0xFF80]  # NaN, NaN, -Inf
    tiny_model.llama(octavo.folder / "model", weights)
    made = octavo("quantize", "model", "-o", "out", "--recipe", "mxfp8", "--json")
    assert made.code == 1  # nothing loads that
    report = made.json
    notes = [note for note in report["notes"] if "model.norm.weight" in note]
    assert len(notes) == 1 and "2 NaN and 1 Inf were copied" in notes[0]


def test_finished_files_are_not_trusted_blindly(octavo):
    """A file that was changed after a call was stopped is written again."""
    slow_model(octavo)
    octavo.good("quantize", "model", "-o", "straight", *SLOW)
    shard = interrupted_after_a_shard(octavo)
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1  # the same size and header
    shard.write_bytes(content)
    octavo.good("quantize", "model", "-o", "out", *SLOW, "--resume")
    assert tree(octavo.folder / "out") == tree(octavo.folder / "straight")


def test_a_damaged_record_says_so(octavo):
    slow_model(octavo)
    interrupted_after_a_shard(octavo)
    for text in ("", "{", "[]"):
        (octavo.folder / "out" / "octavo-progress.json").write_text(text)
        result = octavo("quantize", "model", "-o", "out", *SLOW, "--resume")
        result.refused(1, "octavo-progress.json" if text != "[]" else "remove the folder")


def test_a_source_that_changes_while_it_is_read(octavo):
    folder = slow_model(octavo)
    last = max(folder.glob("*.safetensors"))
    process = started(octavo, "quantize", "model", "-o", "out", *SLOW, stderr=subprocess.PIPE)
    wait_for((octavo.folder / "out").exists, process)
    with last.open("r+b") as file:  # a byte of the last tensor, and so the file's time
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    error = process.communicate()[1].decode()
    assert process.returncode == 1 and "changed while it was read" in error
    assert not (octavo.folder / "out").exists()


def test_completion_offers_recipes_for_names(octavo):
    assert ".*=mxfp8" in octavo.good("completion", "bash").out


def stacked(octavo, in_out):
    """Two layers with expert stacks, as in newer models."""
    random = np.random.default_rng(0)
    weights = {}
    for layer in range(2):
        at = f"model.layers.{layer}.mlp.experts."
        up, down = ((3, 64, 192), (3, 96, 64)) if in_out else ((3, 192, 64), (3, 64, 96))
        for name, shape in (("gate_up_proj", up), ("down_proj", down)):
            values = random.standard_normal(shape, np.float32) * 0.02
            weights[at + name] = tiny_model.bf16(values)
    weights["model.embed_tokens.weight"] = tiny_model.bf16(np.ones((64, 64), np.float32))
    folder = tiny_model.llama(octavo.folder / "model", weights)
    config = {"architectures": ["StackForCausalLM"], "model_type": "stack"}
    (folder / "config.json").write_text(json.dumps(config))
    return {name: list(array.shape) for name, array in weights.items()}


@pytest.mark.parametrize("in_out", [False, True])
def test_stacks_of_experts_come_back(octavo, in_out):
    shapes = stacked(octavo, in_out)
    octavo.good("quantize", "model", "-o", "out", "--recipe", "mxfp8")
    apart = octavo.good("inspect", "out", "--json").json["tensors"]
    assert any(".experts.2.up_proj.weight" in tensor["name"] for tensor in apart)
    octavo.good("dequantize", "out", "-o", "plain")
    back = octavo.good("inspect", "plain", "--json").json["tensors"]
    assert {tensor["name"]: tensor["shape"] for tensor in back} == shapes
    # 31.5 dB is what E4M3 has; experts in another place would have none.
    octavo.good("compare", "model", "plain", "--fail-if", "sqnr<30")


def test_what_was_done_stays_in_the_config(octavo, model):
    octavo.good("quantize", "model", "-o", "ct", "--recipe", "nvfp4")
    octavo.good("convert", "ct", "-o", "mo", "--target", "modelopt")
    octavo.good("dequantize", "mo", "-o", "plain")
    said, says = (
        json.loads((octavo.folder / name / "config.json").read_text())["octavo"]
        for name in ("ct", "plain")
    )
    assert says["recipe"] == "nvfp4" and says["source_hash"] == said["source_hash"]
    assert [step["work"] for step in says["steps"]] == [
        "convert to modelopt",
        "dequantize to bfloat16",
    ]


def test_links_in_the_output_are_not_written_through(octavo):
    slow_model(octavo)
    interrupted_after_a_shard(octavo)
    precious = octavo.folder / "precious"
    precious.write_text("mine")
    (octavo.folder / "out" / "config.json").symlink_to(precious)
    octavo("quantize", "model", "-o", "out", *SLOW, "--resume").refused(1, "link", "config.json")
    assert precious.read_text() == "mine"


def test_bytes_of_finished_files_are_read_again(octavo):
    """Damage that leaves a file's size and time unchanged."""
    slow_model(octavo)
    octavo.good("quantize", "model", "-o", "straight", *SLOW)
    shard = interrupted_after_a_shard(octavo)
    before = shard.stat()
    content = bytearray(shard.read_bytes())
    content[-100] ^= 1
    shard.write_bytes(content)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    octavo.good("quantize", "model", "-o", "out", *SLOW, "--resume")
    assert tree(octavo.folder / "out") == tree(octavo.folder / "straight")
