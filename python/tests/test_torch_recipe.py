"""Recipes with torch, as written for Transformer Engine: only the import and the device differ."""

from __future__ import annotations

import pathlib
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import (  # noqa: E402
    DelayedScaling,
    Float8BlockScaling,
    MXFP8BlockScaling,
)
from octavo.torch import (  # noqa: E402
    Float8BlockQuantizer,
    Float8Quantizer,
    Linear,
    MXFP8Quantizer,
    is_fp8_available,
    is_fp8_block_scaling_available,
    is_mxfp8_available,
    quantized_model_init,
)

device = "cpu"
fp8_available, reason_for_no_fp8 = is_fp8_available(return_reason=True)
mxfp8_available, reason_for_no_mxfp8 = is_mxfp8_available(return_reason=True)
fp8_block_scaling_available, reason_for_no_fp8_block_scaling = is_fp8_block_scaling_available(
    return_reason=True
)


def test_everything_is_available():
    assert fp8_available and mxfp8_available and fp8_block_scaling_available
    assert te.is_nvfp4_available() is True and te.is_bf16_available(True) == (True, "")


class TestFP8Recipe:
    @pytest.mark.parametrize(
        "model_init_recipe",
        [
            pytest.param(
                MXFP8BlockScaling(),
                marks=pytest.mark.skipif(not mxfp8_available, reason=reason_for_no_mxfp8),
            ),
            pytest.param(
                Float8BlockScaling(),
                marks=pytest.mark.skipif(
                    not fp8_block_scaling_available, reason=reason_for_no_fp8_block_scaling
                ),
            ),
        ],
    )
    def test_check_for_weight_tensor_and_recipe_correspondence(self, model_init_recipe):
        with quantized_model_init(enabled=True, recipe=model_init_recipe):
            linear = Linear(32, 32).to(device)

        x = torch.randn(32, 32, device=device)
        with te.autocast(enabled=True, recipe=DelayedScaling()):
            with pytest.raises(RuntimeError) as excinfo:
                _ = linear(x)
            assert "Recipe mismatch for " in str(excinfo.value)
        name = type(model_init_recipe).__name__
        assert str(excinfo.value).startswith(
            f"Recipe mismatch for Linear.weight: Weight was initialized with {name}, "
            "but current recipe is DelayedScaling. "
        )

    @pytest.mark.parametrize(
        "target_recipe_class, expected_quantizer_type, available_flag, reason",
        [
            pytest.param(
                MXFP8BlockScaling,
                MXFP8Quantizer,
                mxfp8_available,
                reason_for_no_mxfp8,
                id="DelayedScaling->MXFP8BlockScaling",
            ),
            pytest.param(
                Float8BlockScaling,
                Float8BlockQuantizer,
                fp8_block_scaling_available,
                reason_for_no_fp8_block_scaling,
                id="DelayedScaling->Float8BlockScaling",
            ),
        ],
    )
    def test_dynamic_recipe_update(
        self, target_recipe_class, expected_quantizer_type, available_flag, reason
    ):
        if not available_flag:
            pytest.skip(reason)

        in_features = 32
        out_features = 32
        batch_size = 32
        linear = Linear(in_features, out_features).to(device)
        initial_recipe = DelayedScaling()

        # Run initial iterations with DelayedScaling
        for _ in range(3):
            x = torch.randn(batch_size, in_features, device=device)
            with te.autocast(enabled=True, recipe=initial_recipe):
                y = linear(x)
            loss = y.mean()
            loss.backward()

        for quantizer in linear.quantizers["scaling_fwd"]:
            assert isinstance(quantizer, Float8Quantizer)

        # Change recipe
        target_recipe = target_recipe_class()

        # Run subsequent iterations with the target recipe
        for i in range(3):
            x = torch.randn(batch_size, in_features, device=device)
            if i == 0:
                # Expect a warning on the first iteration with the new recipe
                with pytest.warns(UserWarning, match="Recipe type changed") as caught:  # noqa: SIM117
                    with te.autocast(enabled=True, recipe=target_recipe):
                        y = linear(x)
                assert [str(warning.message) for warning in caught] == [
                    "Recipe type changed from DelayedScaling to "
                    f"{target_recipe_class.__name__}. Replacing quantizers for Linear."
                ]
                assert pathlib.Path(caught[0].filename) == pathlib.Path(__file__)
                for quantizer in linear.quantizers["scaling_fwd"]:
                    assert isinstance(quantizer, expected_quantizer_type)
            else:
                # No warning expected on subsequent iterations
                with warnings.catch_warnings():
                    warnings.simplefilter("error")  # Raise error if unexpected warning occurs
                    with te.autocast(enabled=True, recipe=target_recipe):
                        y = linear(x)
            loss = y.mean()
            loss.backward()

        # Final check
        for quantizer in linear.quantizers["scaling_fwd"]:
            assert isinstance(quantizer, expected_quantizer_type)
        for quantizer in linear.quantizers["scaling_bwd"]:
            assert isinstance(quantizer, expected_quantizer_type)


def fp8_max(value):
    return torch.tensor(float(value))  # a number over a tensor is rounded twice by torch


def run(linear, x, recipe):
    with te.autocast(recipe=recipe):
        y = linear(x)
    y.sum().backward()


