"""Valid .npy files, and the errors of invalid ones."""

from __future__ import annotations

import contextlib
import io
import re
import struct
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

MAGIC = b"\x93NUMPY"


def file_of(header: bytes | str, data: bytes = b"", version=(1, 0), length=None) -> bytes:
    header = header.encode() if isinstance(header, str) else header
    size = len(header) if length is None else length
    return (
        MAGIC
        + bytes(version)
        + struct.pack("<H" if version[0] == 1 else "<I", size)
        + header
        + data
    )


def header(descr="'<f4'", order="False", shape="(2,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


TWO = np.float32([1, 2]).tobytes()

# What is wrong, the bytes, and words of the message.
HOSTILE = {
    "empty": (b"", "does not begin with"),
    "text": (b"hello, world", "does not begin with"),
    "zip": (b"PK\x03\x04" + b"\0" * 100, "does not begin with"),
    "magic_only": (MAGIC, "ends within its header"),
    "version_4": (file_of(header(), TWO, (4, 0)), "version 4.0"),
    "version_1_1": (file_of(header(), TWO, (1, 1)), "version 1.1"),
    "cut_header": (file_of(header(), b"", length=500), "ends within its header"),
    "huge_header": (file_of(header(), TWO, (2, 0), length=2**32 - 1), "4294967295"),
    "no_dictionary": (file_of("12345"), "expected '{'"),
    "empty_dictionary": (file_of("{}"), "expected descr, fortran_order and shape"),
    "missing_shape": (file_of("{'descr': '<f4', 'fortran_order': False}"), "expected descr"),
    "second_shape": (file_of(header().replace("}", "'shape': (2,)}")), "'shape'"),
    "other_key": (file_of(header().replace("}", "'evil': 1}")), "'evil'"),
    "behind": (file_of(header() + "x"), "nothing else"),
    "code": (file_of("__import__('os').system('touch pwned')"), "expected '{'"),
    "expression": (file_of(header(shape="(2*3,)"), TWO), "expected ','"),
    "negative": (file_of(header(shape="(-2,)"), TWO), "zero or more"),
    "float_size": (file_of(header(shape="(2.0,)"), TWO), "expected ','"),
    "not_a_tuple": (file_of(header(shape="2"), TWO), "expected '('"),
    "open_tuple": (file_of("{'shape': (2,"), "zero or more"),
    "open_string": (file_of("{'descr': '<f4"), "does not end"),
    "escape": (file_of(header(descr="'\\x3cf4'"), TWO), "escape"),
    "size_65_bits": (file_of(header(shape="(36893488147419103232,)")), "64 bits"),
    "product": (file_of(header(shape="(4294967296, 4294967296)")), "63 bits"),
    "too_many": (file_of(header(shape="(" + "1," * 65 + ")"), TWO), "64 dimensions"),
    "short_data": (file_of(header(), TWO[:7]), "is cut short"),
    "no_data": (file_of(header(shape="(1000000000000,)")), "is cut short"),
    "big_endian": (file_of(header(descr="'>f4'"), TWO), "big-endian"),
    "object": (file_of(header(descr="'|O'"), TWO), "'|O'"),
    "text_array": (file_of(header(descr="'<U2'"), TWO), "'<U2'"),
    "long_double": (file_of(header(descr="'<f16'"), TWO * 4), "'<f16'"),
    "complex": (file_of(header(descr="'<c8'"), TWO * 4), "'<c8'"),
    "int32": (file_of(header(descr="'<i4'"), TWO), "'<i4'"),
    "bool": (file_of(header(descr="'|b1'"), TWO), "'|b1'"),
    "empty_type": (file_of(header(descr="''"), TWO), "type ''"),
    "records": (file_of(header(descr="[('a', '<f4')]"), TWO), "structured"),
    "not_text": (file_of(b"\xff\xfe{\x00"), "expected '{'"),
    "nul": (file_of(b"\0" * 50), "expected '{'"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(octavo, name):
    content, word = HOSTILE[name]
    (octavo.folder / "x.npy").write_bytes(content)
    octavo("cast", "x.npy", "y.npy", "--to", "e4m3fn").refused(1, "[cast] 'x.npy' ", word)
    assert octavo.files() == {"x.npy"}


GOOD = {
    "as_numpy": (header(), (1, 0)),
    "version_2": (header(), (2, 0)),
    "version_3": (header(), (3, 0)),
    "other_order": ("{'shape':(2,),'fortran_order':False,'descr':'<f4'}", (1, 0)),
    "double_quotes": ('{"descr": "<f4", "fortran_order": False, "shape": (2,)}', (1, 0)),
    "python_2": (header(shape="(2L,)"), (1, 0)),
    "two_dimensions": (header(shape="( 1 , 2 )"), (1, 0)),
    "padded": (header() + " " * 5000 + "\n", (1, 0)),
}


@pytest.mark.parametrize("name", GOOD)
def test_good(octavo, name):
    text, version = GOOD[name]
    (octavo.folder / "x.npy").write_bytes(file_of(text, TWO, version))
    octavo.good("cast", "x.npy", "y.npy", "--to", "e4m3fn")
    assert octavo.load("y.npy").ravel().tolist() == [0x38, 0x40]


@pytest.mark.parametrize("shape", ["(0, 9223372036854775807)", "(0, 4294967296, 2147483648)"])
@pytest.mark.parametrize("options", [[], ["--packed"]])
def test_empty_but_impossible(octavo, shape, options):
    (octavo.folder / "x.npy").write_bytes(file_of(header(shape=shape)))
    result = octavo("cast", "x.npy", "y.npy", "--to", "e2m1fn", *options)
    result.refused(1)
    assert octavo.files() == {"x.npy"}


def test_written_as_numpy_writes(octavo):
    for shape in [(), (3,), (3, 4), (1,) * 32]:
        octavo.save("x.npy", np.zeros(shape, np.float32))
        octavo.good("cast", "x.npy", "y.npy", "--to", "e5m2")
        wanted = io.BytesIO()
        np.save(wanted, np.zeros(shape, np.uint8))
        assert (octavo.folder / "y.npy").read_bytes() == wanted.getvalue()


def test_bytes_behind_the_array_are_noted(octavo):
    path = octavo.save("x.npy", np.float32([1, 2]))
    path.write_bytes(path.read_bytes() + b"more")
    result = octavo.good("cast", "x.npy", "y.npy", "--to", "e4m3fn")
    assert "4 bytes after" in result.err and octavo.load("y.npy").size == 2


def test_pipe_as_input(octavo):
    content = (octavo.save("x.npy", np.float32([1, 2]))).read_bytes()
    for data, code in [(content, 0), (content[:-1], 1)]:
        done = subprocess.run(
            [octavo.path, "cast", "/dev/stdin", "y.npy", "--to", "e4m3fn"],
            input=data,
            cwd=octavo.folder,
            capture_output=True,
        )
        assert done.returncode == code, done.stderr
        assert ("y.npy" in octavo.files()) == (code == 0)
        (octavo.folder / "y.npy").unlink(missing_ok=True)


def peak_memory(process: subprocess.Popen) -> int:
    """The most memory a process had, in KiB: the last that was seen before it ended."""
    peak = 0
    while process.poll() is None:
        with contextlib.suppress(OSError):
            found = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process.pid}/status").read_text())
            peak = max(peak, int(found[1])) if found else peak
        time.sleep(0.01)
    return peak


def test_memory_is_bounded(octavo):
    """A file larger than the memory used, with holes instead of data."""
    size = 1 << 28  # elements of one byte
    start = io.BytesIO()
    fields = {"descr": "|u1", "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(start, fields)
    with open(octavo.folder / "x.npy", "wb") as file:
        file.write(start.getvalue())
        file.truncate(start.tell() + size)
    command = ["cast", "x.npy", "y.npy", "--from", "e4m3fn", "--to", "e2m1fn", "--nan", "zero"]
    process = subprocess.Popen([octavo.path, *command, "--packed"], cwd=octavo.folder)
    peak = peak_memory(process)
    assert process.returncode == 0
    assert 0 < peak < 100 * 1024  # what the guide says
    assert (octavo.folder / "y.npy").stat().st_size == 128 + size // 2
