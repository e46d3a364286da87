"""Golden vectors of the memory layout (docs/numerics/layout.md): octavo and the one-file C reader
give the values that were computed from the specification alone."""

from __future__ import annotations

import json
import pathlib
import shlex
import shutil
import subprocess

import numpy as np
import pytest

import octavo as ov

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "conformance" / "layout"
QUANTIZED, VALUES = FOLDER / "quantized.safetensors", FOLDER / "values.safetensors"


def plain(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The tensors of a file of F32, read by hand."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    out = {}
    for name, entry in header.items():
        first, last = (end + offset for offset in entry["data_offsets"])
        out[name] = np.frombuffer(data[first:last], np.float32).reshape(entry["shape"])
    return out


def test_octavo_reads_them():
    loaded, wanted = ov.load(QUANTIZED), plain(VALUES)
    assert loaded.keys() == wanted.keys() and len(wanted) > 15
    for name, values in wanted.items():
        np.testing.assert_array_equal(ov.dequantize(loaded[name]), values, err_msg=name)


def test_what_octavo_writes_is_the_same(tmp_path):
    loaded = ov.load(QUANTIZED)
    ov.save(tmp_path / "again.safetensors", loaded)
    again = ov.load(tmp_path / "again.safetensors")
    for name, q in loaded.items():
        assert again[name].scaling == q.scaling
        np.testing.assert_array_equal(ov.dequantize(again[name]), ov.dequantize(q))


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    program = tmp_path_factory.mktemp("reader") / "read_octavo"
    source = ROOT / "examples" / "read_octavo.c"
    words = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-o", program, source, "-lm"]
    subprocess.run(words, check=True)
    return program


def read(reader, path, *name):
    return subprocess.run([reader, path, *name], capture_output=True, timeout=60)


def test_the_c_reader_reads_them(reader):
    for name, values in plain(VALUES).items():
        done = read(reader, QUANTIZED, name)
        assert done.returncode == 0, done.stderr
        got = np.frombuffer(done.stdout, np.float32).reshape(values.shape)
        np.testing.assert_array_equal(got, values, err_msg=name)


@pytest.mark.parametrize("preset", ov.preset_names())
def test_the_c_reader_reads_what_octavo_writes(reader, preset, tmp_path):
    x = np.random.default_rng(3).standard_normal((2, 130, 70)).astype(np.float32)
    q = ov.quantize(x, preset)
    ov.save(tmp_path / "x.safetensors", {"x": q})
    done = read(reader, tmp_path / "x.safetensors", "x")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(
        np.frombuffer(done.stdout, np.float32).reshape(x.shape), ov.dequantize(q)
    )


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ("4294967296x4294967296", "0x0"),  # 2^64 elements wrap to none
        ("2x0", "18446744073709551615x1"),
        ("4x18446744073709551615", "0x0"),
    ],
)
def test_the_c_reader_refuses_sizes_that_wrap(reader, shape, tile, tmp_path):
    said = f"{shape} float32 format=e4m3fn tile={tile} scale=f32 rule=f32"
    header = {
        "__metadata__": {"octavo.version": "1", "octavo.tensor.x": said},
        "x": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]},
        "x.scales": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
    }
    done = read(reader, written(tmp_path, header, b"\0\0\x80\x3f"))
    assert done.returncode == 1 and b"read_octavo: " in done.stderr


def written(folder, header, data=b""):
    text = json.dumps(header, ensure_ascii=False).encode()
    path = folder / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_the_c_reader_does_not_count_rows_of_nothing(reader, tmp_path):
    """2^60 of them."""
    said = f"{2**60}x0 float32 format=e4m3fn tile=1x1 scale=f32 rule=f32"
    header = {
        "__metadata__": {"octavo.version": "1", "octavo.tensor.x": said},
        "x": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]},
        "x.scales": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
    }
    done = subprocess.run(
        [reader, written(tmp_path, header)], capture_output=True, timeout=20, check=True
    )
    assert done.stdout.startswith(b"x  ")


def test_the_c_reader_takes_no_more_memory_than_the_header(reader, tmp_path):
    """Of a string what it needs, however much follows; and a terminal obeys no name."""
    strings = {f"\x7f[2J{i}": "v" * 20 for i in range(20000)}
    header = {"__metadata__": {"octavo.version": "1"} | strings}
    limit = f"ulimit -v {256 << 10}; exec {shlex.quote(str(reader))} "  # 256 MiB
    path = written(tmp_path, header)
    done = subprocess.run(
        ["sh", "-c", limit + shlex.quote(str(path))], capture_output=True, timeout=60
    )
    assert done.stderr == b"read_octavo: the file has no tensor 'with metadata'\n"
    header = {"__metadata__": {"octavo.version": "\x7f[2J"}}
    done = read(reader, written(tmp_path, header))
    assert done.stderr.endswith(b"got '?[2J'\n")


def test_the_c_reader_refuses_what_is_broken(reader, tmp_path):
    data = bytearray(QUANTIZED.read_bytes())
    for name, change in {
        "version": lambda d: d.replace(b'"octavo.version": "1"', b'"octavo.version": "9"'),
        "cut": lambda d: d[: len(d) // 2],
        "length": lambda d: b"\xff" * 8 + d[8:],
        "format": lambda d: d.replace(b"format=e4m3fn tile=0x0", b"format=e4m3xx tile=0x0"),
        "tile": lambda d: d.replace(b"tile=1x32", b"tile=1x16"),
    }.items():
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(change(bytes(data)))
        done = read(reader, path)
        assert done.returncode == 1 and b"read_octavo: " in done.stderr, name
