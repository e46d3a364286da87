"""Optional libraries stay optional, and importing octavo imports neither."""

from __future__ import annotations

import subprocess
import sys

import octavo as ov


def run(code: str) -> str:
    # The same octavo as here, however it got onto the path.
    setup = f"import sys; sys.path[:0] = {sys.path!r}\n"
    result = subprocess.run(
        [sys.executable, "-c", setup + code], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_is_light():
    assert (
        run("import octavo; print('torch' in sys.modules, 'ml_dtypes' in sys.modules)")
        == "False False"
    )


def test_recipes_do_not_import_torch():
    work = "from octavo.recipe import MXFP8BlockScaling; print(MXFP8BlockScaling())\n"
    assert run(work + "print('torch' in sys.modules)").splitlines() == [
        "recipe_type=MXFP8BlockScaling, margin=0, format=E4M3",
        "False",
    ]


def test_octavo_torch_without_torch():
    code = """
sys.modules['torch'] = None  # as if not installed
try:
    import octavo.torch
except ImportError as error:
    print(error)
"""
    assert "torch" in run(code)


def test_numpy_work_does_not_import_torch():
    work = "import numpy, octavo; octavo.decode(octavo.encode(numpy.ones(3), 'e4m3fn'))\n"
    assert run(work + "print('torch' in sys.modules)") == "False"


def test_without_ml_dtypes_and_torch():
    code = """
sys.modules['ml_dtypes'] = sys.modules['torch'] = None  # as if not installed
import numpy as np, octavo as ov
c = ov.encode(np.float32([1, 2, 3]), 'e4m3fn')
assert c.dtype == np.uint8 and c.tolist() == [0x38, 0x40, 0x44]
assert ov.decode(c, format='e4m3fn').tolist() == [1, 2, 3]
assert ov.fp8_decode(ov.fp8_encode([1, 2, 3])).tolist() == [1, 2, 3]
assert ov.encode([1.0], 'e8m7').dtype == np.uint16 and ov.encode([1.0], 'e5m10').dtype == np.float16
assert ov.format('e4m3fn').numpy_dtype is None and ov.format('e4m3fn').torch_dtype is None
try:
    ov.decode(c, 'bfloat16', 'e4m3fn')
except TypeError as error:
    print(error)
"""
    assert (
        run(code)
        == "[decode] NumPy has no bfloat16 of its own: install ml_dtypes, or ask for float32"
    )


def test_quantize_without_ml_dtypes_and_torch():
    code = """
sys.modules['ml_dtypes'] = sys.modules['torch'] = None  # as if not installed
import numpy as np, octavo as ov
q = ov.quantize(np.ones((2, 32), np.float32), 'mxfp8')
assert q.codes.dtype == np.uint8 and q.scales.dtype == np.uint8
assert ov.dequantize(q).tolist() == [[1.0] * 32] * 2
assert ov.dequantize(ov.quantized(q.codes, q.scales, 'mxfp8'), 'float64').dtype == np.float64
try:
    ov.dequantize(q, 'bfloat16')
except TypeError as error:
    print(error)
"""
    assert (
        run(code)
        == "[dequantize] NumPy has no bfloat16 of its own: install ml_dtypes, or ask for float32"
    )


def test_version():
    assert ov.__version__.count(".") == 2


def test_all_is_there():
    for name in ov.__all__:
        assert hasattr(ov, name), name


def test_doctor():
    report = ov.doctor()
    assert report["octavo"] == ov.__version__ and report["threads"] >= 1
    names = [backend["name"] for backend in report["backends"]]
    assert report["backend"] in names and names[-1] == "reference"
    assert report["cpu"]["name"] and all(
        isinstance(feature, str) for feature in report["cpu"]["features"]
    )
    import json

    assert json.loads(json.dumps(report)) == report


def test_doctor_reports_a_bad_choice(monkeypatch):
    monkeypatch.setenv("OCTAVO_BACKEND", "abacus")
    report = ov.doctor()
    assert report["backend"] is None and "abacus" in report["backend_problem"]


def test_backends(monkeypatch):
    entries = ov.backends()
    assert all(isinstance(entry, ov.Backend) and entry.reason for entry in entries)
    for entry in entries:
        monkeypatch.setenv("OCTAVO_BACKEND", entry.name)
        if entry.usable:
            assert ov.doctor()["backend"] == entry.name
            assert ov.fp8_decode(ov.fp8_encode([1.0, 2.0, 3.0])).tolist() == [1, 2, 3]