def test_scale_and_amax_persist():
    linear = Linear(32, 32, device=device)
    assert linear.quantizers == {"scaling_fwd": [], "scaling_bwd": []}
    seen = []
    for _ in range(3):
        x = torch.randn(32, 32)
        seen.append(x.abs().max())
        with te.autocast(recipe=DelayedScaling(amax_history_len=16)):
            y = linear(x)
            # The step has not ended: its amax is where the quantizer gathers it.
            assert linear.quantizers["scaling_fwd"][0].amax == seen[-1]
        y.sum().backward()
        inputs = linear.quantizers["scaling_fwd"][0]
        assert inputs.scale == fp8_max(448) / torch.stack(seen).max() and inputs.amax == seen[-1]
        assert inputs.amax_history[-len(seen) :].tolist() == torch.stack(seen).tolist()
    weights = linear.quantizers["scaling_fwd"][1]
    assert weights.scale == fp8_max(448) / linear.weight.abs().max()
    assert linear.quantizers["scaling_bwd"][0].scale == 57344  # dy is ones
    # The same objects and memory from step to step.
    again = linear.quantizers["scaling_fwd"][0]
    assert again is inputs and again.scale.data_ptr() == inputs.scale.data_ptr()


def test_mxfp8_keeps_nothing():
    linear = Linear(32, 32, device=device)
    run(linear, torch.randn(32, 32), MXFP8BlockScaling())
    assert not any(name.startswith("scaling") for name in linear.state_dict())
    for quantizer in linear.quantizers["scaling_fwd"]:
        assert not hasattr(quantizer, "scale") and not hasattr(quantizer, "amax")


def test_memory_of_quantized_weights():
    with quantized_model_init(recipe=MXFP8BlockScaling()):
        linear = Linear(32, 32, device=device)
    assert isinstance(linear.weight, te.MXFP8Tensor)
    # 1,024 codes and 32 scales, twice; the values would be 4,096 bytes.
    assert linear.weight.nbytes == 2 * (1024 + 32)
    assert linear.weight._rowwise_data.shape == linear.weight._columnwise_data.shape == (32, 32)
    assert linear.weight._rowwise_scale_inv.shape == (32, 1)
    assert linear.weight._columnwise_scale_inv.shape == (1, 32)
    assert linear.weight._rowwise_scale_inv.dtype == torch.uint8


def test_e8m0_limits():
    """2^-127 is the smallest scale there is, and Inf has the largest one."""
    quantizer = MXFP8Quantizer(te.DType.kFloat8E4M3, columnwise=False)
    x = torch.zeros(3, 32)
    x[1, 0] = 2.0**-140
    x[2, 0] = float("inf")
    made = quantizer(x)
    assert made._rowwise_scale_inv.flatten().tolist() == [0, 0, 254]
    assert made._rowwise_data[2, :2].tolist() == [0x7E, 0]  # Inf saturates to 448
    assert made.dequantize()[1, 0] == 0  # 2^-140 / 2^-127 is below half of the smallest code


def test_change_within_a_class_is_noticed():
    linear = Linear(32, 32, device=device)
    x = torch.randn(32, 32)
    run(linear, x, DelayedScaling(amax_history_len=4))
    scale = linear.quantizers["scaling_fwd"][0].scale.clone()
    other, text = DelayedScaling(amax_history_len=4, margin=2), "from .*margin=0.* to .*margin=2"
    with pytest.warns(UserWarning, match=f"Recipe changed {text}"), te.autocast(recipe=other):
        linear(x)
        assert linear.quantizers["scaling_fwd"][0].scale == scale  # state goes on
    assert linear.quantizers["scaling_fwd"][0].scale == scale / 4


def test_a_warning_made_an_error_changes_nothing():
    linear = Linear(32, 32, device=device)
    x = torch.randn(32, 32)
    run(linear, x, DelayedScaling())
    before = linear.quantizers["scaling_fwd"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="Recipe type changed"):
            run(linear, x, MXFP8BlockScaling())
        run(linear, x, DelayedScaling())  # still its recipe
    assert linear.quantizers["scaling_fwd"] is before
    with pytest.warns(UserWarning, match="Recipe type changed"):
        run(linear, x, MXFP8BlockScaling())


def test_quantized_weights_without_autocast():
    with quantized_model_init(recipe=MXFP8BlockScaling()):
        linear = Linear(32, 32, device=device)
    x = torch.randn(4, 32)
    with pytest.warns(UserWarning, match="quantized weights without quantized compute"):
        y = linear(x)
    want = torch.nn.functional.linear(x, linear.weight.dequantize(), linear.bias)
    torch.testing.assert_close(y, want)


def test_old_names():
    with pytest.warns(DeprecationWarning, match="fp8_autocast is deprecated"):
        scope = te.fp8_autocast(enabled=True, fp8_recipe=MXFP8BlockScaling())
    with pytest.warns(DeprecationWarning, match="fp8_model_init is deprecated"):
        init = te.fp8_model_init(enabled=True, recipe=MXFP8BlockScaling())
    with init:
        linear = Linear(32, 32, device=device)
    with scope:
        linear(torch.randn(32, 32))
    assert isinstance(linear.quantizers["scaling_fwd"][0], MXFP8Quantizer)
