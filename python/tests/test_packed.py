"""Codes of fewer than eight bits as streams of bits."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov


def test_fp4_low_nibble_first():
    packed = ov.encode([[0.5, 1.0, 6.0], [-0.5, 0.0, 2.0]], "e2m1fn", packed=True)
    assert packed.dtype == np.uint8 and packed.tolist() == [[0x21, 0x07], [0x09, 0x04]]
    assert ov.decode(packed, format="e2m1fn", packed=True, cols=3).tolist() == [
        [0.5, 1, 6],
        [-0.5, 0, 2],
    ]
    assert ov.decode(packed, format="e2m1fn", packed=True).shape == (2, 4)


@pytest.mark.parametrize("name", ["e2m1fn", "e3m2fn", "e2m3fn", "e2m2fn", "e3m3fn"])
@pytest.mark.parametrize("cols", [0, 1, 2, 3, 4, 5, 31, 64])
def test_round_trip(name, cols):
    f = ov.format(name)
    x = np.random.default_rng(cols).choice(f.values(), (5, cols))
    packed = ov.encode(x, f, packed=True)
    assert packed.shape == (5, -(-cols * f.bits // 8))
    np.testing.assert_array_equal(ov.decode(packed, "float64", f, packed=True, cols=cols), x)
    np.testing.assert_array_equal(ov.decode(ov.encode(x, f), "float64", f), x)


def test_torch_fp4_dtype(torch):
    x = torch.tensor([[0.5, 1.0, 6.0, -2.0]])
    packed = ov.encode(x, "e2m1fn", packed=True)
    assert packed.dtype is torch.float4_e2m1fn_x2 and packed.shape == (1, 2)
    assert torch.equal(ov.decode(packed), x)
    assert ov.encode(packed, "e4m3fn").float().tolist() == x.tolist()
    assert ov.encode(x, "e3m2fn", packed=True).dtype is torch.uint8
    out = torch.empty(1, 2, dtype=torch.float4_e2m1fn_x2)
    assert ov.encode(x, "e2m1fn", packed=True, out=out) is out
    assert torch.equal(out.view(torch.uint8), packed.view(torch.uint8))


def test_packed_codes_as_a_source(torch):
    packed = ov.encode(torch.tensor([0.5, 1.0, 6.0, -2.0]), "e2m1fn", packed=True)
    codes = ov.round_to_fp8_represented_as_int8(packed, 3, scaling_factor=2)
    assert ov.undo_int8_fp8(codes, 3).tolist() == [1, 2, 12, -4]
    with pytest.raises(ValueError, match=r"^\[decode\] got a scalar of dtype torch.float4"):
        ov.decode(packed[0])


def test_strided_rows():
    packed = ov.encode(np.ones((4, 6), np.float32), "e2m1fn", packed=True)
    assert ov.decode(packed[::2], format="e2m1fn", packed=True).tolist() == [[1.0] * 6] * 2
    with pytest.raises(
        ValueError,
        match=r"^\[decode\] got packed rows with a stride of 2 bytes; expected them contiguous",
    ):
        ov.decode(packed[:, ::2], format="e2m1fn", packed=True)


def test_errors(torch):
    with pytest.raises(
        ValueError,
        match=r"^\[encode\] got packed codes of e4m3fn, which has 8 bits, and only codes",
    ):
        ov.encode([1.0], "e4m3fn", packed=True)
    with pytest.raises(
        ValueError,
        match=r"^\[encode\] a scalar cannot be packed; give an array of at least one",
    ):
        ov.encode(1.0, "e2m1fn", packed=True)
    with pytest.raises(
        ValueError,
        match=r"^\[decode\] got cols = 5, but 5 codes of e2m1fn take 3 bytes and the rows",
    ):
        ov.decode(np.zeros((1, 2), np.uint8), format="e2m1fn", packed=True, cols=5)
    with pytest.raises(ValueError, match=r"^\[decode\] got cols, which is for packed codes"):
        ov.decode(np.zeros((1, 2), np.uint8), format="e2m1fn", cols=2)
    with pytest.raises(
        ValueError,
        match=r"^\[decode\] got packed=False, but the dtype of the codes is a packed one",
    ):
        ov.decode(torch.empty(2, dtype=torch.float4_e2m1fn_x2), packed=False)
    with pytest.raises(
        TypeError,
        match=r"^\[encode\] out is of a dtype for packed codes of e2m1fn, but the codes will be "
        r"unpacked; say packed=True, or give an out of uint8$",
    ):
        ov.encode(torch.ones(2), "e2m1fn", out=torch.empty(2, dtype=torch.float4_e2m1fn_x2))
