"""Recipes that have functions are equal where the functions are the same."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import CustomRecipe, DelayedScaling  # noqa: E402


def factory(role):
    return te.MXFP8Quantizer(te.DType.kFloat8E4M3)


def newest(window):
    return window[-1]


def next_scale(amax, scale, largest, recipe):
    return largest / max(amax, 1e-3)


class Factory:
    def make(self, role):
        return factory(role)


class NoHash(Factory):
    __hash__ = None

    def __call__(self, role):
        return factory(role)


OWN = Factory()
MAKERS = {
    "custom": lambda: CustomRecipe(qfactory=factory),
    "method": lambda: CustomRecipe(qfactory=OWN.make),
    "amax": lambda: DelayedScaling(amax_compute_algo=newest),
    "scale": lambda: DelayedScaling(scaling_factor_compute_algo=next_scale),
}


def run(linear, recipe):
    with te.autocast(recipe=recipe):
        y = linear(torch.ones(4, 64))
    y.sum().backward()
    return y


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("name", MAKERS)
def test_a_recipe_made_anew_is_the_same(name):
    linear = te.Linear(64, 32, device="cpu")
    for _ in range(3):
        run(linear, MAKERS[name]())
    for again in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        if name != "method" or again is copy.copy:  # whose object is another one
            run(linear, again(MAKERS[name]()))


@pytest.mark.parametrize("recipe", [MAKERS["custom"](), CustomRecipe(qfactory=NoHash())])
def test_weights_made_with_functions(recipe):
    with te.quantized_model_init(recipe=recipe):
        linear = te.Linear(64, 32, device="cpu")
    assert isinstance(linear.weight, te.MXFP8Tensor)
    run(linear, recipe)
    run(copy.deepcopy(linear), recipe)


def test_another_function_or_field_is_another_recipe():
    linear = te.Linear(64, 32, device="cpu")
    run(linear, DelayedScaling(amax_compute_algo=newest))
    for other in (
        DelayedScaling(amax_compute_algo=max),
        DelayedScaling(amax_compute_algo=newest, margin=1),
    ):
        with pytest.warns(UserWarning, match="[Rr]ecipe changed"):
            run(linear, other)


def test_a_field_that_is_set_takes_effect():
    recipe = CustomRecipe(qfactory=factory)
    recipe.qfactory = lambda role: te.NVFP4Quantizer()
    linear = te.Linear(64, 32, device="cpu")
    run(linear, recipe)
    assert isinstance(linear.quantizers["scaling_fwd"][0], te.NVFP4Quantizer)
