"""What commands on checkpoints print: whole names, plurals, and the real trouble first."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

LONG = "model.language_model.backbone.transformer_blocks.layers.{}.feed_forward.experts.up.weight"


@pytest.fixture
def model(octavo):
    return tiny_model.llama(octavo.folder / "model")


@pytest.fixture
def long_names(octavo):
    tensors = tiny_model.llama_weights()
    matrix = tensors["model.layers.0.self_attn.q_proj.weight"]
    for i in range(3):
        tensors[LONG.format(i)] = matrix
    return tiny_model.llama(octavo.folder / "model", tensors)


def on_terminal(octavo, *arguments, columns):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [octavo.path, *arguments],
        cwd=octavo.folder,
        env=octavo.environment({"TERM": "dumb"}),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the end of a terminal
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait() == 0, seen
    return seen.decode().replace("\r\n", "\n")


def test_names_are_whole_in_a_pipe(octavo, long_names):
    shown = octavo.good("inspect", "model", "--all").out
    for i in range(3):
        assert re.search(rf"^{re.escape(LONG.format(i))} +256 x 256 ", shown, re.M), shown
    assert octavo.good("inspect", "model", "--stats").out.count(LONG.format(1) + " ") == 1
    assert LONG.format("*") + " " in octavo.good("inspect", "model").out
    plan = ["quantize", "model", "--recipe", "mxfp8", "--include", "up.weight", "--dry-run"]
    assert LONG.format("*") + " " in octavo.good(*plan).out
    quantized = octavo.good(*plan[:-1], "-o", "out").out
    assert any(LONG.format(i) + " " in quantized for i in range(3))
    assert "transformer_blocks" in octavo.good("inspect", "model", "--tree").out


def test_names_are_whole_on_a_terminal(octavo, long_names):
    for columns in (60, 100, 300):
        shown = on_terminal(octavo, "inspect", "model", "--all", columns=columns)
        for i in range(3):
            assert LONG.format(i) in shown
        # On a line of its own where it does not fit.
        alone = LONG.format(0) + "\n" in shown
        assert alone == (columns < 200), shown
    # The columns stand below each other.
    lines = on_terminal(octavo, "inspect", "model", "--all", columns=100).splitlines()
    ends = {line.index("x 256 ") for line in lines if "x 256 " in line}
    assert len(ends) == 1, lines


def test_a_dry_run_tells_layers_apart(octavo):
    tiny_model.llama(octavo.folder / "model", tiny_model.llama_weights(6))
    plan = ["quantize", "model", "--recipe", "mxfp8", "--dry-run"]
    shown = octavo.good(*plan, "--exclude", r"layers\.[035]\.mlp").out
    assert re.search(
        r"^ +3  model\.layers\.0,3,5\.mlp\.down_proj\.weight .* excluded$", shown, re.M
    )
    assert re.search(r"^ +3  model\.layers\.1-2,4\.mlp\.down_proj\.weight .* mxfp8$", shown, re.M)
    assert "model.layers.*.self_attn.q_proj.weight" in shown


@pytest.mark.parametrize(
    "command",
    [
        "quantize modle/",
        "quantize modle/ --dry-run",
        "quantize modle/ --recipe mxfp8 --tile 1x32",
        "quantize modle.safetensors",
        "quantize modle.gguf",
        "quantize modle.npy",
        "convert modle/",
        "convert modle/ -o out --target octavo",
        "convert modle/ --target modelopt",
        "dequantize modle/",
        "dequantize modle",
        "dequantize modle -o out",
        "compare modle/",
        "compare modle model",
        "generate modle --ids 1",
        "eval modle --ids ids.json",
        "inspect modle/",
        "verify modle/",
        "verify modle --against model",
    ],
)
def test_a_mistyped_path_is_the_trouble(octavo, model, command):
    words = command.split()
    octavo(*words).refused(1, f"'{words[1]}'", "No such file or directory")
    if "." not in words[1]:
        octavo(*words).refused(1, f"[{words[0]}]", "Did you mean 'model'?")


def test_what_is_missing_is_said_where_the_path_is_right(octavo, model):
    octavo("quantize", "model").refused(2, "-o")
    octavo("convert", "model", "--target", "modelopt").refused(2, "--output")
    octavo("dequantize", "model").refused(2, "--output")
    octavo.save("x.npy", np.zeros((4, 32), np.float32))
    octavo("quantize", "x.npy").refused(2, "--recipe")


def test_a_folder_that_is_no_model_comes_before_a_missing_output(octavo):
    (octavo.folder / "empty").mkdir()
    for command in ("quantize", "convert", "dequantize"):
        octavo(command, "empty").refused(1, "no .safetensors file")


def test_a_folder_of_gguf_says_which_file_to_give(octavo):
    (octavo.folder / "folder").mkdir()
    (octavo.folder / "folder" / "model.gguf").write_bytes(b"GGUF")
    octavo("quantize", "folder").refused(1, "'model.gguf', which is GGUF; give that file")


def test_non_finite_has_two_spellings(octavo):
    tensors = tiny_model.llama_weights()
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = 0x7FC0
    tiny_model.llama(octavo.folder / "model", tensors)
    octavo.save("nan.npy", np.float32([[1, np.nan]]))
    for i, spelling in enumerate(("--non-finite", "--nonfinite")):
        octavo.good("quantize", "model", "-o", f"out{i}", spelling, "clamp")
        octavo.good("dequantize", f"out{i}", "-o", f"plain{i}", f"{spelling}=clamp")
        octavo.good("quantize", "nan.npy", "--recipe", "fp8", spelling, "saturate")
        octavo("quantize", "model", "-o", "x", spelling, "poison").refused(2, "error", "clamp")
        octavo("dequantize", "out0", "-o", "x", spelling, "poison").refused(2, "error", "clamp")
        octavo("quantize", "nan.npy", "--recipe", "fp8", spelling, "clamp").refused(2, "poison")
    octavo("quantize", "model", "-o", "x", "--nonfinite", "clamp", "--non-finite", "error").refused(
        2
    )
    for command in ("quantize", "dequantize"):
        shown = octavo.good(command, "--help").out
        assert re.search(r"--non-finite RULE {2,}", shown) and "--nonfinite" not in shown
    for shell in ("bash", "zsh", "fish"):
        assert "nonfinite" not in octavo.good("completion", shell).out


def test_integers_are_compared(octavo):
    for name, last in (("a", 2), ("b", 2), ("c", 3)):
        tensors = tiny_model.llama_weights()
        tensors["position_ids"] = np.array([[0, 1, last]], np.int64)
        tiny_model.llama(octavo.folder / name, tensors)
    assert "equal     22 of 22 tensors" in octavo.good("compare", "a", "b").out
    other = octavo.good("compare", "a", "c").out
    assert "equal     21 of 22 tensors" in other and "  position_ids " in other
    assert octavo("compare", "a", "c", "--fail-if", "max_abs>0").code == 3


def test_one_is_no_plural(octavo):
    tiny_model.write(
        octavo.folder / "m.safetensors",
        {"a.q_proj.weight": tiny_model.llama_weights()["model.layers.0.self_attn.q_proj.weight"]},
    )
    said = [octavo.good("inspect", "m.safetensors").out]
    said.append(octavo.good("quantize", "m.safetensors", "--recipe", "mxfp8", "--dry-run").out)
    octavo.good("quantize", "m.safetensors", "-o", "q", "--recipe", "mxfp8", "--target", "octavo")
    said.append(octavo.good("inspect", "q").out)
    said.append(octavo.good("dequantize", "q", "-o", "plain").out)
    said.append(octavo.good("compare", "q", "plain").out)
    said.append(octavo("verify", "q").out)
    octavo.save("one.npy", np.float32([[1]]))
    said.append(octavo.good("cast", "one.npy", "codes.npy", "--to", "e4m3fn").err)
    (octavo.folder / "one.npy").open("ab").write(b"x")
    said.append(octavo.good("quantize", "one.npy", "--recipe", "fp8").err)
    (octavo.folder / "short.safetensors").write_bytes(b"x")
    said.append(octavo("inspect", "short.safetensors").err)
    wrong = re.compile(r"(?<![\d.,])1 (quantized )?(tensor|file|weight|value|element|byte|rule)s\b")
    for text in said:
        assert not wrong.search(text), text
    assert " in 1 file, 1 tensor, not quantized" in said[0] and " in 1 file\n" in said[1]
    assert "1 quantized weight (octavo)" in said[2]
    assert said[3].startswith("1 weight of octavo")
    assert "equal     1 of 1 tensor\n" in said[4]
    assert "1 element: " in said[6] and "1 byte after its array; it is ignored" in said[7]


def test_include_passes_over_what_cannot_be_quantized(octavo, model):
    shown = octavo.good(
        "quantize", "model", "-o", "out", "--recipe", "mxfp8", "--include", "layers"
    )
    assert "14 of 21 quantized" in shown.out
    assert "input_layernorm.weight' stays unquantized: it has 1 dimension" in shown.out
    octavo("quantize", "model", "-o", "x", "--include", "layernorm").refused(
        1, "--include finds nothing that can be quantized", "1 dimension"
    )


def test_a_gguf_file_that_cannot_be_read_is_the_trouble(octavo):
    (octavo.folder / "model.gguf").write_bytes(b"GGUF, and nothing that follows")
    (octavo.folder / "folder").mkdir()
    (octavo.folder / "folder" / "model.gguf").write_bytes(b"GGUF, and nothing that follows")
    for command in ("quantize", "convert", "dequantize", "inspect", "verify"):
        octavo(command, "model.gguf").refused(1, "model.gguf", "GGUF")
        octavo(command, "folder").refused(1, "folder", "GGUF")


@pytest.mark.parametrize("command", ["quantize", "convert", "dequantize", "inspect", "compare"])
def test_a_mistyped_model_is_told_all_that_a_model_can_be(octavo, command):
    octavo(command, "mdoel").refused(1, "could not open 'mdoel'", "a folder", ".gguf")
