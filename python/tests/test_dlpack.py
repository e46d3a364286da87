"""Unknown array libraries: arrays come in through DLPack, and results go back the same way."""

from __future__ import annotations

import gc
import sys
import types
import weakref

import numpy as np
import pytest

import octavo as ov


@pytest.fixture
def strange(torch, monkeypatch):
    """A library with dtypes like torch's, whose arrays are exchanged through DLPack only."""
    module = types.ModuleType("strange")

    class StrangeArray:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **kwargs):
            return self.tensor.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    StrangeArray.__module__ = "strange.core"
    module.Array = StrangeArray
    module.dlpack = types.SimpleNamespace(from_dlpack=lambda x: StrangeArray(torch.from_dlpack(x)))
    monkeypatch.setitem(sys.modules, "strange", module)
    return module


class Legacy:
    """A library from before DLPack 1.0, without a from_dlpack that could be found."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_round_trip(strange, torch):
    x = strange.Array(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    codes = ov.encode(x, "e4m3fn")
    assert type(codes) is strange.Array and codes.tensor.dtype is torch.float8_e4m3fn
    assert torch.equal(ov.decode(codes).tensor, x.tensor)
    assert ov.decode(codes, "bfloat16").tensor.dtype is torch.bfloat16
    assert ov.cast(codes, "e5m2").tensor.dtype is torch.float8_e5m2
    assert ov.cast(x, "float64").tensor.dtype is torch.float64


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_every_value_type(dtype, strange, torch):
    x = strange.Array(torch.tensor([1.0, -2.0], dtype=getattr(torch, dtype)))
    codes, counts = ov.encode(x, "e5m2", counts=True)
    assert codes.tensor.float().tolist() == [1, -2] and counts == ov.Counts(0, 0, 0)
    assert ov.cast(x, "float32").tensor.tolist() == [1, -2]


def test_formats_it_has_no_dtype_for_are_integers(strange, torch):
    x = strange.Array(torch.ones(2))
    assert (
        ov.encode(x, "e3m4").tensor.dtype is torch.uint8
    )  # DLPack has a name for it, torch does not
    assert ov.encode(x, "e3m3").tensor.dtype is torch.uint8
    assert ov.encode(x, "e5m6").tensor.dtype is torch.uint16
    assert ov.encode(x, "e3m2fn", packed=True).tensor.tolist() == [0x0C, 0x03]
    packed = strange.Array(torch.tensor([0x21], dtype=torch.uint8))
    assert ov.decode(packed, format="e2m1fn", packed=True).tensor.tolist() == [0.5, 1]


def test_fp4_pairs(strange, torch):
    x = strange.Array(torch.tensor([[0.5, 1.0, 6.0, -2.0]]))
    packed = ov.encode(x, "e2m1fn", packed=True)
    assert packed.tensor.dtype is torch.float4_e2m1fn_x2 and packed.tensor.shape == (1, 2)
    assert torch.equal(ov.decode(packed).tensor, x.tensor)
    assert torch.equal(ov.encode(packed, "e4m3fn").tensor.float(), x.tensor)


def test_strides_and_shapes(strange, torch):
    base = torch.randn(4, 6, 8)
    for t in (base[::2], base.permute(2, 0, 1), base[..., ::3], base[0, 0, 0], base[:0]):
        mine = ov.encode(strange.Array(t), "e4m3fn").tensor
        assert mine.shape == t.shape and torch.equal(mine.float(), ov.encode(t, "e4m3fn").float())


def test_no_copy_in(strange, torch):
    t = torch.zeros(4)
    x = strange.Array(t)
    t[:] = 2.0
    assert ov.decode(ov.encode(x, "e4m3fn")).tensor.tolist() == [2.0] * 4


def test_out(strange, torch):
    x, out = (
        strange.Array(torch.tensor([1.0, 2.0])),
        strange.Array(torch.zeros(2, dtype=torch.uint8)),
    )
    assert ov.encode(x, "e4m3fn", out=out) is out and out.tensor.tolist() == [0x38, 0x40]
    values = strange.Array(torch.zeros(2))
    assert ov.decode(out, format="e4m3fn", out=values) is values and values.tensor.tolist() == [
        1,
        2,
    ]
    with pytest.raises(
        TypeError, match=r"^\[encode\] out is a torch tensor, but the input is a DLPack array"
    ):
        ov.encode(x, "e4m3fn", out=torch.zeros(2, dtype=torch.uint8))


def test_compat(strange, torch):
    codes, factor = ov.round_to_fp8_represented_as_int8(
        strange.Array(torch.tensor([0.5])), 3, scaling_factor="auto"
    )
    assert codes.tensor.dtype is torch.uint8 and factor == 512
    assert ov.undo_int8_fp8(codes, 3, "bfloat16", scaling_factor=factor).tensor.tolist() == [0.5]


def test_memory_lives_as_long_as_the_result(strange, torch):
    codes = ov.encode(strange.Array(torch.ones(1 << 16)), "e4m3fn")
    gc.collect()
    junk = [np.zeros(1 << 16, np.uint8) for _ in range(8)]
    assert (codes.tensor.view(torch.uint8) == 0x38).all() and len(junk) == 8


def test_inputs_are_let_go(strange, torch):
    t = torch.ones(16)
    gone = weakref.ref(t)
    ov.encode(strange.Array(t), "e4m3fn")
    del t
    gc.collect()
    assert gone() is None


def test_legacy_producer_gets_numpy_back(ml_dtypes):
    codes = ov.encode(Legacy(np.float32([1, 2])), "e4m3fn")
    assert (
        type(codes) is np.ndarray
        and codes.dtype == ml_dtypes.float8_e4m3fn
        and codes.tolist() == [1, 2]
    )
    assert ov.encode(Legacy(np.float32([1, 2])), "e3m3").dtype == np.uint8
    assert ov.decode(Legacy(codes.view(np.uint8)), "bfloat16", "e4m3fn").dtype == ml_dtypes.bfloat16
    gc.collect()
    assert codes.tolist() == [1, 2] and codes.flags.writeable


def test_legacy_out_is_refused():
    # Without a version a capsule cannot say that it must not be written.
    with pytest.raises(ValueError, match=r"^\[encode\] out is read-only"):
        ov.encode(Legacy(np.float32([1])), "e4m3fn", out=Legacy(np.zeros(1, np.uint8)))


def test_read_only_producer():
    class ReadOnly:
        def __init__(self, array):
            self.array = array
            array.flags.writeable = False

        def __dlpack__(self, **kwargs):
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return (1, 0)

    assert ov.encode(ReadOnly(np.float32([1, 2])), "e4m3fn").tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"^\[encode\] out is read-only"):
        ov.encode(ReadOnly(np.float32([1])), "e4m3fn", out=ReadOnly(np.zeros(1, np.uint8)))


def test_array_api_namespace(ml_dtypes):
    class Standard:
        def __init__(self, array):
            self.array = np.asarray(array)

        def __dlpack__(self, **kwargs):
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return (1, 0)

        def __array_namespace__(self):
            # NumPy takes no float8 through DLPack.
            return types.SimpleNamespace(from_dlpack=lambda x: Standard(np.from_dlpack(x)))

    codes = ov.encode(Standard(np.float32([1, 2])), "e4m3fn")
    assert (
        type(codes) is Standard
        and codes.array.dtype == np.uint8
        and codes.array.tolist() == [0x38, 0x40]
    )


def test_errors(strange, torch):
    class OnGpu:
        def __dlpack__(self, **kwargs):
            raise AssertionError("must not be asked")

        def __dlpack_device__(self):
            return self.device

    OnGpu.device = (10, 0)
    with pytest.raises(
        RuntimeError,
        match=r"^\[encode\] got an array on DLPack device 10, and octavo computes on the CPU",
    ):
        ov.encode(OnGpu(), "e4m3fn")
    OnGpu.device = (2, 63)  # not there, or built without CUDA: it says which
    with pytest.raises(RuntimeError, match=r"^\[cuda\] "):
        ov.encode(OnGpu(), "e4m3fn")

    class Refuses:
        def __dlpack__(self, **kwargs):
            raise BufferError("not today")

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(
        TypeError, match=r"^\[encode\] Refuses cannot be used through DLPack: not today"
    ):
        ov.encode(Refuses(), "e4m3fn")

    class Lies(Refuses):
        def __dlpack__(self, **kwargs):
            return 7

    with pytest.raises(
        TypeError,
        match=r"^\[encode\] Lies cannot be used through DLPack: \[from_dlpack\] got something that",
    ):
        ov.encode(Lies(), "e4m3fn")
    for dtype in ("int32", "bool", "complex64"):
        x = strange.Array(torch.zeros(2, dtype=getattr(torch, dtype)))
        with pytest.raises(
            TypeError, match=r"cannot be used through DLPack: \[from_dlpack\] got DLPack type code "
        ):
            ov.encode(x, "e4m3fn")
    with pytest.raises(
        TypeError, match=r"^\[encode\] got uint8, which may be numbers or codes; .* to float32;"
    ):
        ov.encode(strange.Array(torch.zeros(2, dtype=torch.uint8)), "e4m3fn")
