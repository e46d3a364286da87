"""Tracers that would record the numbers of one call as constants: octavo refuses, and says what
works."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import octavo as ov  # noqa: E402
import octavo.torch as te  # noqa: E402
from octavo.recipe import MXFP8BlockScaling  # noqa: E402

RECIPE = MXFP8BlockScaling()


def layer(codes=False):
    """Frozen: torch.jit.trace refuses parameters of a closure before octavo is asked."""
    torch.manual_seed(0)
    with te.quantized_model_init(enabled=codes, recipe=RECIPE):
        return te.Linear(32, 32, device="cpu").requires_grad_(False)


def called(module):
    def call(x):
        with te.autocast(recipe=RECIPE):
            return module(x)

    return call


CALLS = {
    "Linear": lambda: called(layer()),
    "Linear of codes": lambda: called(layer(codes=True)),
    "Linear without a recipe": layer,
    "DotProductAttention": lambda: (
        lambda x: te.DotProductAttention(1, 32)(*(x.view(4, 1, 1, 32),) * 3)
    ),
    "scaled_dot_product_attention": lambda: (
        lambda x: te.scaled_dot_product_attention(x, x, x, precision="f32")
    ),
    "a quantizer": lambda: lambda x: te.MXFP8Quantizer("e4m3fn").quantize(x).dequantize(),
    "the values of a weight": lambda: (lambda w: lambda x: x @ w)(layer(codes=True).weight),
    "quantize": lambda: lambda x: ov.quantize(x, "mxfp8").dequantize(),
    "gemm": lambda: lambda x: ov.gemm(x, x),
}


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", CALLS)
def test_make_fx_is_refused(name, mode):
    with torch.no_grad(), pytest.raises(RuntimeError, match="torch.compile"):
        make_fx(CALLS[name](), tracing_mode=mode)(torch.randn(4, 32))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"the values of a weight"}))
def test_jit_trace_is_refused(name):
    with torch.no_grad(), pytest.raises(RuntimeError, match="torch.jit.trace records"):
        torch.jit.trace(CALLS[name](), (torch.randn(4, 32),))


def test_gradients_are_refused_as_well():
    module = layer()

    def gradient(x):
        return torch.autograd.grad(called(module)(x).sum(), x)[0]

    with pytest.raises(RuntimeError, match="make_fx records"):
        make_fx(gradient)(torch.randn(4, 32, requires_grad=True))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["Linear", "Linear of codes"])
def test_torch_compile_is_the_way_that_works(name):
    call, compiled = CALLS[name](), torch.compile(CALLS[name](), backend="eager")
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(4, 32)
            assert torch.equal(compiled(x), call(x))


def test_other_modes_see_a_call():
    """A mode that records nothing is no tracer."""
    from torch.utils.flop_counter import FlopCounterMode

    call, x = CALLS["Linear"](), torch.randn(4, 32)
    with FlopCounterMode(display=False):
        y = call(x)
    assert torch.equal(y, call(x))
