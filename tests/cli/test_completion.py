"""The completion scripts: their syntax, and what bash and fish offer with them."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def script(octavo, shell):
    path = octavo.folder / f"octavo.{shell}"
    path.write_text(octavo.good("completion", shell).out)
    return path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_syntax(octavo, shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n", script(octavo, shell)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_knows_everything(octavo, shell):
    text = script(octavo, shell).read_text()
    for row in octavo.good("formats", "--json").json["formats"]:
        assert row["name"] in text
    for word in (
        "formats",
        "cast",
        "doctor",
        "completion",
        "nearest_even",
        "saturate",
        "torch",
        "bfloat16",
    ):
        assert word in text


def bash_offers(octavo, *words):
    """What bash would offer for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    command = f"source {script(octavo, 'bash')}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1};"
    command += ' _octavo; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-u", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


def fish_offers(octavo, *words):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    line = " ".join(words)
    command = f"source {script(octavo, 'fish')}; complete -C '{line}'"
    env = octavo.environment({"HOME": str(octavo.folder)})
    done = subprocess.run(
        ["fish", "-c", command], capture_output=True, text=True, cwd=octavo.folder, env=env
    )
    return [row.split("\t")[0] for row in done.stdout.splitlines()]


@pytest.mark.parametrize("offers", [bash_offers, fish_offers])
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["octavo", "f"], ["formats"]),
        (["octavo", "formats", "e2m"], ["e2m3fn", "e2m1fn"]),
        (["octavo", "formats", "--pl"], ["--plot"]),
        (["octavo", "cast", "--to", "e4m3fn"], ["e4m3fn", "e4m3fnuz"]),
        (["octavo", "cast", "--to", "bf"], ["bfloat16"]),
        (["octavo", "cast", "--rounding", "st"], ["stochastic"]),
        (["octavo", "cast", "--profile", "tor"], ["torch", "torch_2_11"]),
        (["octavo", "quantize", "--recipe", "mxf"], ["mxfp8", "mxfp6", "mxfp4"]),
        (["octavo", "quantize", "--scale-rule", "r"], ["rceil"]),
        (["octavo", "quantize", "--scale", "e4"], ["e4m3+f32"]),
        (["octavo", "quantize", "--tile", "128"], ["128x128"]),
        (["octavo", "completion", "b"], ["bash"]),
    ],
)
def test_offers(octavo, offers, words, offered):
    assert sorted(offers(octavo, *words)) == sorted(offered)


def test_bash_leaves_files_to_bash(octavo):
    assert bash_offers(octavo, "octavo", "cast", "x") == []


def test_every_option_is_offered(octavo):
    for command in ("formats", "cast", "quantize", "attention-report", "doctor"):
        offered = bash_offers(octavo, "octavo", command, "--")
        for line in octavo.good(command, "--help").out.splitlines():
            if line.startswith("  --"):
                assert line.split()[0] in offered
