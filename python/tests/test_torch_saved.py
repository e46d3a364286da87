"""Tensors that Linear saves for backward: torch packs, checks and frees them."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop  # noqa: E402

import octavo.torch as te  # noqa: E402
from octavo._arrays.torch_arrays import TorchFamily  # noqa: E402
from octavo.recipe import (  # noqa: E402
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
)

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


@pytest.fixture
def library_memory(monkeypatch):
    """References to all tensors whose memory is the library's."""
    found, take = [], TorchFamily.take

    def watched(self, tensor, raw=False):
        made = take(self, tensor, raw)
        found.append(weakref.ref(made))
        return made

    monkeypatch.setattr(TorchFamily, "take", watched)
    return found


def alive(references):
    gc.collect()
    return [ref() for ref in references if ref() is not None]


@pytest.mark.parametrize("name", RECIPES)
def test_a_loss_that_is_kept_keeps_nothing_else(name, library_memory):
    linear, _ = made()
    x = torch.randn(16, 64)
    gone = weakref.ref(x)
    y = product(linear, x, RECIPES[name])
    loss, node = y.sum(), y.grad_fn
    del x, y
    kept = len(alive(library_memory))
    assert (gone() is not None) == (name in ("none", "values"))
    loss.backward(retain_graph=True)
    assert len(alive(library_memory)) >= kept
    loss.backward()
    linear.zero_grad()
    assert gone() is None and not alive(library_memory)
    assert node.saved is not None
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


# Bytes of [16, 64] and [32, 64] transposed: one byte an element, and of MXFP8 one for each 32 rows
# of a column; DelayedScaling has one float32 each.
CODES = {"codes": 64 * (16 + 1) + 64 * (32 + 1), "delayed": 64 * 16 + 4 + 64 * 32 + 4}


@pytest.mark.parametrize("name", RECIPES)
def test_hooks_see_all_that_is_saved(name):
    linear, x = made()
    packed = []

    def pack(tensor):
        packed.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack_is_identity):
        y = product(linear, x, RECIPES[name])
    assert sum(packed) == CODES.get(name, 4 * 64 * (16 + 32))
    gradients(linear, x, y)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", RECIPES)
def test_checkpoint_keeps_x_alone(name, inside, library_memory):
    linear, x = made()
    if inside:
        y = checkpoint(product, linear, x, RECIPES[name], use_reentrant=False)
    else:
        with te.autocast(enabled=RECIPES[name] is not None, recipe=RECIPES[name]):
            y = te.checkpoint(linear, x)
    assert [kept.data_ptr() for kept in alive(library_memory)] == [y.data_ptr()]
    gradients(linear, x, y)


@pytest.mark.parametrize("name", RECIPES)
def test_te_checkpoint_in_a_scope_that_has_ended(name):
    linear, x = made()
    want = gradients(linear, x, product(linear, x, RECIPES[name]))
    linear, x = made()
    with te.autocast(enabled=RECIPES[name] is not None, recipe=RECIPES[name]):
        y = te.checkpoint(linear, x)
        if name == "delayed":  # or else its scales have moved on
            assert same(gradients(linear, x, y), want)
            return
    assert same(gradients(linear, x, y), want)


@pytest.mark.parametrize("stops_early", [False, True])
def test_a_second_forward_is_not_a_second_step(stops_early):
    linear, x = made()
    recipe = DelayedScaling(amax_history_len=4)
    with set_checkpoint_early_stop(stops_early):
        y = checkpoint(product, linear, x, recipe, use_reentrant=False)
    history = linear.quantizers["scaling_fwd"][0].amax_history
    amax = x.detach().abs().max()
    assert torch.equal(history, torch.tensor([0, 0, 0, 1.0]) * amax)
    gradients(linear, x, y)
    assert torch.equal(history, torch.tensor([0, 0, 0, 1.0]) * amax)


def test_te_checkpoint_refuses():
    linear, x = made()
    for name in ("distribute_saved_activations", "tp_group", "use_reentrant"):
        with pytest.raises(RuntimeError, match=rf"\[checkpoint\] {name} is not offered"):
            te.checkpoint(linear, x, **{name: True})
    with pytest.raises(TypeError, match="got a int; expected a function"):
        te.checkpoint(3, x)


