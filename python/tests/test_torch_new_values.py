"""New values of quantized weights that are not a step of training, copies that do not affect the
layer, memory that is not there, and saved state that cannot be used."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import DelayedScaling, MXFP8BlockScaling  # noqa: E402


def quantized_layer(recipe=None):
    torch.manual_seed(0)
    with te.quantized_model_init(recipe=recipe or DelayedScaling()):
        return te.Linear(32, 16, device="cpu")


def step(layer, recipe=None):
    with te.autocast(recipe=recipe or DelayedScaling()):
        layer(torch.randn(8, 32)).sum().backward()


def off(got, wanted):
    wanted = wanted.detach()
    return float((got.detach().dequantize() - wanted).norm() / wanted.norm())


# Rounding to e4m3 is off by 2.6 % of normal values.
ROUNDED = 0.03


@pytest.mark.parametrize("trained", [False, True])
def test_values_from_a_file_are_not_clipped(trained):
    layer, values = quantized_layer(), torch.randn(16, 32)
    if trained:
        step(layer)
    layer.load_state_dict({"weight": values, "bias": torch.zeros(16)})
    assert off(layer.weight, values) < ROUNDED
    layer.load_state_dict({"weight": values / 1000, "bias": torch.zeros(16)})
    assert off(layer.weight, values / 1000) < ROUNDED


def test_init_functions_and_what_is_far_too_large():
    layer = quantized_layer()
    torch.nn.init.ones_(layer.weight)
    assert torch.equal(layer.weight.dequantize(), torch.ones(16, 32))
    step(layer)
    with torch.no_grad():
        layer.weight.copy_(torch.full((16, 32), 50.0))
    assert off(layer.weight, torch.full((16, 32), 50.0)) < ROUNDED


def test_a_step_of_training_goes_by_the_scale_there_is():
    layer = quantized_layer()
    step(layer)
    scale = layer.quantizers["scaling_fwd"][1].scale.clone()
    values = layer.weight.dequantize()
    with torch.no_grad():
        layer.weight.copy_(values * 1.5)
    assert torch.equal(layer.quantizers["scaling_fwd"][1].scale, scale)
    assert layer.weight.dequantize().abs().max() <= 448 / scale


def test_a_scale_before_the_first_step_is_that_of_the_values():
    """So copies of a model in other processes, which get the values of one, have its codes."""
    one, other = quantized_layer(), quantized_layer()
    with torch.no_grad():
        other.weight.mul_(30)
        values = torch.randn(16, 32)
        one.weight.copy_(values)
        other.weight.copy_(values)
    assert torch.equal(one.weight.dequantize(), other.weight.dequantize())


@pytest.mark.parametrize("copied", [lambda w: w.detach().clone(), copy.deepcopy])
def test_a_copy_leaves_the_layer_alone(copied):
    layer = quantized_layer()
    step(layer)
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    other, values = copied(layer.weight), layer.weight.dequantize()
    with torch.no_grad():
        other.mul_(1e4)
    assert off(other.detach(), values * 1e4) < ROUNDED
    for key, value in layer.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_memory_of_values_is_not_handed_out():
    weight = quantized_layer(MXFP8BlockScaling()).weight.detach()
    for use in (
        np.from_dlpack,
        torch.from_dlpack,
        lambda w: w.share_memory_(),
        lambda w: w.apply_(lambda v: v * 2),
    ):
        with pytest.raises(RuntimeError, match=r"holds codes; use dequantize\(\)"):
            use(weight)
    with pytest.raises(RuntimeError, match="share_memory"):
        torch.nn.Sequential(quantized_layer(MXFP8BlockScaling())).share_memory()
    assert te.Linear(32, 16, device="cpu").share_memory().weight.is_shared()


BAD = [
    ("scale", torch.full((3,), float("nan")), "positive, finite"),
    ("scale", torch.zeros(3), "positive, finite"),
    ("scale", torch.ones(7, 3), "one number"),
    ("scale", torch.ones(3, dtype=torch.complex64), "complex64"),
    ("scale", np.ones(3, np.float32), "ndarray"),
    ("amax_history", torch.ones(3), "amaxes of one step"),
    ("amax_history", torch.ones(0, 3), "amaxes of one step"),
    ("amax_history", -torch.ones(4, 3), "magnitudes"),
]


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("part, value, why", BAD)
def test_state_that_cannot_be_is_refused_as_it_is_loaded(used, part, value, why):
    layer = te.Linear(32, 16, device="cpu")
    if used:
        step(layer)
    good = {"scaling_bwd.scale": torch.full((2,), 7.0)}
    before = layer.state_dict()
    with pytest.raises(RuntimeError, match=why):
        layer.load_state_dict({**before, **good, f"scaling_fwd.{part}": value})
    step(layer)
    assert not (layer.quantizers["scaling_bwd"][0].scale == 7).any()


def test_torch_s_autocast_casts_what_torch_casts():
    layer = te.Linear(32, 16, device="cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16), te.autocast(recipe=MXFP8BlockScaling()):
        assert layer(torch.randn(8, 32)).dtype == torch.bfloat16
        with pytest.raises(TypeError):
            layer(torch.randint(0, 9, (8, 32)))
        with pytest.raises(TypeError):
            layer(torch.randn(8, 32, dtype=torch.complex64))


def test_meta():
    other = te.Linear(32, 16, device="cpu")
    made = te.Linear(32, 16, device="meta")
    made.load_state_dict(other.state_dict(), assign=True)
    step(made)
    assert made.weight.grad is not None


@pytest.mark.parametrize("grad", [True, False])
def test_gradients_go_straight_through_a_quantizer(grad):
    quantizer = te.MXFP8Quantizer(te.DType.kFloat8E4M3)
    x = torch.randn(8, 32, requires_grad=True)
    with torch.set_grad_enabled(grad):
        q = quantizer(x * 2)
    assert q.requires_grad == grad and isinstance(q, te.MXFP8Tensor)
    if grad:
        weights = torch.randn(8, 32)
        (q.dequantize() * weights).sum().backward()
        assert torch.equal(x.grad, 2 * weights)


def test_torch_s_distributed_state_dict_finds_the_state():
    state_dicts = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    layer = te.Linear(32, 16, device="cpu")
    step(layer)
    model = torch.nn.Sequential(layer, quantized_layer(MXFP8BlockScaling()))
    found = state_dicts.get_model_state_dict(model)
    assert set(found) == set(model.state_dict())
    assert torch.equal(layer.scaling_fwd.scale, model.state_dict()["0.scaling_fwd.scale"])
