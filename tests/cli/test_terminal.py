"""Colours and progress are for people: only on a terminal, and not where NO_COLOR says so."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading

import numpy as np
import pytest

ESCAPE = "\x1b["


def on_terminal(octavo, *arguments, env=None, stdin=None):
    """Runs octavo with a terminal for stdout and stderr; returns what a person would see."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [octavo.path, *map(str, arguments)],
        cwd=octavo.folder,
        env=octavo.environment(env),
        stdin=stdin or subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says so at the end of a terminal
            break
        if not part:
            break
        seen += part
    os.close(ours)
    return process.wait(), seen.decode()


COMMANDS = [["formats"], ["formats", "e4m3fn"], ["doctor"], ["cast"]]


@pytest.mark.parametrize("command", COMMANDS)
def test_colours_on_a_terminal(octavo, command):
    assert ESCAPE in on_terminal(octavo, *command)[1]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_when_asked(octavo, command, env):
    assert ESCAPE not in on_terminal(octavo, *command, env=env)[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_colours_in_files(octavo, command):
    result = octavo(*command)
    assert ESCAPE not in result.out + result.err


def test_no_color_empty_is_not_set(octavo):
    assert ESCAPE in on_terminal(octavo, "formats", env={"NO_COLOR": ""})[1]


@pytest.mark.parametrize("command", [["formats"], ["formats", "e4m3fn"]])
def test_colour_adds_nothing_else(octavo, command):
    seen = on_terminal(octavo, *command)[1].replace("\r\n", "\n")
    assert re.sub(r"\x1b\[\d*m", "", seen) == octavo(*command).out


def test_json_has_no_colours(octavo):
    assert ESCAPE not in on_terminal(octavo, "doctor", "--json")[1]


def slow_input(data: bytes):
    """A pipe that takes a second and a half to give its data."""
    reading, writing = os.pipe()

    def feed():
        with open(writing, "wb") as file:
            for part in range(15):
                file.write(data[part * len(data) // 15 : (part + 1) * len(data) // 15])
                file.flush()
                threading.Event().wait(0.1)

    threading.Thread(target=feed, daemon=True).start()
    return reading


def test_progress_on_a_terminal(octavo):
    data = octavo.save("x.npy", np.ones(1 << 24, np.float32)).read_bytes()
    stdin = slow_input(data)
    code, seen = on_terminal(octavo, "cast", "/dev/stdin", "y.npy", "--to", "e4m3fn", stdin=stdin)
    os.close(stdin)
    assert code == 0
    assert re.search(r"cast \[#*\.*\] +\d+ %  [\d.]+ MiB/s  \d+ s left", seen)
    assert seen.rstrip().endswith("0 NaN")


def test_no_progress_in_files(octavo):
    octavo.save("x.npy", np.ones(1 << 20, np.float32))
    result = octavo.good("cast", "x.npy", "y.npy", "--to", "e4m3fn")
    assert "\r" not in result.err and "left" not in result.err
