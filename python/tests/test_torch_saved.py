"""What Linear keeps between forward and backward is torch's to pack, to check and to let go."""

from __future__ import annotations

import gc
import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from octavo import _octavo  # noqa: E402
from octavo.recipe import DelayedScaling, MXFP8BlockScaling  # noqa: E402

VALUES = MXFP8BlockScaling(backward_override="high_precision")
RECIPES = {
    "none": None,
    "values": VALUES,
    "codes": MXFP8BlockScaling(),
    "delayed": DelayedScaling(),
}


def made(codes=False):
    torch.manual_seed(0)
    with te.quantized_model_init(enabled=codes, recipe=VALUES):
        return te.Linear(64, 32, device="cpu"), torch.randn(16, 64, requires_grad=True)


def product(linear, x, recipe):
    with te.autocast(enabled=recipe is not None, recipe=recipe):
        return linear(x)


def gradients(linear, x, y, **how):
    leaves = [x, linear.weight, linear.bias]
    return torch.autograd.grad(y, leaves, torch.linspace(-1, 1, y.numel()).view_as(y), **how)


def same(got, want):
    return all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def moved(x):
    return x.detach().clone()


def unpack_is_identity(x):
    return x


HOOKS = {
    "clone": lambda: torch.autograd.graph.saved_tensors_hooks(moved, unpack_is_identity),
    "numpy": lambda: torch.autograd.graph.saved_tensors_hooks(
        lambda x: x.detach().numpy().copy(), torch.from_numpy
    ),
    "cpu": torch.autograd.graph.save_on_cpu,
}


@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("name", RECIPES)
def test_hooks_may_move_what_is_saved(name, hooks):
    linear, x = made()
    want = gradients(linear, x, product(linear, x, RECIPES[name]))
    linear, x = made()
    with HOOKS[hooks]():
        y = product(linear, x, RECIPES[name])
    assert same(gradients(linear, x, y), want)


@pytest.mark.parametrize("inside", [False, True])
def test_backward_reads_what_hooks_give(inside):
    """Twice the values give twice the gradients of x and weight, inside a scope or outside."""
    linear, x = made()
    want = gradients(linear, x, product(linear, x, VALUES))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: 2 * x.detach(), unpack_is_identity):
        y = product(linear, x, VALUES)
    with te.autocast(enabled=inside, recipe=MXFP8BlockScaling()):
        got = gradients(linear, x, y)
    assert same(got, (2 * want[0], 2 * want[1], want[2]))


def test_hooks_and_a_weight_of_codes_that_is_changed():
    linear, x = made(codes=True)
    want = gradients(linear, x, product(linear, x, VALUES))
    with torch.autograd.graph.save_on_cpu():
        y = product(linear, x, VALUES)
    with torch.no_grad():
        linear.weight.fill_(0.0)
    assert same(gradients(linear, x, y), want)


def test_hooks_let_values_go():
    linear, _ = made()
    x = torch.randn(16, 64)
    gone = weakref.ref(x)
    with torch.autograd.graph.saved_tensors_hooks(moved, unpack_is_identity):
        y = product(linear, x, None)
    del x
    gc.collect()
    assert gone() is None
    y.sum().backward()


@pytest.mark.parametrize("name", ["none", "values", "codes"])
def test_checkpoint(name):
    linear, x = made()
    want = gradients(linear, x, product(linear, x, RECIPES[name]))
    y = checkpoint(product, linear, x, RECIPES[name], use_reentrant=False)
    assert same(gradients(linear, x, y), want)


def test_a_storage_that_is_let_go_in_between():
    linear, x = made()
    want = gradients(linear, x, product(linear, x, None))
    y = product(linear, x, None)
    storage, values = linear.weight.data.untyped_storage(), linear.weight.data.clone()
    count = storage.nbytes()
    storage.resize_(0)
    with pytest.raises(RuntimeError, match=r"\(32, 64\) whose storage was resized to nothing"):
        gradients(linear, x, y, retain_graph=True)
    taken = torch.full((count // 4,), 7.0)  # most likely where the weight was
    storage.resize_(count)
    linear.weight.data.copy_(values)
    assert same(gradients(linear, x, y), want) and taken[0] == 7


@pytest.mark.parametrize("name", RECIPES)
def test_a_loss_that_is_kept_keeps_nothing_else(name):
    linear, _ = made()
    x = torch.randn(16, 64)
    y = product(linear, x, RECIPES[name])
    saved, gone = y.grad_fn.saved_tensors[0], weakref.ref(x)
    token = weakref.ref(saved)
    del saved, x
    loss, node = y.sum(), y.grad_fn
    del y
    gc.collect()
    assert token() is not None
    loss.backward(retain_graph=True)
    assert token() is not None
    loss.backward()
    gc.collect()
    assert token() is None and gone() is None
    assert not any(isinstance(kept, _octavo.LinearSaved) for kept in vars(node).values())
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("name", ["none", "codes"])
def test_hooks_that_come_after_forward(name):
    linear, x = made()
    want = gradients(linear, x, product(linear, x, RECIPES[name]))
    y = product(linear, x, RECIPES[name])
    for saved in y.grad_fn._raw_saved_tensors:
        saved.register_hooks(moved, unpack_is_identity)
    if name == "none":
        assert same(gradients(linear, x, y), want)
    else:
        with pytest.raises(RuntimeError, match="have hooks there before forward"):
            gradients(linear, x, y)
