"""Recipes that change during training: first scales, weights that are requantized in place, state
that waits; and the fields of DelayedScaling that Transformer Engine has not."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

import octavo.torch as te  # noqa: E402
from octavo.recipe import (  # noqa: E402
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    MXFP8BlockScaling,
)


def step(linear, x, recipe):
    with te.autocast(recipe=recipe):
        y = linear(x)
    y.pow(2).sum().backward()
    return y.detach()


def relative_error(y, exact):
    return float((y.detach() - exact).norm() / exact.norm())


def made(seed=0, scale=1.0):
    torch.manual_seed(seed)
    return te.Linear(64, 48, bias=False, device="cpu"), scale * torch.randn(32, 64)


class TestSeeds:
    """Small values: with a scale of one, most of E4M3 would flush them to zero."""

    def test_the_first_scales_are_those_of_the_tensors(self):
        linear, x = made(scale=1e-4)
        exact = x @ linear.weight.detach().T
        step(linear, x, MXFP8BlockScaling())
        with pytest.warns(UserWarning, match="Recipe type changed"):
            y = step(linear, x, DelayedScaling())
        assert relative_error(y, exact) < 0.05
        inputs, weight, _ = linear.quantizers["scaling_fwd"]
        assert inputs.scale == 448 / x.abs().max() and inputs.amax == x.abs().max()
        assert weight.scale == 448 / linear.weight.abs().max()
        dy = 2 * y
        gradient = linear.quantizers["scaling_bwd"][0]
        assert gradient.scale == 57344 / dy.abs().max()
        # The history begins with this batch, once for the seed and once for its step.
        assert inputs.amax_history.count_nonzero() == 2

    def test_the_first_recipe_begins_as_transformer_engine_does(self):
        linear, x = made(scale=1e-4)
        with te.autocast(recipe=DelayedScaling()):
            linear(x)
            assert linear.quantizers["scaling_fwd"][0].scale == 1

    def test_from_another_format(self):
        linear, x = made()
        step(linear, x, DelayedScaling())
        with pytest.warns(UserWarning, match="Recipe changed"):
            y = step(linear, 1e-3 * x, DelayedScaling(fp8_format=te.Format.E4M3))
        assert linear.quantizers["scaling_bwd"][0].scale == 448 / (2 * y).abs().max()

    def test_a_recomputed_forward_has_the_same_scales(self):
        linear, x = made(scale=1e-4)
        twin = copy.deepcopy(linear)
        results = []
        for one, again in ((linear, False), (twin, True)):
            step(one, x, MXFP8BlockScaling())
            one.zero_grad()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with te.autocast(recipe=DelayedScaling()):
                    y = te.checkpoint(one, x) if again else one(x)
                y.pow(2).sum().backward()
            results.append((y.detach(), one.weight.grad))
        for plain, recomputed in zip(*results, strict=True):
            assert torch.equal(plain, recomputed)


class TestRequantizeWeight:
    @pytest.mark.parametrize(
        "to", [DelayedScaling(), Float8CurrentScaling(), Float8BlockScaling(), MXFP8BlockScaling()]
    )
    def test_in_place(self, to):
        torch.manual_seed(0)
        with te.quantized_model_init(recipe=Float8BlockScaling()):
            linear = te.Linear(128, 128, device="cpu")
        weight, before = linear.weight, linear.weight.dequantize().detach()
        optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
        assert weight._recipe_type is Float8BlockScaling
        x = torch.randn(128, 128)
        if not isinstance(to, Float8BlockScaling):
            with (
                te.autocast(recipe=to),
                pytest.raises(RuntimeError, match=r"Recipe mismatch for Linear\.weight"),
            ):
                linear(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it was asked for
            linear.requantize_weight(to)
            y = step(linear, x, to)
        assert linear.weight is weight and weight._recipe_type is type(to)
        assert isinstance(weight, linear.quantizers["scaling_fwd"][1].makes)
        # One more rounding to three bits of mantissa.
        assert relative_error(weight.dequantize(), before) < 2**-4
        assert relative_error(y, x @ before.T) < 0.08
        optimizer.step()
        assert relative_error(weight.dequantize(), before) > 0
        step(linear, x, to)

    def test_values_stay(self):
        linear, x = made()
        before = linear.weight.detach().clone()
        linear.requantize_weight(MXFP8BlockScaling())
        assert torch.equal(linear.weight, before) and not hasattr(linear.weight, "_recipe_type")
        step(linear, x, MXFP8BlockScaling())

    def test_wrong(self):
        with pytest.raises(TypeError, match="got a recipe of type str"):
            made()[0].requantize_weight("mxfp8")


class TestWaitingState:
    def test_a_forward_that_does_not_use_it_warns(self):
        linear, x = made()
        step(linear, x, DelayedScaling())
        other = made(1)[0]
        other.load_state_dict(linear.state_dict())
        with pytest.warns(UserWarning, match="Loaded state of DelayedScaling is not used by MXFP8"):
            step(other, x, MXFP8BlockScaling())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            step(other, x, MXFP8BlockScaling())  # once
        assert any(name.startswith("scaling_fwd") for name in other.state_dict())


class TestInterval:
    def test_a_scale_serves_several_steps(self):
        linear, _ = made()
        recipe = DelayedScaling(interval=3, amax_history_len=8)
        scales, amaxes = [], []
        for i in range(7):
            x = torch.full((4, 64), float(i + 1))
            step(linear, x, recipe)
            scales.append(float(linear.quantizers["scaling_fwd"][0].scale))
            amaxes.append(float(linear.quantizers["scaling_fwd"][0].amax))
        third, sixth = (float(torch.tensor(448.0) / amax) for amax in (3, 6))
        assert scales == [1, 1, third, third, third, sixth, sixth]
        assert amaxes == [1, 2, 3, 4, 5, 6, 7]

    def test_the_count_is_saved(self):
        linear, x = made()
        recipe = DelayedScaling(interval=3)
        for _ in range(2):
            step(linear, x, recipe)
        other = made(1)[0]
        other.load_state_dict(linear.state_dict())
        assert linear.scaling_fwd.calls.tolist() == [2]
        for one in (linear, other):
            step(one, x, recipe)
            assert one.quantizers["scaling_fwd"][0].scale == 448 / x.abs().max()

    def test_moving_average(self):
        linear, _ = made()
        recipe = DelayedScaling(amax_compute_algo="ema", amax_ema_decay=0.75)
        for amax in (1.0, 2.0, 4.0):
            step(linear, torch.full((4, 64), amax), recipe)
        mean = 0.75 * (0.75 * 1 + 0.25 * 2) + 0.25 * 4
        assert linear.quantizers["scaling_fwd"][0].scale == torch.tensor(448.0) / mean

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"interval": 0}, "got interval = 0; expected 1 to 16777216 steps"),
            ({"amax_ema_decay": 0.5}, "amax_ema_decay, which is for amax_compute_algo = ema"),
            ({"amax_ema_decay": 1.0, "amax_compute_algo": "ema"}, "more than 0 and less than 1"),
        ],
    )
    def test_wrong(self, fields, words):
        with pytest.raises(ValueError, match=words):
            DelayedScaling(**fields)

    def test_wrong_type(self):
        with pytest.raises(TypeError, match="interval"):
            DelayedScaling(interval=2.5)

    def test_shown(self):
        assert "interval=4" in repr(DelayedScaling(interval=4))


class TestGetters:
    def test_outside(self):
        manager = te.FP8GlobalStateManager
        assert not te.is_fp8_enabled() and not manager.is_fp8_calibration()
        assert manager.get_fp8_recipe() == te.get_default_recipe() and te.get_fp8_group() is None
        assert not te.with_fp8_parameters() and not te.with_high_precision_init_val()

    def test_inside(self):
        def group(amaxes):
            return amaxes

        outer, inner = DelayedScaling(margin=1), MXFP8BlockScaling()
        with te.autocast(recipe=outer, amax_reduction_group=group):
            assert te.is_fp8_enabled() and te.get_fp8_recipe() == outer
            assert te.get_fp8_group() is group
            with te.autocast(enabled=False, calibrating=True, recipe=inner):
                assert not te.is_fp8_enabled() and te.is_fp8_calibration()
                assert te.get_fp8_recipe() == inner and te.get_fp8_group() is None
            assert te.get_fp8_recipe() == outer
        assert te.get_fp8_recipe() == te.get_default_fp8_recipe()
        with te.quantized_model_init(recipe=inner, preserve_high_precision_init_val=True):
            assert te.with_fp8_parameters() and te.with_high_precision_init_val()

    def test_elements(self):
        hybrid = DelayedScaling()
        assert te.get_fp8_te_dtype(hybrid) is te.DType.kFloat8E4M3
        assert te.get_fp8_te_dtype(hybrid, fprop_tensor=False) is te.DType.kFloat8E5M2
        assert te.get_fp8_max(hybrid) == 448 and te.get_fp8_max(hybrid, False) == 57344
        assert te.get_fp8_te_dtype(MXFP8BlockScaling(), False) is te.DType.kFloat8E4M3
