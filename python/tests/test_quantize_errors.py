"""What cannot be quantized is refused by name, before anything is written."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov

X = np.ones((4, 64), np.float32)


@pytest.mark.parametrize(
    ("x", "scaling", "error", "message"),
    [
        (X, "mxfp9", ValueError, "[preset] got 'mxfp9'; expected one of fp8, fp8-channel"),
        (X, None, TypeError, "[quantize] got a scaling of type NoneType"),
        (X.astype(np.int32), "fp8", TypeError, "[quantize] got int32; expected float64"),
        (X.astype(np.uint8), "fp8", TypeError, "convert first: x.astype(np.float32)"),
        (X.astype(complex), "fp8", TypeError, "[quantize] got complex128"),
        ("text", "fp8", TypeError, "[quantize] got str; expected an array"),
        (ov.quantize(X, "fp8"), "fp8", TypeError, "got a QuantizedTensor; expected values"),
        (ov.encode(X, "e5m2"), "fp8", TypeError, "use requantize for codes with scales"),
        (X.reshape((1,) * 7 + (4, 64)), "fp8", ValueError, "got 9 dimensions; expected at most 8"),
        (X, ov.Scaling(axis=2), ValueError, "got axis 2; expected -2 to 1"),
        (X, ov.Scaling(tile=(2, 32), axis=0), ValueError, "tiles of several rows run along"),
        (
            np.ones((4, 6, 64), np.float32)[:, :5],
            ov.preset("mxfp8").replace(columnwise=True),
            ValueError,
            "make it contiguous",
        ),
        (
            np.float32([[1, np.nan]]),
            ov.preset("mxfp4").replace(non_finite="saturate"),
            ValueError,
            "e2m1fn cannot hold NaN",
        ),
        (X.astype(float), ov.Scaling(hadamard="rowwise"), TypeError, "the Hadamard transform"),
    ],
)
def test_quantize(x, scaling, error, message):
    with pytest.raises(error) as caught:
        ov.quantize(x, scaling)
    assert message in str(caught.value)


@pytest.mark.parametrize("function", [ov.fp8_quantize, ov.amax])
def test_other_functions_take_values_only(function):
    name = function.__name__
    with pytest.raises(TypeError, match=rf"\[{name}\] got int64"):
        function(np.arange(3))
    with pytest.raises(TypeError, match=rf"\[{name}\] got float8_e5m2, which are codes"):
        function(ov.encode(X, "e5m2"))
    with pytest.raises(ValueError, match=rf"\[{name}\] got threads = -1"):
        function(X, threads=-1)


@pytest.mark.parametrize("threads", [-1, 1025])
def test_threads(threads):
    q = ov.quantize(X, "mxfp8")
    for call in (
        lambda: ov.quantize(X, "mxfp8", threads=threads),
        lambda: ov.requantize(q, "fp8", threads=threads),
        lambda: ov.dequantize(q, threads=threads),
    ):
        with pytest.raises(ValueError, match=rf"got threads = {threads}; expected 0 to 1024"):
            call()


def test_out_that_does_not_fit(torch):
    q = ov.quantize(X, "mxfp8")
    before = q.codes.tobytes()
    with pytest.raises(TypeError, match="got ndarray; expected a QuantizedTensor"):
        ov.quantize(X, "mxfp8", out=q.codes)
    with pytest.raises(ValueError, match=r"out is for octavo.Scaling\(format='e4m3fn'"):
        ov.quantize(2 * X, "mxfp8:e5m2", out=q)
    with pytest.raises(
        ValueError, match=r"input has shape \[2, 64\] and the result is for \[4, 64\]"
    ):
        ov.quantize(2 * X[:2], "mxfp8", out=q)
    with pytest.raises(TypeError, match="out is of a NumPy array, but the input is a torch"):
        ov.quantize(torch.ones(4, 64), "mxfp8", out=q)
    assert q.codes.tobytes() == before


def test_out_that_is_read_only():
    q = ov.quantize(X, "mxfp8")
    frozen = q.codes.copy()
    frozen.setflags(write=False)
    made = ov.quantized(frozen, q.scales, "mxfp8")
    assert not made.codes.flags.writeable
    with pytest.raises(ValueError, match="out has memory that is read-only"):
        ov.quantize(2 * X, "mxfp8", out=made)


def test_dequantize(torch):
    q = ov.quantize(X, "mxfp8")
    for out, error, message in [
        (np.empty((4, 32), np.float32), ValueError, r"out has shape \(4, 32\); expected \(4, 64\)"),
        (np.empty((4, 64), np.int32), TypeError, "got dtype int32; expected float64"),
        (torch.empty(4, 64), TypeError, "out is a torch tensor, but the input is a NumPy array"),
        (np.empty((4, 128), np.float32)[:, ::2], ValueError, "not contiguous"),
        (np.broadcast_to(np.float32(0), (4, 64)), ValueError, "read-only"),
    ]:
        with pytest.raises(error, match=message):
            ov.dequantize(q, out=out)
    with pytest.raises(TypeError, match="out is of dtype float16; expected float32"):
        ov.dequantize(q, "float32", out=np.empty((4, 64), np.float16))
    with pytest.raises(TypeError, match="got dtype int8; expected float64, float32"):
        ov.dequantize(q, "int8")
    with pytest.raises(TypeError, match=r"\[dequantize\] got ndarray; expected a QuantizedTensor"):
        ov.dequantize(q.codes)
    with pytest.raises(TypeError, match=r"\[requantize\] got ndarray"):
        ov.requantize(q.codes, "fp8")
    with pytest.raises(TypeError, match="made by octavo.quantize"):
        ov.QuantizedTensor(q.codes, q.scales)


def test_what_is_not_offered_is_a_runtime_error():
    rotated = ov.quantize(X, ov.preset("nvfp4").replace(hadamard="rowwise"))
    with pytest.raises(RuntimeError, match="Hadamard-transformed; dequantize it first"):
        ov.requantize(rotated, "fp8")
    with pytest.raises(RuntimeError, match="inverse Hadamard transform is done in float32"):
        ov.dequantize(rotated, "float64")


def test_torch_refusals(torch):
    with pytest.raises(RuntimeError, match="requires grad"):
        ov.quantize(torch.ones(4, 64, requires_grad=True), "mxfp8")
    with pytest.raises(TypeError, match="x.float()"):
        ov.quantize(torch.ones(4, 64, dtype=torch.int32), "mxfp8")
    with torch.no_grad():
        q = ov.quantize(torch.ones(4, 64, requires_grad=True), "mxfp8")
    assert not ov.dequantize(q).requires_grad


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"tile": 32}, TypeError, "got tile=32 of type int; expected two sizes such as (1, 32)"),
        ({"tile": (1, 2, 3)}, TypeError, "got tile=(1, 2, 3) of type tuple; expected two sizes"),
        ({"tile": (1.5, 2)}, TypeError, "got tile=1.5 of type float; expected a whole number"),
        (
            {"tile": (1, 2**70)},
            ValueError,
            "got tile=1180591620717411303424; expected 0 to 2^63 - 1",
        ),
        ({"scale": 3}, TypeError, "got scale=3 of type int; expected a name in quotes"),
        ({"rule": 3}, TypeError, "got rule=3 of type int; expected a name in quotes"),
        ({"policy": 99}, TypeError, "got policy=99 of type int"),
        ({"margin": 1.5}, TypeError, "got margin=1.5 of type float; expected a whole number"),
        ({"margin": True}, TypeError, "got margin=True of type bool; expected a whole number"),
        ({"margin": np.arange(3)}, TypeError, "got margin=array([0, 1, 2]) of type ndarray"),
        ({"min_amax": "a"}, TypeError, "got min_amax='a' of type str; expected a number"),
        ({"seed": -1}, ValueError, "got seed=-1; expected 0 to 18446744073709551615"),
        ({"axis": 2**40}, ValueError, "got axis=1099511627776; expected -2147483648 to 2147483647"),
        ({"hadamard_signs": 70000}, ValueError, "got hadamard_signs=70000; expected 0 to 65535"),
        ({"rowwise": 1}, TypeError, "got rowwise=1 of type int; expected True or False"),
        ({"packed": "yes"}, TypeError, "got packed='yes' of type str; expected True or False"),
        (
            {"tiles": 3},
            TypeError,
            "'tiles', which is no argument of Scaling; expected one of format",
        ),
    ],
)
def test_scaling(arguments, error, message):
    for call in (ov.Scaling, ov.preset("fp8").replace):
        with pytest.raises(error) as caught:
            call(**arguments)
        assert str(caught.value).startswith("[scaling] got ")
        assert message in str(caught.value)


def test_scaling_without_names():
    assert ov.Scaling("e5m2", [2, np.int64(16)]) == ov.Scaling(format="e5m2", tile=(2, 16))
    assert ov.Scaling(columnwise=np.bool_(True)).columnwise
    with pytest.raises(TypeError, match="got 3 arguments without a name; expected at most 2"):
        ov.Scaling("e4m3fn", (1, 32), "e8m0")
    with pytest.raises(TypeError, match="got format twice"):
        ov.Scaling("e4m3fn", format="e5m2")


def test_nan_advice_fits_the_arith():
    x = np.float32([[1, np.nan]])
    with pytest.raises(ValueError, match="arith te never poisons") as caught:
        ov.quantize(x, ov.preset("mxfp4").replace(arith="te"))
    assert "non_finite" not in str(caught.value)
