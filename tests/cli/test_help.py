"""Help and the mistakes that the parser itself finds. The parser's texts differ between its
versions, so these look for what must be there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

# Of options that take no "1".
VALUES = {
    "--scale-rounding": "none",
    "--input-scales": "one",
    "--kv-scales": "one",
    "--method": "gptq",
    "--window": "64",
    "--tokens": "64",
}

COMMANDS = [
    "formats",
    "cast",
    "quantize",
    "plan",
    "verify",
    "convert",
    "dequantize",
    "compare",
    "eval",
    "calibrate",
    "inspect",
    "generate",
    "attention-report",
    "doctor",
    "completion",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(octavo, command):
    for flag in ("--help", "-h"):
        result = octavo.good(command, flag)
        assert result.err == "" and "Examples:" in result.out
        assert ("--json" in result.out) == (command != "completion")
        assert f"octavo {command}" in result.out


def test_help(octavo):
    result = octavo.good("--help")
    for word in [*COMMANDS, "Examples:", "Exit codes:", "--version", "--json"]:
        assert word in result.out
    assert result.err == ""


def test_examples_of_help_are_understood(octavo):
    """Every line of help that begins with octavo parses; missing files are another matter."""
    for command in [[], *([name] for name in COMMANDS)]:
        for line in octavo.good(*command, "--help").out.splitlines():
            if not line.startswith("  octavo "):
                continue
            words = shlex.split(line.split("   ")[0].split(">")[0])[1:]
            assert octavo(*words).code in (0, 1), line


def test_nothing_asked_is_wrong_usage(octavo):
    result = octavo()
    assert result.code == 2 and result.out == "" and "formats" in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("cast", ["[cast]", "IN", "required"]),
        ("cast x.npy --to e4m3fn", ["[cast]", "OUT", "required"]),
        ("cast x.npy y.npy", ["[cast]", "--to", "required"]),
        ("cast x.npy y.npy --to e4m3fn --seed abc", ["[cast]", "--seed", "abc"]),
        ("cast x.npy y.npy --to e4m3fn --seed -1", ["[cast]", "--seed", "-1"]),
        ("cast x.npy y.npy --to e4m3fn --seed 18446744073709551616", ["[cast]", "--seed", "2^64"]),
        (
            "cast x.npy y.npy --to e4m3fn --stochastic-bits 17",
            ["[cast]", "--stochastic-bits", "16"],
        ),
        ("cast x.npy y.npy --to e4m3fn --stochastic-bits 0", ["[cast]", "--stochastic-bits", "1"]),
        ("cast x.npy y.npy --to e4m3fn --threads -1", ["[cast]", "--threads", "1024"]),
        ("cast x.npy y.npy --to e4m3fn --threads 1025", ["[cast]", "--threads", "1024"]),
        ("cast x.npy y.npy --to", ["[cast]", "--to"]),
        ("formats --plot", ["[formats]", "--plot"]),
        ("quantize", ["[quantize]", "IN", "required"]),
        ("quantize x.npy --recipe mxfp8 --seed -1", ["[quantize]", "--seed", "-1"]),
        ("quantize x.npy --recipe mxfp8 --threads 1025", ["[quantize]", "--threads", "1024"]),
        ("quantize x.npy --recipe mxfp8 --margin x", ["[quantize]", "--margin"]),
        ("completion", ["[completion]", "SHELL", "required"]),
    ],
)
def test_mistakes(octavo, arguments, words):
    octavo(*arguments.split()).refused(2, *words, "octavo")


def test_json_before_or_after_the_command(octavo):
    assert octavo.good("--json", "formats").json == octavo.good("formats", "--json").json


def test_completion_has_no_json(octavo):
    """A script is no JSON, wherever the option stands; help and scripts do not offer it."""
    for words in (["completion", "bash", "--json"], ["--json", "completion", "bash"]):
        octavo(*words).refused(2, "[completion] got --json", "leave out --json")
    assert "--json" not in octavo.good("completion", "--help").out


def test_exit_code_3_is_explained(octavo):
    assert "3 a quality limit that you set was missed" in octavo.good("--help").out


def test_a_file_may_have_the_name_of_a_command(octavo):
    octavo("cast", "doctor", "formats", "--to", "e4m3fn").refused(1, "could not open 'doctor'")


def test_strange_text_is_shown_clean(octavo):
    for word in ("\x1b[31mred", "x" * 5000, "ünïcode", "a\nb"):
        octavo(word).refused(2)
        result = octavo("formats", word)
        result.refused(2)
        assert len(result.err) < 500 and result.err.rstrip("\n").isprintable()


def test_options_for_one_kind_of_input_are_told_apart(octavo):
    """In groups of their own in the help of quantize, and refused by name for the other kind."""
    shown = octavo.good("quantize", "--help").out
    octavo.save("x.npy", np.zeros((4, 32), np.float32))
    tiny_model.llama(octavo.folder / "model")
    for group, words in (
        ("Arrays only", ["model", "-o", "out"]),
        ("Checkpoints only", ["x.npy", "--recipe", "fp8"]),
    ):
        lines = shown.split(f"{group}:\n", 1)[1].split("\n\n", 1)[0].splitlines()
        options = [found for line in lines if (found := re.match(r" +(--[\w-]+)( \S+)?", line))]
        assert len(options) >= 9, group
        for option in options:
            value = VALUES.get(option[1], "1")
            given = [option[1], value] if option[2] else [option[1]]
            kind = "arrays" if group == "Arrays only" else "checkpoints"
            octavo("quantize", *words, *given).refused(2, option[1], f"for {kind}")
    assert octavo.files() == {"x.npy", "model"}