@pytest.mark.parametrize("name", RECIPES)
def test_hooks_that_come_after_forward(name):
    linear, x = made()
    want = gradients(linear, x, product(linear, x, RECIPES[name]))
    linear, x = made()
    y = product(linear, x, RECIPES[name])
    for saved in y.grad_fn._raw_saved_tensors:
        saved.register_hooks(moved, unpack_is_identity)
    assert same(gradients(linear, x, y), want)


@pytest.mark.parametrize(
    "wrong", [lambda x: torch.stack([x, x]), lambda x: x.to(torch.float16), lambda x: x.to("meta")]
)
@pytest.mark.parametrize("name", RECIPES)
def test_hooks_that_give_something_else(name, wrong):
    linear, x = made()
    with torch.autograd.graph.saved_tensors_hooks(unpack_is_identity, wrong):
        y = product(linear, x, RECIPES[name])
    with pytest.raises(RuntimeError, match="in the place of .*; expected what forward saved"):
        gradients(linear, x, y)


def test_hooks_may_lay_values_otherwise():
    """Each row of x is the same memory, and hooks give a copy with rows of its own."""
    linear, _ = made()
    row = torch.randn(1, 64, requires_grad=True)
    want = gradients(linear, row, product(linear, row.expand(16, 64), None))
    with HOOKS["numpy"]():
        y = product(linear, row.expand(16, 64), None)
    assert same(gradients(linear, row, y), want)


def test_a_negated_view():
    linear, x = made()
    want = gradients(linear, x, product(linear, x, None))
    negated = torch.complex(x.detach(), -x.detach()).conj().imag.requires_grad_()
    assert negated.is_neg()
    assert same(gradients(linear, negated, product(linear, negated, None)), want)


LOST = {
    "delayed": DelayedScaling(),
    "current": Float8CurrentScaling(),
    "block": Float8BlockScaling(),
    "mxfp8": MXFP8BlockScaling(),
    "nvfp4": NVFP4BlockScaling(),
    "values": VALUES,
}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", LOST)
def test_a_recipe_that_is_lost_on_the_way_is_refused(name, reentrant):
    """Gradients would be of values, where the forward was of codes: up to a fifth off."""
    linear, x = made()
    with te.autocast(recipe=LOST[name]):
        y = checkpoint(linear, x, use_reentrant=reentrant)
    with pytest.raises(RuntimeError, match="Use octavo.torch.checkpoint, or enter autocast inside"):
        y.sum().backward()
    assert linear.weight.grad is None and x.grad is None


def test_attention_refuses_it_as_well():
    attend = te.DotProductAttention(2, 32)
    q = torch.randn(4, 1, 2, 32, requires_grad=True)
    with te.autocast(recipe=MXFP8BlockScaling(fp8_dpa=True)):
        y = checkpoint(attend, q, q, q, use_reentrant=True)
    with pytest.raises(RuntimeError, match=r"\[DotProductAttention\] ran under MXFP8BlockScaling"):
        y.sum().backward()


@pytest.mark.parametrize("name", LOST)
def test_te_checkpoint_gives_the_gradients_without_one(name):
    found = []
    for around in (te.checkpoint, lambda function, *args: function(*args)):
        linear, x = made()
        with te.autocast(recipe=LOST[name]):
            y = around(linear, x)
        found.append((y.detach(), *gradients(linear, x, y)))
    assert same(*found)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_scope_that_multiplies_values_says_so(reentrant):
    """Where values are wanted in a backward, a scope that is not enabled asks for them."""
    linear, x = made()
    product(linear, x, MXFP8BlockScaling())

    def values(x):
        with te.autocast(enabled=False):
            return linear(x)

    want = gradients(linear, x, linear(x))
    product(linear, x, MXFP8BlockScaling())
    y = checkpoint(values, x, use_reentrant=reentrant)
    product(linear, x, MXFP8BlockScaling())  # the last forward outside of a backward
    y.backward(torch.linspace(-1, 1, y.numel()).view_as(y))
    assert same((x.grad, linear.weight.grad, linear.bias.grad), want)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_that_is_not_lost(name, reentrant):
    linear, x = made()
    product(linear, x, MXFP8BlockScaling(fp8_dpa=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Recipe")
        y = checkpoint(product, linear, x, RECIPES[name], use_reentrant=reentrant)
        y.sum().backward()
