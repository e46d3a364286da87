"""Casts with factors of torch CUDA tensors: the CPU's bytes, of any factor and dynamic scale."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
torch = pytest.importorskip("torch", reason="torch is not installed")
from cuda_testing import DTYPES, needs_cuda, same, values  # noqa: E402

import octavo as ov  # noqa: E402

pytestmark = needs_cuda

# torch has dtypes of the first two; of the others codes are bytes.
FORMATS = ["e4m3fn", "e5m2", "e3m4", "e0m7", "e4m4fnu", "e2m1fn"]


def factors(kind: str, dtype: torch.dtype, rows: int, cols: int) -> float | torch.Tensor:
    if kind == "number":
        return 3.0 if dtype == torch.float32 else 0.3
    shape = {"rows": (rows, 1), "columns": (cols,), "elements": (rows, cols)}[kind]
    count = 1
    for size in shape:
        count *= size
    return torch.linspace(0.37, 5.0, count, dtype=dtype).reshape(shape)


def on_device(factor: float | torch.Tensor) -> float | torch.Tensor:
    return factor.cuda() if isinstance(factor, torch.Tensor) else factor


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("of", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["number", "rows", "columns", "elements"])
def test_given_factors(kind, of, dtype, format):
    x = values(37, 136, dtype=dtype)
    factor = factors(kind, of, 37, 136)
    wanted, met = ov.encode_scaled(x, format, factor, counts=True)
    got, counted = ov.encode_scaled(x.cuda(), format, on_device(factor), counts=True)
    assert got.is_cuda and same(got, wanted) and counted == met
    for target in ("float32", "bfloat16", "float16", "float64"):
        for way in ("scale", "inv_scale"):
            back = ov.decode_scaled(wanted, target, format, **{way: factor})
            there = ov.decode_scaled(got, target, format, **{way: on_device(factor)})
            assert there.is_cuda and same(there, back), (target, way)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rule", ["power_of_two", "value"])
def test_dynamic_factors(rule, dtype, format):
    x = values(37, 136, dtype=dtype)
    wanted, factor = ov.encode_scaled(x, format, rule)
    got, made = ov.encode_scaled(x.cuda(), format, rule)
    assert made.is_cuda and made.dtype == torch.float64 and made.item() == factor
    assert same(got, wanted)


def test_one_call_inverts_fp8_quantize():
    x = values(16, 64)
    codes, scale = ov.fp8_quantize(x.cuda())
    wanted, same_scale = ov.fp8_quantize(x)
    assert same(codes, wanted) and float(scale) == float(same_scale)
    assert same(ov.fp8_decode(codes, scale=scale), ov.fp8_decode(wanted, scale=same_scale))


def test_the_stream_that_is_given():
    x, stream = values(64, 64), torch.cuda.Stream()
    on_there = x.cuda()
    torch.cuda.synchronize()
    codes = ov.encode_scaled(on_there, "e4m3fn", 0.3, stream=stream.cuda_stream)
    back = ov.decode_scaled(codes, "float32", inv_scale=0.3, stream=stream.cuda_stream)
    stream.synchronize()
    wanted = ov.encode_scaled(x, "e4m3fn", 0.3)
    assert same(codes, wanted)
    assert same(back, ov.decode_scaled(wanted, "float32", inv_scale=0.3))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_wrong_numbers(bad):
    with pytest.raises(ValueError, match=r"got inv_scale = .*; expected a positive, finite"):
        ov.encode_scaled(values(8, 8).cuda(), "e4m3fn", bad)


def test_factors_elsewhere():
    with pytest.raises(ValueError, match="cuda:0.*cpu|cpu.*cuda:0"):
        ov.encode_scaled(values(8, 8).cuda(), "e4m3fn", torch.ones(8))
