"""Norms and activations against formulas in float64, on arrays of NumPy, ml_dtypes and torch."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import octavo as ov

# float64 has digits to spare, so what separates the library from the formula is its one rounding to
# float32, half a unit in the last place; a whole unit leaves room for exp and sums.
F32 = {"rtol": 2.0**-23, "atol": 2.0**-149}
# And a second rounding where results are of 16 bits: half a unit of 8 or 11 digits.
STEPS = {"float32": 2.0**-23, "bfloat16": 2.0**-8 + 2.0**-23, "float16": 2.0**-11 + 2.0**-23}

erfc = np.vectorize(math.erfc, otypes=[np.float64])


def normal(x):
    return x * (0.5 * erfc(-x / math.sqrt(2)))


def normal_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def logistic(x):
    return x / (1 + np.exp(-x))


def norm(x, weight, bias, eps):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight + bias


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def values(shape=(5, 48), seed=1):
    return np.random.default_rng(seed).normal(0, 2, shape)


DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("function", "formula"),
    [
        (ov.gelu, normal),
        (lambda x, **more: ov.gelu(x, approximate="tanh", **more), normal_tanh),
        (ov.relu, lambda x: np.maximum(x, 0)),
        (ov.silu, logistic),
        (ov.swiglu, lambda x: logistic(x[..., :24]) * x[..., 24:]),
        (ov.geglu, lambda x: normal(x[..., :24]) * x[..., 24:]),
        (
            lambda x, **more: ov.geglu(x, approximate="tanh", **more),
            lambda x: normal_tanh(x[..., :24]) * x[..., 24:],
        ),
        (ov.layer_norm, lambda x: norm(x, 1.0, 0.0, 1e-5)),
        (ov.rms_norm, lambda x: rms(x, 1.0, 1e-5)),
    ],
)
def test_formulas(function, formula, dtype):
    x = values((2, 3, 48)).astype(dtype)
    wanted = formula(x.astype(np.float64))
    got = function(x, dtype="float32")
    assert got.dtype == np.float32 and got.shape == wanted.shape
    # 1 + tanh cancels in the formula itself: an absolute 2**-52 of it.
    np.testing.assert_allclose(got, wanted, rtol=F32["rtol"], atol=1e-14)
    same = function(x)
    name = "float32" if dtype is np.float64 else np.dtype(dtype).name
    assert same.dtype.name == name
    np.testing.assert_allclose(same.astype(np.float64), wanted, rtol=STEPS[name], atol=2.0**-25)


@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_weights(dtype, zero_centred):
    x = values().astype(np.float32)
    weight, bias = (values((48,), seed).astype(dtype) for seed in (2, 3))
    gamma = weight.astype(np.float64) + zero_centred
    wide = x.astype(np.float64)
    wanted = norm(wide, gamma, bias.astype(np.float64), 0.25)
    got = ov.layer_norm(x, weight, bias, eps=0.25, zero_centred=zero_centred)
    np.testing.assert_allclose(got, wanted, rtol=F32["rtol"], atol=1e-14)
    got = ov.rms_norm(x, weight, eps=0.25, zero_centred=zero_centred)
    np.testing.assert_allclose(got, rms(wide, gamma, 0.25), **F32)


@pytest.mark.parametrize("preset", ov.preset_names())
def test_quantized_without_a_rounding_in_between(preset):
    x = values((40, 96)).astype(ml_dtypes.bfloat16)
    weight = values((96,), 2).astype(np.float32)
    for make in (
        lambda **how: ov.layer_norm(x, weight, **how),
        lambda **how: ov.rms_norm(x, weight, **how),
        lambda **how: ov.gelu(x, **how),
        lambda **how: ov.swiglu(x, **how),
    ):
        got = make(quantize=preset)
        wanted = ov.quantize(make(dtype="float32"), preset)
        assert got.shape == wanted.shape
        assert got.codes.tobytes() == wanted.codes.tobytes()
        assert got.scales.tobytes() == wanted.scales.tobytes()


def test_a_scaling_with_both_copies():
    x = values((40, 96)).astype(np.float32)
    scaling = ov.Scaling(format="e4m3fn", tile=(1, 32), scale="e8m0", rule="rceil", columnwise=True)
    got, wanted = ov.silu(x, quantize=scaling), ov.quantize(ov.silu(x), scaling)
    assert got.columnwise_codes.tobytes() == wanted.columnwise_codes.tobytes()


def test_torch():
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    x = torch.from_numpy(values((4, 6, 64)).astype(np.float32))
    weight, bias = torch.ones(64) * 1.5, torch.ones(64) * 0.25
    wide = x.double()
    close = torch.testing.assert_close
    for got, wanted in (
        (ov.layer_norm(x, weight, bias),
         functional.layer_norm(wide, (64,), weight.double(), bias.double())),
        (ov.rms_norm(x, weight), functional.rms_norm(wide, (64,), weight.double(), 1e-5)),
        (ov.gelu(x), functional.gelu(wide)),
        (ov.gelu(x, approximate="tanh"), functional.gelu(wide, approximate="tanh")),
        (ov.silu(x), functional.silu(wide)),
        (ov.relu(x), functional.relu(wide)),
        (ov.swiglu(x), functional.silu(wide[..., :32]) * wide[..., 32:]),
    ):  # fmt: skip
        assert isinstance(got, torch.Tensor) and got.dtype == torch.float32
        close(got.double(), wanted, rtol=F32["rtol"], atol=1e-14)
    half = ov.gelu(x.bfloat16().transpose(0, 1))
    assert half.dtype == torch.bfloat16 and half.shape == (6, 4, 64)
    q = ov.rms_norm(x, weight, quantize="mxfp8")
    assert isinstance(q.codes, torch.Tensor)


def test_out():
    x = values((3, 8)).astype(np.float32)
    out = np.empty((3, 8), np.float16)
    assert ov.silu(x, out=out) is out
    np.testing.assert_array_equal(out, ov.silu(x, dtype="float16"))


def test_numbers_empty_arrays_and_nan():
    np.testing.assert_array_equal(ov.relu([1.0, -2.0]), [1, 0])
    assert ov.layer_norm(np.empty((0, 4), np.float32)).shape == (0, 4)
    assert ov.swiglu(np.empty((2, 0), np.float32)).shape == (2, 0)
    assert np.isnan(ov.relu(np.float32([np.nan]))).all()
    assert np.isnan(ov.layer_norm(np.float32([[1, 2, np.inf]]))).all()
    q = ov.gelu(np.float32([[1, np.nan] + [0] * 30]), quantize="mxfp8")
    assert np.isnan(ov.dequantize(q)).all()


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, r"\[layer_norm\] the weight has shape \[3\]; expected \[4\]",
         lambda x: ov.layer_norm(x, np.ones(3))),
        (ValueError, r"\[layer_norm\] the bias has shape \[0\]; expected \[4\]",
         lambda x: ov.layer_norm(x, None, np.ones(0))),
        (TypeError, r"\[layer_norm: weight\] got int", lambda x: ov.layer_norm(x, np.ones(4, int))),
        (ValueError, r"\[rms_norm\] got epsilon = -1", lambda x: ov.rms_norm(x, eps=-1)),
        (TypeError, r"\[rms_norm\] got eps of type NoneType", lambda x: ov.rms_norm(x, eps=None)),
        (ValueError, r"\[swiglu\] the last dimension is 3", lambda x: ov.swiglu(x[:, :3])),
        (ValueError, r"\[gelu\] got approximate = 'erf'", lambda x: ov.gelu(x, approximate="erf")),
        (TypeError, r"\[silu\] got dtype float64", lambda x: ov.silu(x, dtype="float64")),
        (ValueError, r"\[silu\] got quantize and dtype",
         lambda x: ov.silu(x, quantize="fp8", dtype="float32")),
        (ValueError, "overlaps the input", lambda x: ov.silu(x, out=x)),
        (ValueError, r"\[silu\] out has shape \(2, 2\); expected \(2, 4\)",
         lambda x: ov.silu(x, out=np.empty((2, 2), np.float32))),
        (ValueError, "preset", lambda x: ov.silu(x, quantize="fp9")),
        (ValueError, r"\[layer_norm\] the input is a single number",
         lambda x: ov.layer_norm(np.float32(1))),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(error, message, call):
    with pytest.raises(error, match=message):
        call(np.ones((2, 4), np.float32))
