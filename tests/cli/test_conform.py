"""octavo conform: octavo itself, a program behind pipes, and programs that misbehave."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import sys
for line in sys.stdin:
    line = line.strip()
    {body}
    sys.stdout.flush()
"""


def program(octavo, body):
    path = octavo.folder / "peer.py"
    path.write_text(PROGRAM.format(body=body))
    return f"{shlex.quote(sys.executable)} peer.py"


def test_octavo_conforms(octavo):
    done = octavo.good("conform")
    assert "deviates" not in done.out and " 0 deviate" in done.out
    found = octavo.good("conform", "--json").json
    assert found["conforms"] and found["standard"] == "OCP MX 1.0"
    clauses = {one["clause"] for one in found["findings"]}
    assert clauses == {"5.1", "5.3.1", "5.3.2", "5.3.3", "5.3.4", "5.4.1", "6.1", "6.2", "6.3"}


def test_a_program_that_answers(octavo):
    direct = octavo.good("conform", "--json").json
    served = octavo.good(
        "conform", "--exec", f"{shlex.quote(str(octavo.path))} conform --serve", "--json"
    ).json
    assert served == direct


def test_a_program_that_offers_nothing(octavo):
    body = "print(line if line.startswith('octavo') else 'skip not yet')"
    done = octavo.good("conform", "--exec", program(octavo, body))
    assert "not offered" in done.out and " 0 deviate" in done.out


def test_a_program_that_deviates(octavo):
    # Zeros for everything: codes, values and products.
    body = (
        "words = line.split(); n = len(words[2]) // 256 if words[0] == 'convert' else 0\n"
        "    print(line if line.startswith('octavo') else"
        " 'ok ' + '7f' * n + ' ' + '00' * 32 * n if n else"
        " 'ok ' + '00000000' * (len(words[3]) // 2 if words[0] == 'dequantize' else 1))"
    )
    done = octavo("conform", "--exec", program(octavo, body))
    assert done.code == 1 and not done.err
    assert "6.3  deviates  the scale of a block" in done.out


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit(3)", "ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9"),
        ("print('hello')", "the version of the protocol"),
        ("print(line if line.startswith('octavo') else 'garbage')", "expected 'ok'"),
        ("print(line if line.startswith('octavo') else 'ok 7f 00')", "expected"),
        ("sys.stdout.write('x' * 2000000)", "without the end of a line"),
        ("print(line if line.startswith('octavo') else sys.exit(0))", "ended with exit code 0"),
    ],
)
def test_programs_that_misbehave(octavo, body, why):
    refused(octavo("conform", "--exec", program(octavo, body)), why)


def refused(result, why):
    """The last line is octavo's: before it stands what the program, or its shell, says itself."""
    last = result.err.splitlines()[-1]
    assert (result.code, result.out) == (1, "") and last.startswith("octavo: [conform]")
    assert why in last, result.err


def test_a_program_that_hangs(octavo):
    start = time.monotonic()
    done = octavo(
        "conform", "--exec", program(octavo, "import time; time.sleep(60)"), "--timeout", "0.5"
    )
    done.refused(1, "within 0.5 s")
    assert time.monotonic() - start < 20
    # And what a shell started, which holds the pipes, ends with it.
    octavo("conform", "--exec", "sleep 60 & sleep 60", "--timeout", "0.5").refused(1, "no answer")
    assert time.monotonic() - start < 40


def test_a_program_that_is_not_there(octavo):
    refused(octavo("conform", "--exec", "./no-such-program"), "ended with exit code 127")
    octavo("conform", "--exec", "x", "--timeout", "0").refused(2, "--timeout")
    octavo("conform", "--exec", "x", "--serve").refused(2, "expected one of them")
    for empty in ("", "  "):
        octavo("conform", "--exec", empty).refused(2, "got an empty command")


def test_ctrl_c_ends_the_program_too(octavo):
    """The program is in a process group of its own, which the terminal's Ctrl-C does not reach."""
    body = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    arguments = [octavo.path, "conform", "--exec", program(octavo, body), "--timeout", "50"]
    running = subprocess.Popen(arguments, cwd=octavo.folder, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    pid = octavo.folder / "pid"
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    assert running.wait(20) == -signal.SIGINT
    assert "interrupted; the program was ended" in running.stderr.read()
    while is_alive(int(pid.read_text())):
        assert time.monotonic() < until
        time.sleep(0.01)


def is_alive(pid):
    """A zombie, which its parent has not waited for, is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
