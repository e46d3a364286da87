"""Any shape, any strides, any order of dimensions."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov


def bits(x) -> list[int]:
    return np.asarray(x).view(np.uint8).ravel().tolist()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (3, 0, 2), (7,), (2, 3, 4), (1,) * 8])
def test_any_shape(shape, torch):
    x = np.full(shape, 1.5, np.float32)
    codes = ov.encode(x, "e4m3fn")
    assert codes.shape == shape and set(bits(codes)) <= {0x3C}
    np.testing.assert_array_equal(ov.decode(codes), x)
    t = torch.full(shape, 1.5)
    assert ov.encode(t, "e4m3fn").shape == t.shape and torch.equal(
        ov.decode(ov.encode(t, "e4m3fn")), t
    )


def test_strides_of_every_kind():
    base = np.random.default_rng(0).normal(size=(6, 8, 10)).astype(np.float32)
    for x in (
        base[::2],
        base[:, ::-1],
        base[..., 1::3],
        base.T,
        base.transpose(1, 0, 2),
        base[::-1, ::2, ::-3],
        np.broadcast_to(base[:1], (6, 8, 10)),
        base[2],
        base[:, 3, 4],
        np.asfortranarray(base),
    ):
        expected = ov.encode(np.ascontiguousarray(x), "e4m3fn").view(np.uint8)
        for threads in (1, 2):
            np.testing.assert_array_equal(
                ov.encode(x, "e4m3fn", threads=threads).view(np.uint8), expected
            )


def test_torch_strides(torch):
    base = torch.randn(6, 8, 10)
    for x in (
        base[::2],
        base[..., 1::3],
        base.permute(2, 0, 1),
        base[:1].expand(6, 8, 10),
        base.transpose(0, 1)[1],
    ):
        expected = ov.encode(x.contiguous(), "e4m3fn")
        assert torch.equal(ov.encode(x, "e4m3fn").view(torch.uint8), expected.view(torch.uint8))


def test_results_keep_the_order_of_dimensions(torch):
    x = np.asfortranarray(np.ones((3, 4), np.float32))
    assert ov.encode(x, "e4m3fn").flags.f_contiguous
    assert ov.decode(ov.encode(x, "e4m3fn")).flags.f_contiguous
    t = torch.ones(3, 4).T
    assert ov.encode(t, "e4m3fn").stride() == t.stride()


def test_misaligned():
    raw = np.zeros(4 * 100 + 1, np.uint8)
    x = raw[1:].view(np.float32)
    x[:] = np.linspace(-4, 4, 100)
    np.testing.assert_array_equal(
        ov.encode(x, "e4m3fn").view(np.uint8), ov.encode(x.copy(), "e4m3fn").view(np.uint8)
    )


def test_subclass_gives_plain_array():
    class Mine(np.ndarray):
        pass

    assert type(ov.encode(np.ones(3, np.float32).view(Mine), "e4m3fn")) is np.ndarray


def test_too_many_dimensions():
    with pytest.raises(
        ValueError,
        match=r"^\[encode\] got 9 dimensions; expected at most 8; collapse leading dimensions$",
    ):
        ov.encode(np.ones((1,) * 9, np.float32), "e4m3fn")
