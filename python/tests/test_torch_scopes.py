"""Scopes of a recipe: they nest, belong to a thread, and leave nothing behind."""

from __future__ import annotations

import asyncio
import copy
import gc
import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import (  # noqa: E402
    DelayedScaling,
    Float8CurrentScaling,
    MXFP8BlockScaling,
)


def step(linear, x, dy, recipe, meet=lambda: None):
    """One forward and backward; `meet` is called in the scope, before and after the forward."""
    x = x.clone().requires_grad_()
    with te.autocast(recipe=recipe):
        meet()
        y = linear(x)
        meet()
    y.backward(dy)
    return y.detach(), x.grad, linear.weight.grad, linear.bias.grad


def test_an_exception_inside_autocast_leaves_nothing_behind():
    linear = te.Linear(32, 32, device="cpu")
    x = torch.randn(32, 32)
    plain = linear(x).detach()
    recipe = DelayedScaling()
    with pytest.raises(KeyError), te.autocast(recipe=recipe), te.autocast(recipe=recipe):
        linear(x)
        raise KeyError
    assert torch.equal(linear(x), plain)  # outside of every scope
    inputs = linear.quantizers["scaling_fwd"][0]
    assert inputs.scale == 1 and inputs.amax == 0 and not inputs.amax_history.any()
    with te.autocast(recipe=recipe):
        linear(x)
    assert inputs.scale != 1


def test_scopes_nest_and_are_entered_once():
    linear = te.Linear(32, 32, device="cpu")
    x = torch.randn(32, 32)
    scope = te.autocast(recipe=MXFP8BlockScaling())
    plain = linear(x)
    with scope:
        inside = linear(x)
        with pytest.raises(RuntimeError, match="open already"), scope:
            pass
        with te.autocast(enabled=False):
            assert torch.equal(linear(x), plain)
        assert torch.equal(linear(x), inside)
    with scope:  # again, one after the other
        assert torch.equal(linear(x), inside)
    assert torch.equal(linear(x), plain)


def test_scopes_left_in_the_wrong_order():
    outer, inner = te.autocast(recipe=MXFP8BlockScaling()), te.autocast(enabled=False)
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(ValueError, match="not the innermost"):
        outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)
    linear, x = te.Linear(32, 32, device="cpu"), torch.randn(4, 32)
    linear(x)
    assert linear.quantizers["scaling_fwd"] == []  # nothing holds any more
    with outer:
        linear(x)
    assert len(linear.quantizers["scaling_fwd"]) == 3


def test_two_threads_with_two_recipes():
    recipes = [MXFP8BlockScaling(), Float8CurrentScaling()]
    torch.manual_seed(3)
    layers = [te.Linear(64, 64, device="cpu") for _ in recipes]
    x, dy = torch.randn(64, 64), torch.randn(64, 64)
    want = [
        step(copy.deepcopy(layer), x, dy, recipe)
        for layer, recipe in zip(layers, recipes, strict=True)
    ]
    barrier, failures = threading.Barrier(2), []

    def work(at):
        try:
            for _ in range(20):
                layers[at].zero_grad()
                # Both are inside of their scope at the same time.
                found = step(layers[at], x, dy, recipes[at], lambda: barrier.wait(60))
                assert all(torch.equal(a, b) for a, b in zip(found, want[at], strict=True))
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_backward_on_another_thread():
    linear = te.Linear(32, 32, device="cpu")
    x, dy = torch.randn(32, 32), torch.randn(32, 32)
    with te.autocast(recipe=DelayedScaling()):
        y = linear(x)
    thread = threading.Thread(target=y.backward, args=(dy,))
    thread.start()
    thread.join()
    assert linear.quantizers["scaling_bwd"][0].scale == torch.tensor(57344.0) / dy.abs().max()


@pytest.mark.parametrize("scope", [te.autocast, te.quantized_model_init])
def test_a_scope_that_is_not_open_is_not_left(scope):
    with pytest.raises(RuntimeError, match="this scope is not open"):
        scope().__exit__(None, None, None)
    used = scope()
    with used:
        pass
    with pytest.raises(RuntimeError, match="this scope is not open"):
        used.__exit__(None, None, None)


def paused(scope):
    with scope:
        yield


def holds():
    """Whether a recipe holds here: for layers, and for those that are made."""
    linear = te.Linear(32, 32, device="cpu")
    linear(torch.randn(4, 32))
    return linear.quantizers["scaling_fwd"] != [], type(linear.weight) is not torch.nn.Parameter


# A discarded one cannot raise.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:You are using quantized weights without quantized compute")
@pytest.mark.parametrize("how", ["closed", "let go", "went on"])
@pytest.mark.parametrize("kind", [te.autocast, te.quantized_model_init])
def test_a_scope_that_a_generator_leaves_out_of_turn(kind, how):
    generator = paused(kind(recipe=MXFP8BlockScaling()))
    next(generator)
    with kind(enabled=False):
        if how == "closed":
            with pytest.raises(ValueError, match="A generator or coroutine that pauses inside"):
                generator.close()
        elif how == "went on":
            with pytest.raises(ValueError, match="A generator or coroutine that pauses inside"):
                next(generator)
        else:
            del generator
            gc.collect()
        assert holds() == (False, False)
    assert holds() == (False, False)
    with kind(recipe=MXFP8BlockScaling()):
        assert any(holds())
    assert holds() == (False, False)


def test_coroutines_that_leave_out_of_turn():
    async def first(entered, leave):
        with te.autocast(recipe=MXFP8BlockScaling()):
            entered.set()
            await leave.wait()

    async def second(entered, leave):
        await entered.wait()
        with te.autocast(recipe=Float8CurrentScaling()):
            leave.set()
            await asyncio.sleep(0.01)

    async def both():
        entered, leave = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(
            first(entered, leave), second(entered, leave), return_exceptions=True
        )

    said = asyncio.run(both())
    assert isinstance(said[0], ValueError) and "coroutine that pauses" in str(said[0])
    assert said[1] is None
    assert holds() == (False, False)


def test_a_scope_that_another_thread_leaves():
    scope, said = te.autocast(recipe=MXFP8BlockScaling()), []
    scope.__enter__()

    def leave():
        try:
            scope.__exit__(None, None, None)
        except ValueError as error:
            said.append(str(error))

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert "on the thread that began them" in said[0]
    assert holds() == (False, False)
