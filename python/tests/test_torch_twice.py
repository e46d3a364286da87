"""Gradients of gradients are not offered, which is an error and never a zero."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import MXFP8BlockScaling  # noqa: E402


def attended(function):
    def of(x):
        return function(x, x.detach(), x.detach())

    return of


LAYERS = {
    "Linear": lambda: te.Linear(32, 32, device="cpu"),
    "DotProductAttention": lambda: attended(te.DotProductAttention(4, 32)),
    "scaled_dot_product_attention": lambda: attended(te.scaled_dot_product_attention),
}


@pytest.mark.parametrize("recipe", [None, MXFP8BlockScaling(fp8_dpa=True)])
@pytest.mark.parametrize("name", LAYERS)
def test_a_penalty_on_gradients_is_refused(name, recipe):
    x = torch.randn(4, 2, 4, 32, requires_grad=True)
    with te.autocast(enabled=recipe is not None, recipe=recipe):
        y = LAYERS[name]()(x)
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert gradient.isfinite().all()
    with pytest.raises(RuntimeError, match=rf"\[{name}\] gradients of gradients"):
        gradient.norm().backward()


@pytest.mark.parametrize("name", LAYERS)
def test_once_is_as_ever(name):
    x = torch.randn(4, 2, 4, 32, requires_grad=True)
    layer = LAYERS[name]()
    (want,) = torch.autograd.grad(layer(x).sum(), x)
    assert not want.requires_grad
    (got,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    assert torch.equal(got, want)
