"""Scopes around functions: each call enters one of its own."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo import _octavo  # noqa: E402
from octavo.recipe import DelayedScaling, MXFP8BlockScaling, NVFP4BlockScaling  # noqa: E402


def recipe_now():
    enabled, _, recipe = _octavo.current_autocast()
    return recipe.name if enabled else None


def test_each_call_is_inside_and_nothing_is_left():
    @te.autocast(recipe=NVFP4BlockScaling())
    def inside(a, *, b):
        """What it does."""
        return recipe_now(), a, b

    assert inside.__name__ == "inside" and inside.__doc__ == "What it does."
    for _ in range(2):
        assert inside(1, b=2) == ("NVFP4BlockScaling", 1, 2)
        assert recipe_now() is None


def test_a_function_that_calls_itself():
    @te.autocast(recipe=MXFP8BlockScaling())
    def depth(n):
        with te.autocast(recipe=NVFP4BlockScaling()):
            inner = depth(n - 1) if n else []
        return [recipe_now(), *inner]

    assert depth(3) == ["MXFP8BlockScaling"] * 4
    assert recipe_now() is None


def test_threads_at_the_same_time():
    both = threading.Barrier(2, timeout=60)
    seen = []

    @te.autocast(recipe=MXFP8BlockScaling())
    def waits():
        both.wait()
        seen.append(recipe_now())
        both.wait()

    threads = [threading.Thread(target=waits) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["MXFP8BlockScaling"] * 2


def test_an_exception_leaves_nothing():
    @te.autocast(recipe=MXFP8BlockScaling())
    def fails():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails()
    assert recipe_now() is None


def test_a_forward_of_a_module_is_a_step():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = te.Linear(32, 32, device="cpu")

        @te.autocast(recipe=DelayedScaling(amax_history_len=2))
        def forward(self, x):
            return self.linear(x)

    model, x = Model(), torch.full((4, 32), 3.0)
    model(x).sum().backward()
    assert model.linear.quantizers["scaling_fwd"][0].scale == 448 / 3
    model(2 * x).sum().backward()
    assert model.linear.quantizers["scaling_fwd"][0].scale == 448 / 6


def test_a_scope_that_is_open_may_still_be_put_around():
    scope = te.autocast(recipe=MXFP8BlockScaling())
    with scope:
        assert scope(recipe_now)() == "MXFP8BlockScaling"
    assert scope(recipe_now)() == "MXFP8BlockScaling" and recipe_now() is None


@pytest.mark.parametrize("init", [te.quantized_model_init, te.fp8_model_init])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_models_are_made_quantized(init):
    @init(recipe=MXFP8BlockScaling())
    def make():
        return te.Linear(32, 32, device="cpu")

    assert isinstance(make().weight, te.QuantizedTensor)
    assert isinstance(make().weight, te.QuantizedTensor)
    assert not isinstance(te.Linear(32, 32, device="cpu").weight, te.QuantizedTensor)


def test_the_old_name():
    with pytest.warns(DeprecationWarning, match="fp8_autocast is deprecated"):
        around = te.fp8_autocast(fp8_recipe=MXFP8BlockScaling())
    assert around(recipe_now)() == "MXFP8BlockScaling"


async def _coroutine():
    pass


def _generator():
    yield


async def _async_generator():
    yield


@pytest.mark.parametrize("function", [_coroutine, _generator, _async_generator])
def test_what_runs_after_the_call_is_refused(function):
    with pytest.raises(TypeError, match="whose body runs after the call; open the scope inside"):
        te.autocast()(function)


@pytest.mark.parametrize("wrong", [3, torch.nn.Linear, None])
def test_what_is_no_function_is_refused(wrong):
    with pytest.raises(TypeError, match=r"\[autocast\] got what it is put around"):
        te.autocast()(wrong)


@pytest.mark.parametrize("scope", [te.autocast, te.quantized_model_init])
def test_without_brackets(scope):
    with pytest.raises(TypeError, match=rf"write @{scope.__name__}\(\)"):

        @scope
        def function():
            pass
