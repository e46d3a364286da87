"""Validation between training steps: what a layer sees then does not move its scales."""

from __future__ import annotations

import contextlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import CustomRecipe, DelayedScaling  # noqa: E402

RECIPE = DelayedScaling(amax_history_len=4)


@contextlib.contextmanager
def evaluated(linear):
    linear.eval()
    yield
    linear.train()


INFERENCE = {
    "no_grad": lambda linear: torch.no_grad(),
    "inference_mode": lambda linear: torch.inference_mode(),
    "eval": evaluated,
}


def step(linear, x, recipe=RECIPE):
    with te.autocast(recipe=recipe):
        y = linear(x)
    y.square().sum().backward()


def state(linear):
    return {
        name: tensor.clone() for name, tensor in linear.state_dict().items() if "scaling" in name
    }


@pytest.mark.parametrize("mode", INFERENCE)
@pytest.mark.parametrize("is_first_microbatch", [None, True])
def test_a_validation_pass_leaves_no_trace(mode, is_first_microbatch):
    torch.manual_seed(0)
    xs, big = [torch.randn(8, 32) for _ in range(3)], 1000 * torch.randn(8, 32)
    with_pass, without = te.Linear(32, 16, device="cpu"), te.Linear(32, 16, device="cpu")
    without.load_state_dict(with_pass.state_dict())
    for x in xs:
        step(with_pass, x)
        step(without, x)
        before = state(with_pass)
        with INFERENCE[mode](with_pass), te.autocast(recipe=RECIPE):
            with_pass(big, is_first_microbatch=is_first_microbatch)
        after = state(with_pass)
        assert all(torch.equal(after[name], before[name]) for name in before)
    mine, theirs = state(with_pass), state(without)
    assert mine and all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert torch.equal(with_pass.weight.grad, without.weight.grad)


def test_validation_inside_the_scope_of_a_step():
    linear, x = te.Linear(32, 16, device="cpu"), torch.randn(8, 32)
    with te.autocast(recipe=RECIPE):
        y = linear(x)
        with torch.no_grad():
            linear(1000 * x)
    y.sum().backward()
    assert linear.quantizers["scaling_fwd"][0].scale == torch.tensor(448.0) / x.abs().max()


def test_gradients_of_a_layer_in_eval_move_nothing():
    linear, x = te.Linear(32, 16, device="cpu"), torch.randn(8, 32, requires_grad=True)
    step(linear, x.detach())
    before = state(linear)
    linear.eval()
    with te.autocast(recipe=RECIPE):
        y = linear(x)
    y.backward(torch.full_like(y, 1e3))
    assert x.grad is not None and linear.weight.grad is not None
    after = state(linear)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_validation_quantizes_with_the_scales_of_training():
    linear, x = te.Linear(32, 16, device="cpu"), torch.randn(8, 32)
    step(linear, x)
    with torch.no_grad(), te.autocast(recipe=RECIPE):
        y = linear(x)
    with te.autocast(recipe=RECIPE):
        assert torch.equal(y, linear(x))


@pytest.mark.parametrize("mode", INFERENCE)
def test_calibration_takes_note_in_inference_too(mode):
    linear, x = te.Linear(32, 16, device="cpu"), torch.randn(8, 32)
    with (
        INFERENCE[mode](linear),
        te.autocast(enabled=False, calibrating=True, recipe=RECIPE),
    ):
        linear(x)
    assert linear.quantizers["scaling_fwd"][0].scale == torch.tensor(448.0) / x.abs().max()


def test_quantizers_of_a_custom_recipe_take_no_note_either():
    made = []

    def qfactory(role):
        made.append(te.Float8Quantizer(torch.ones(1), torch.zeros(1), te.DType.kFloat8E4M3))
        return made[-1]

    linear, x, recipe = te.Linear(32, 16, device="cpu"), torch.randn(8, 32), CustomRecipe(qfactory)
    with torch.no_grad(), te.autocast(recipe=recipe):
        linear(x)
    assert made[0].amax == 0
    with te.autocast(recipe=recipe):
        linear(x)
    assert made[0].amax == x.abs().max()
    # By hand it always does.
    with torch.no_grad(), te.autocast(recipe=recipe):
        linear(x)
    linear.quantizers["scaling_fwd"][0](2 * x)
    assert made[0].amax == 2 * x.abs().max()
