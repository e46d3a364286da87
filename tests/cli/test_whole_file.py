"""Output appears whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time

import numpy as np
import pytest

MANY = 1 << 22


def default_signals():
    """The program leaves signals ignored that were ignored at its start (nohup); here none are."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def slow_cast(octavo):
    """A cast that waits for its input: half of the array comes through a pipe, then nothing."""
    whole = octavo.save("x.npy", np.ones(MANY, np.float32)).read_bytes()
    os.remove(octavo.folder / "x.npy")
    process = subprocess.Popen(
        [octavo.path, "cast", "/dev/stdin", "y.npy", "--to", "e4m3fn"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=octavo.folder,
        preexec_fn=default_signals,
    )
    process.stdin.write(whole[: len(whole) // 2])
    process.stdin.flush()
    deadline = time.monotonic() + 30
    while not any(octavo.folder.glob(".y.npy.*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert any(octavo.folder.glob(".y.npy.*")), "no temporary file"
    return process


@pytest.mark.parametrize("old", [None, b"what was there before"])
def test_killed_in_the_middle(octavo, old):
    if old:
        (octavo.folder / "y.npy").write_bytes(old)
    process = slow_cast(octavo)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    path = octavo.folder / "y.npy"
    assert (path.read_bytes() if path.exists() else None) == old


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_leaves_nothing(octavo, sent):
    process = slow_cast(octavo)
    process.send_signal(sent)
    assert process.wait(timeout=60) == -sent  # died by it, as shells want to see
    assert octavo.files() == set()


def test_input_that_ends_early(octavo):
    process = slow_cast(octavo)
    _, err = process.communicate()
    assert process.returncode == 1 and b"ends before its data does" in err
    assert octavo.files() == set()


def test_file_size_limit(octavo):
    octavo.save("x.npy", np.ones(MANY, np.float32))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    result = octavo("cast", "x.npy", "y.npy", "--to", "e4m3fn", preexec_fn=limit)
    result.refused(1, "y.npy", "File too large", "ulimit")
    assert octavo.files() == {"x.npy"}


def test_disk_full(octavo):
    disk = octavo.folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        octavo.save("x.npy", np.ones(MANY, np.float32))
        (disk / "y.npy").write_bytes(b"old")
        for target in ("disk/y.npy", "disk/z.npy"):
            result = octavo("cast", "x.npy", target, "--to", "e4m3fn")
            result.refused(1, target, "No space left", "free space")
        assert [path.name for path in disk.iterdir()] == ["y.npy"]
        assert (disk / "y.npy").read_bytes() == b"old"
    finally:
        subprocess.run(["umount", disk], check=True)


def test_stdout_full(octavo):
    for arguments in (["formats"], ["formats", "e4m3fn", "--json"], ["doctor"], ["--help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([octavo.path, *arguments], stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 1
        assert b"could not write to standard output" in done.stderr


def test_closed_pipe_is_silent(octavo):
    command = f"'{octavo.path}' formats e5m10 | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True)
    assert done.stdout.startswith(b"e5m10") and done.stderr == b""


@pytest.mark.parametrize("name", ["./x.npy", "link.npy", "hard.npy"])
def test_input_is_not_the_output(octavo, name):
    path = octavo.save("x.npy", np.ones(3, np.float32))
    (octavo.folder / "link.npy").symlink_to("x.npy")
    os.link(path, octavo.folder / "hard.npy")
    before = path.read_bytes()
    octavo("cast", "x.npy", name, "--to", "e4m3fn").refused(1, "same file")
    assert path.read_bytes() == before


def test_link_stays_a_link(octavo):
    octavo.save("x.npy", np.ones(3, np.float32))
    (octavo.folder / "real.npy").write_bytes(b"old")
    (octavo.folder / "link.npy").symlink_to("real.npy")
    octavo.good("cast", "x.npy", "link.npy", "--to", "e4m3fn")
    assert (octavo.folder / "link.npy").is_symlink() and octavo.load("real.npy").size == 3
    (octavo.folder / "dead.npy").symlink_to("nowhere.npy")
    octavo("cast", "x.npy", "dead.npy", "--to", "e4m3fn").refused(1, "link to nothing")


def test_existing_output_is_replaced(octavo):
    octavo.save("x.npy", np.ones(3, np.float32))
    (octavo.folder / "y.npy").write_bytes(b"old")
    octavo.good("cast", "x.npy", "y.npy", "--to", "e4m3fn")
    assert octavo.load("y.npy").tolist() == [0x38] * 3
    assert octavo.files() == {"x.npy", "y.npy"}


def test_mode_follows_umask(octavo):
    octavo.save("x.npy", np.ones(3, np.float32))
    octavo.good("cast", "x.npy", "y.npy", "--to", "e4m3fn", preexec_fn=lambda: os.umask(0o027))
    assert (octavo.folder / "y.npy").stat().st_mode & 0o777 == 0o640


def test_folder_without_permission(octavo):
    octavo.save("x.npy", np.ones(3, np.float32))
    result = octavo("cast", "x.npy", "/proc/y.npy", "--to", "e4m3fn")
    result.refused(1, "/proc/y.npy")
