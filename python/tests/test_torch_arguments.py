"""Transformer Engine's arguments and methods: at their defaults they are taken, and what octavo
does not do is refused by name."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo as ov  # noqa: E402
import octavo.torch as te  # noqa: E402
from octavo import quantizers as qs  # noqa: E402
from octavo.recipe import CustomRecipe, DelayedScaling, MXFP8BlockScaling  # noqa: E402

E4M3, E5M2 = te.DType.kFloat8E4M3, te.DType.kFloat8E5M2

# Of Transformer Engine 2.20, in its order.
LINEAR = {
    "sequence_parallel": False,
    "fuse_wgrad_accumulation": False,
    "tp_group": None,
    "tp_size": 1,
    "get_rng_state_tracker": None,
    "rng_tracker_name": None,
    "init_method": None,
    "bias": True,
    "return_bias": False,
    "params_dtype": None,
    "parallel_mode": None,
    "parameters_split": None,
    "device": "cpu",
    "ub_overlap_ag": False,
    "ub_overlap_rs": False,
    "ub_overlap_rs_dgrad": False,
    "ub_bulk_dgrad": False,
    "ub_bulk_wgrad": False,
    "ub_name": None,
    "delay_wgrad_compute": False,
    "symmetric_ar_type": None,
    "save_original_input": False,
    "name": None,
}
OFFERED = {"init_method", "bias", "return_bias", "params_dtype", "device", "name"}
NVFP4 = {
    "fp4_dtype": te.DType.kFloat4E2M1,
    "rowwise": True,
    "columnwise": True,
    "with_amax_reduction": False,
    "amax_reduction_group": None,
    "with_rht": False,
    "with_post_rht_amax": False,
    "with_2d_quantization": False,
    "stochastic_rounding": False,
    "row_scaled_nvfp4": False,
    "nvfp4_use_4over6": False,
    "nvfp4_e4m3_max": 448,
    "nvfp4_4over6_err_mode": "MAE",
    "with_random_sign_mask": True,
}


def test_linear_takes_the_defaults_in_order():
    linear = te.Linear(32, 16, *LINEAR.values())
    assert linear(torch.randn(2, 32)).shape == (2, 16)
    names = list(inspect.signature(te.Linear.__init__).parameters)
    assert names[: 3 + len(LINEAR)] == ["self", "in_features", "out_features", *LINEAR]


@pytest.mark.parametrize("name", sorted(LINEAR.keys() - OFFERED))
def test_linear_refuses_by_name_what_it_does_not_do(name):
    value = {bool: True, int: 2, type(None): "something"}[type(LINEAR[name])]
    with pytest.raises(RuntimeError, match=rf"\[Linear\] {name} is not offered"):
        te.Linear(32, 16, device="cpu", **{name: value})


def test_nvfp4_quantizer_takes_the_defaults_in_order():
    assert te.NVFP4Quantizer(*NVFP4.values()).dtype is te.DType.kFloat4E2M1


@pytest.mark.parametrize(
    "name, value",
    [
        ("with_amax_reduction", True),
        ("row_scaled_nvfp4", True),
        ("nvfp4_use_4over6", True),
        ("nvfp4_e4m3_max", 256),
        ("nvfp4_4over6_err_mode", "MSE"),
    ],
)
def test_nvfp4_quantizer_refuses_by_name(name, value):
    with pytest.raises(RuntimeError, match=rf"\[NVFP4Quantizer\] {name} is not offered"):
        te.NVFP4Quantizer(**{name: value})


@pytest.mark.parametrize("given", [{}, {"with_post_rht_amax": True}])
def test_amaxes_are_of_what_is_quantized(given):
    x = torch.randn(32, 32) + 5
    made = te.NVFP4Quantizer(with_rht=True, **given)(x)
    assert torch.equal(made._columnwise_data, te.NVFP4Quantizer(with_rht=True)(x)._columnwise_data)
    for turns in (True, False):
        with pytest.raises(RuntimeError, match="expected both or none"):
            te.NVFP4Quantizer(with_rht=turns, with_post_rht_amax=not turns)


def test_a_hadamard_transform_without_signs():
    x = torch.randn(32, 32)
    made = te.NVFP4Quantizer(with_rht=True, with_random_sign_mask=False)(x)
    want = qs.NVFP4Quantizer(with_rht=True, rht_signs=0)(x)
    signed = te.NVFP4Quantizer(with_rht=True)(x)
    assert torch.equal(made._columnwise_data, want.columnwise_codes.view(torch.uint8))
    assert not torch.equal(made._columnwise_data, signed._columnwise_data)
    with pytest.raises(ValueError, match="with_random_sign_mask"):
        te.NVFP4Quantizer(with_random_sign_mask=False)


def test_current_scaling_with_a_group():
    quantizer = te.Float8CurrentScalingQuantizer(
        E4M3, "cpu", with_amax_reduction=True, amax_reduction_group=lambda amaxes: amaxes.mul_(2)
    )
    x = torch.randn(32, 32)
    assert quantizer(x)._scale_inv == 1 / (torch.tensor(448.0) / (2 * x.abs().max()))
    assert quantizer.copy()(x)._scale_inv == quantizer(x)._scale_inv


def test_custom_recipe_s_alignment():
    assert CustomRecipe(lambda role: None, quantization_alignment=128).custom()
    with pytest.raises(RuntimeError, match="quantization_alignment = 16"):
        CustomRecipe(lambda role: None, quantization_alignment=16)


QUANTIZERS = {
    "delayed": lambda: te.Float8Quantizer(torch.full((1,), 2.0), torch.zeros(1), E5M2),
    "current": lambda: te.Float8CurrentScalingQuantizer(E4M3, force_pow_2_scales=True),
    "block": lambda: te.Float8BlockQuantizer(E4M3, block_scaling_dim=1),
    "mxfp8": lambda: te.MXFP8Quantizer(E5M2, with_2d_quantization=True),
    "nvfp4": lambda: te.NVFP4Quantizer(with_rht=True, stochastic_rounding=True, seed=3),
}


@pytest.mark.parametrize("name", QUANTIZERS)
def test_a_copy_goes_its_own_way(name):
    quantizer = QUANTIZERS[name]()
    other, x = quantizer.copy(), torch.randn(64, 128)
    assert type(other) is type(quantizer) and other.scaling == quantizer.scaling
    assert torch.equal(other(x).dequantize(), quantizer(x).dequantize())
    other.set_usage(columnwise=False)
    assert quantizer.get_usages() == {"rowwise": True, "columnwise": True}
    assert other.get_usages() == {"rowwise": True, "columnwise": False}
    if name == "delayed":
        assert other.scale is quantizer.scale and other.amax is quantizer.amax
        del quantizer
        assert other(4 * x) is not None and other.amax == 4 * x.abs().max()


def test_a_copy_of_a_layer_s_quantizer_outlives_it():
    linear, x = te.Linear(32, 32, device="cpu"), torch.randn(32, 32)
    with te.autocast(recipe=DelayedScaling()):
        linear(x)
    copied = linear.quantizers["scaling_fwd"][0].copy()
    del linear
    assert copied(x)._scale_inv == 1 / copied.scale


@pytest.mark.parametrize("name", QUANTIZERS)
def test_memory_first_and_values_later(name):
    quantizer, x = QUANTIZERS[name](), torch.randn(64, 128, dtype=torch.bfloat16)
    made = quantizer.make_empty((64, 128), dtype=torch.bfloat16, device="cpu", requires_grad=True)
    assert type(made) is quantizer.makes and made.dtype == torch.bfloat16 and made.requires_grad
    assert quantizer.update_quantized(x, made) is made
    want = quantizer(x)
    assert torch.equal(made.dequantize(), want.dequantize())
    # A flag that is set leaves it as it is.
    quantizer.update_quantized(2 * x, made, noop_flag=torch.ones(1))
    assert torch.equal(made.dequantize(), want.dequantize())
    quantizer.update_quantized(2 * x, made, noop_flag=torch.zeros(1))
    assert not torch.equal(made.dequantize(), want.dequantize())


def test_make_empty_refuses_what_cannot_be():
    quantizer = te.MXFP8Quantizer(E4M3)
    with pytest.raises(RuntimeError, match="pin_memory is not offered"):
        quantizer.make_empty((32, 32), pin_memory=True)
    with pytest.raises(TypeError, match="int32"):
        quantizer.make_empty((32, 32), dtype=torch.int32)
    with pytest.raises(RuntimeError, match="meta"):
        quantizer.make_empty((32, 32), device="meta")


@pytest.mark.parametrize("shape", [4, None, "44", 2.5])
def test_make_empty_says_what_a_shape_is(shape):
    with pytest.raises(TypeError, match=r"got shape = .*; expected the sizes of a tensor"):
        te.MXFP8Quantizer(te.DType.kFloat8E4M3).make_empty(shape)
    with pytest.raises(TypeError, match=r"got a size = 2\.5; expected an integer"):
        te.MXFP8Quantizer(te.DType.kFloat8E4M3).make_empty((4, 2.5))


def test_the_device_of_a_quantizer_is_that_of_its_tensors(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    quantizer = te.Float8CurrentScalingQuantizer(te.DType.kFloat8E4M3, device="cuda:1")
    with pytest.raises(ValueError, match="got a tensor on cpu; expected one on cuda:1"):
        quantizer(torch.ones(4, 4))
    here = te.Float8CurrentScalingQuantizer(te.DType.kFloat8E4M3, device="cpu")
    assert here(torch.ones(4, 4)).device.type == "cpu"
    with torch.device("meta"):
        assert here.make_empty((4, 4)).device.type == "cpu"


def test_calibrate():
    quantizer, x = QUANTIZERS["delayed"](), torch.randn(8, 8)
    quantizer.calibrate(x)
    assert quantizer.amax == x.abs().max()
    QUANTIZERS["mxfp8"]().calibrate(x)
    with pytest.raises(TypeError, match="expected a torch tensor"):
        quantizer.calibrate([1.0])


@pytest.mark.parametrize("name", QUANTIZERS)
def test_fields_of_tensors(name):
    quantizer = QUANTIZERS[name]()
    made = quantizer(torch.randn(128, 128))
    assert made._quantizer is quantizer and made._fp8_dtype is quantizer.dtype
    assert made.get_usages() == {"rowwise": True, "columnwise": True}
    made.update_usage(columnwise_usage=False)
    assert made.get_usages() == {"rowwise": True, "columnwise": False}


def test_fields_of_kinds_of_tensors():
    assert te.NVFP4Quantizer()(torch.randn(16, 16))._fp4_dtype is te.DType.kFloat4E2M1
    quantizer = te.Float8CurrentScalingQuantizer(E4M3, columnwise=False)
    assert quantizer(torch.randn(16, 16))._transpose_invalid
    for dim in (1, 2):
        made = te.Float8BlockQuantizer(E4M3, block_scaling_dim=dim)(torch.randn(128, 128))
        assert made._is_2D_scaled == (dim == 2)


def test_the_weight_of_a_layer_knows_its_quantizer():
    with te.quantized_model_init(recipe=MXFP8BlockScaling()):
        linear = te.Linear(32, 32, device="cpu")
    assert linear.weight._quantizer is linear.quantizers["scaling_fwd"][1]
    assert linear.weight._fp8_dtype is E4M3


@pytest.mark.parametrize("own", ["te", "octavo"])
def test_quantizers_of_a_custom_recipe_are_the_factory_s(own):
    made = {}

    def qfactory(role):
        scale, amax = torch.full((1,), 2.0), torch.zeros(1)
        made[role.tensor_type] = (
            te.Float8Quantizer(scale, amax, E4M3)
            if own == "te"
            else qs.Float8Quantizer(scale, amax)
        )
        return made[role.tensor_type]

    linear, x = te.Linear(32, 32, device="cpu"), torch.randn(4, 32)
    with te.autocast(recipe=CustomRecipe(qfactory)):
        linear(x)
    found = linear.quantizers["scaling_fwd"][0]
    assert found.scale == 2 and found.amax == x.abs().max()
    if own == "te":
        assert found is made["input"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("recipe", [MXFP8BlockScaling(), DelayedScaling()])
def test_converting_a_module_keeps_its_codes(dtype, recipe):
    """They are codes of values of the new dtype then; none of them changes."""
    with te.quantized_model_init(recipe=recipe):
        linear = te.Linear(32, 32, device="cpu")
    codes = linear.weight._rowwise_data.clone()
    values = ov.dequantize(linear.weight.quantized, dtype)
    linear.to(dtype)
    assert linear.weight.dtype == linear.bias.dtype == dtype
    assert isinstance(linear.weight, torch.nn.Parameter)
    assert torch.equal(linear.weight._rowwise_data, codes)
    assert torch.equal(linear.weight.dequantize(), values)
    x = torch.randn(4, 32, dtype=dtype)
    with te.autocast(recipe=recipe):
        y = linear(x)
    y.sum().backward()
    assert y.dtype == linear.weight.grad.dtype == dtype
    torch.optim.SGD(linear.parameters(), lr=0.5).step()
    assert not torch.equal(linear.weight._rowwise_data, codes)
    assert linear.weight.dtype == dtype


def test_a_module_is_not_converted_to_what_no_values_are():
    with te.quantized_model_init(recipe=MXFP8BlockScaling()):
        linear = te.Linear(32, 32, device="cpu")
    with pytest.raises(TypeError, match="float8_e4m3fn"):
        linear.to(torch.float8_e4m3fn)


def test_a_weight_that_was_replaced_between_micro_batches():
    linear, x = te.Linear(32, 32, device="cpu"), torch.randn(4, 32)
    with te.autocast(recipe=MXFP8BlockScaling()):
        linear(x, is_first_microbatch=True)
        linear.weight, linear.bias = torch.nn.Parameter(torch.randn(16, 32)), None
        with pytest.raises(ValueError, match=r"the weight has shape \[16, 32\].*is_first_micro"):
            linear(x, is_first_microbatch=False)
        assert linear(x, is_first_microbatch=True).shape == (4, 16)


WRONG = {
    "Linear": (
        lambda **given: te.Linear(**{"in_features": 32, "out_features": 16, **given}),
        [
            ("in_features", 3.5, "an integer"),
            ("out_features", True, "an integer"),
            ("name", 3, "a text, or None"),
            ("init_method", 3, "a function, or None"),
            ("init_method", "normal", "a function, or None"),
            ("bias", "no", "True or False"),
            ("bias", 1, "True or False"),
            ("return_bias", None, "True or False"),
            ("params_dtype", "float32", "float64, float32"),
            ("device", 3.5, "a device of torch's"),
            ("device", -1, "a device of torch's"),
        ],
    ),
    "autocast": (
        te.autocast,
        [
            ("enabled", "no", "True or False"),
            ("calibrating", 1, "True or False"),
            ("amax_reduction_group", 3, "a group of torch.distributed, a function, or None"),
        ],
    ),
    "quantized_model_init": (
        te.quantized_model_init,
        [
            ("enabled", 0, "True or False"),
            ("preserve_high_precision_init_val", "no", "True or False"),
        ],
    ),
    "DelayedScaling": (
        te.DelayedScaling,
        [
            ("margin", 0.5, "an integer"),
            ("amax_history_len", "16", "an integer"),
            ("reduce_amax", "no", "True or False"),
            ("fp8_dpa", 1, "True or False"),
            ("amax_compute_algo", 3, "a text or a function"),
            ("scaling_factor_compute_algo", "max", "a function, or None"),
            ("backward_override", 3, "None, "),
        ],
    ),
    "QParams": (
        te.recipe.QParams,
        [("power_2_scale", "no", "True or False"), ("amax_epsilon", "0", "a number")],
    ),
    "MMParams": (te.recipe.MMParams, [("use_split_accumulator", 1, "True or False")]),
    "NVFP4Quantizer": (
        te.NVFP4Quantizer,
        [("with_rht", "no", "True or False"), ("rowwise", 1, "True or False")],
    ),
    "MXFP8Quantizer": (
        lambda **given: te.MXFP8Quantizer(E4M3, **given),
        [("with_2d_quantization", "no", "True or False"), ("columnwise", 0, "True or False")],
    ),
    "Float8BlockQuantizer": (
        lambda **given: te.Float8BlockQuantizer(E4M3, **given),
        [("block_scaling_dim", "1", "an integer"), ("amax_epsilon", "0", "a number")],
    ),
    "Float8CurrentScalingQuantizer": (
        lambda **given: te.Float8CurrentScalingQuantizer(E4M3, **given),
        [("force_pow_2_scales", 1, "True or False"), ("device", 3.5, "a device of torch's")],
    ),
    "Float8Quantizer": (
        lambda **given: te.Float8Quantizer(
            **{"scale": torch.ones(1), "amax": torch.zeros(1), "fp8_dtype": E4M3, **given}
        ),
        [("scale", 1.0, "a torch tensor"), ("amax", None, "a torch tensor")],
    ),
}


@pytest.mark.parametrize(
    "op, make, name, value, expected",
    [(op, make, *case) for op, (make, cases) in WRONG.items() for case in cases],
)
def test_wrong_types_are_named(op, make, name, value, expected):
    with pytest.raises(TypeError) as caught:
        make(**{name: value})
    text = str(caught.value)
    assert text.startswith(f"[{op}] got {name} = ") and f"expected {expected}" in text


def test_integers_of_numpy_are_integers():
    assert te.Linear(np.int64(4), np.int32(2), device="cpu")(torch.randn(3, 4)).shape == (3, 2)


def test_devices_that_are_not_there():
    with pytest.raises(ValueError, match=r"\[Linear\] got device = 'moon'; expected a device"):
        te.Linear(4, 2, device="moon")
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match=r"\[Linear\] got device = 'cuda', and torch has no"):
            te.Linear(4, 2, device="cuda")
