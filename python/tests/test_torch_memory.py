"""Tensors that have elements and no memory of their own: refused by name, never read at address
zero, never taken for an argument that was left out."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo as ov  # noqa: E402
import octavo.torch as te  # noqa: E402
from octavo import quantizers  # noqa: E402

WHY = "without memory of its own; expected a tensor with values"


class Wrapper(torch.Tensor):
    """Around another tensor, as DTensor is."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].inner)
        raise NotImplementedError(func)


def fake(x):
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(x)


def freed(x):
    made = x.clone()
    made.untyped_storage().resize_(0)
    return made


KINDS = {"a wrapper": Wrapper, "a fake tensor": fake, "a freed storage": freed}


@pytest.fixture(params=KINDS)
def without(request):
    return KINDS[request.param]


CALLS = {
    "encode": lambda x: ov.encode(x, "e4m3fn"),
    "quantize": lambda x: ov.quantize(x, "mxfp8"),
    "amax": ov.amax,
    "gemm": lambda x: ov.gemm(x, x),
    "attention": lambda x: ov.attention(x, x, x),
    "error": lambda x: ov.error(x, x),
    "Linear": lambda x: te.Linear(64, 16, device="cpu")(x),
    "MXFP8Quantizer": lambda x: te.MXFP8Quantizer(te.DType.kFloat8E4M3)(x),
    "scaled_dot_product_attention": lambda x: te.scaled_dot_product_attention(x, x, x),
}


@pytest.mark.parametrize("call", CALLS)
def test_values(call, without):
    with pytest.raises(TypeError, match=WHY):
        CALLS[call](without(torch.ones(32, 64)))


def test_what_is_written(without):
    x, out = torch.ones(4, 64), without(torch.zeros(4, 64, dtype=torch.uint8))
    with pytest.raises(TypeError, match=WHY):
        ov.encode(x, "e4m3fn", out=out)


def test_arguments_beside_the_values(without):
    """A null address stands for an argument that is not there."""
    x = torch.ones(4, 64)
    with pytest.raises(TypeError, match=WHY):
        ov.encode_scaled(x, "e4m3fn", without(torch.full((4, 1), 2.0)))
    with pytest.raises(TypeError, match=WHY):
        ov.quantize(
            x, ov.preset("nvfp4").replace(policy="wmse"), column_weights=without(torch.ones(64))
        )
    history, inv_scale = torch.zeros(4, 2), torch.ones(2)
    for name in ("scale", "calls"):
        given = {name: without(torch.ones(2 if name == "scale" else 1))}
        with pytest.raises(TypeError, match=WHY):
            quantizers.update_delayed(history, inv_scale, **given)
        with pytest.raises(TypeError, match=WHY):
            quantizers.reset_delayed(history, inv_scale, **given)
    codes, scales = torch.zeros(4, 64, dtype=torch.uint8), torch.ones(4, 1)
    for parts in ((without(codes), scales), (codes, without(scales))):
        with pytest.raises(TypeError, match=WHY):
            ov.quantized(*parts, "fp8-channel")


def test_empty_ones_are_arguments():
    """Torch says address zero for what has no elements."""
    history, inv_scale = torch.zeros(4, 2), torch.ones(2)
    for name, shape in (("scale", r"\[0\]"), ("calls", r"\[0\]")):
        with pytest.raises(ValueError, match=f"{name} has shape {shape}"):
            quantizers.update_delayed(history, inv_scale, **{name: torch.empty(0)})
    with pytest.raises(ValueError, match="broadcast"):
        ov.encode_scaled(torch.ones(4, 64), "e4m3fn", torch.empty(0))
    assert ov.encode_scaled(torch.empty(0), "e4m3fn", torch.empty(0)).shape == (0,)
    assert ov.quantize(torch.empty(0, 64), "mxfp8").shape == (0, 64)


def test_inside_of_a_transform():
    with pytest.raises(TypeError, match=WHY):
        torch.func.vmap(lambda x: ov.encode(x, "e4m3fn"))(torch.ones(2, 4))


def test_results_are_in_memory():
    """Under FakeTensorMode torch makes tensors without any."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = torch.ones(4, 64)
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(TypeError, match=WHY):
        ov.encode(x, "e4m3fn")


def test_memory_is_enough():
    class Named(torch.Tensor):
        pass

    x = torch.randn(4, 64)
    want = ov.encode(x, "e4m3fn").view(torch.uint8)
    got = ov.encode(x.as_subclass(Named), "e4m3fn")
    assert np.array_equal(np.asarray(got.view(torch.uint8)), want.numpy())
