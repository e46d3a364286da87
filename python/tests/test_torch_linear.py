"""te.Linear: its numbers, its gradients, and what it refuses."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo as ov  # noqa: E402
import octavo.torch as te  # noqa: E402
from octavo import quantizers as qs  # noqa: E402
from octavo.recipe import (  # noqa: E402
    CustomRecipe,
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    Format,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
    QuantizerRole,
)

RECIPES = {
    "delayed": DelayedScaling(),
    "current": Float8CurrentScaling(),
    "current_power_2": Float8CurrentScaling(use_power_2_scales=True),
    "block": Float8BlockScaling(),
    "block_f32": Float8BlockScaling(use_f32_scales=True),
    "mxfp8": MXFP8BlockScaling(),
    "mxfp8_hybrid": MXFP8BlockScaling(fp8_format=Format.HYBRID, enable_2d_quantization=True),
    "nvfp4": NVFP4BlockScaling(disable_stochastic_rounding=True),
}


def delayed(format):
    return qs.Float8Quantizer(torch.ones(1), torch.zeros(1), format=format)


# Of x, w and dy, written out by hand from the recipe's description.
BY_HAND = {
    "delayed": lambda: (delayed("e4m3fn"), delayed("e4m3fn"), delayed("e5m2")),
    "current": lambda: [
        qs.Float8CurrentScalingQuantizer(format=f) for f in ("e4m3fn", "e4m3fn", "e5m2")
    ],
    "current_power_2": lambda: [
        qs.Float8CurrentScalingQuantizer(format=f, power_of_two=True)
        for f in ("e4m3fn", "e4m3fn", "e5m2")
    ],
    "block": lambda: [qs.Float8BlockQuantizer(block_dims=dims) for dims in (1, 2, 1)],
    "block_f32": lambda: [
        qs.Float8BlockQuantizer(block_dims=dims, power_of_two=False) for dims in (1, 2, 1)
    ],
    "mxfp8": lambda: [qs.MXFP8Quantizer() for _ in range(3)],
    "mxfp8_hybrid": lambda: (
        qs.MXFP8Quantizer(),
        qs.MXFP8Quantizer(two_dimensional=True),
        qs.MXFP8Quantizer(format="e5m2"),
    ),
    "nvfp4": lambda: (
        qs.NVFP4Quantizer(with_rht=True),
        qs.NVFP4Quantizer(two_dimensional=True),
        qs.NVFP4Quantizer(with_rht=True),
    ),
}


def forward_backward(linear, x, dy, recipe=None, **arguments):
    x = x.detach().clone().requires_grad_()
    with te.autocast(enabled=recipe is not None, recipe=recipe):
        y = linear(x, **arguments)
    y.backward(dy)
    return y.detach(), x.grad, linear.weight.grad, linear.bias.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", RECIPES)
def test_bits_are_those_of_quantize_and_gemm_by_hand(name, dtype):
    """The library's own tests hold its Linear to the same."""
    torch.manual_seed(1)
    linear = te.Linear(64, 48, params_dtype=dtype, device="cpu")
    torch.nn.init.normal_(linear.bias)
    x, dy = torch.randn(3, 16, 64, dtype=dtype), torch.randn(3, 16, 48, dtype=dtype)
    y, dx, dw, db = forward_backward(linear, x, dy, RECIPES[name])

    of_x, of_w, of_dy = BY_HAND[name]()
    rows, gradient = x.reshape(48, 64), dy.reshape(48, 48)
    qx, qw, qdy = of_x(rows), of_w(linear.weight.detach()), of_dy(gradient)
    assert torch.equal(y.reshape(48, 48), ov.gemm(qx, qw, linear.bias.detach(), out=dtype))
    assert torch.equal(dx.reshape(48, 64), ov.gemm(qdy, ov.transposed(qw), out=dtype))
    assert torch.equal(dw, ov.gemm(ov.transposed(qdy), ov.transposed(qx), out=dtype))
    assert torch.equal(db, ov.gemm(torch.ones(1, 48), gradient.t(), out=dtype)[0])
    assert y.dtype == dx.dtype == dw.dtype == db.dtype == dtype


def test_gradients_without_a_recipe_are_torch_s():
    """f64 sums of 64 products: both sides are within 64 * 2^-53 of the sum of magnitudes, which is
    below 1e-12 of the largest entries here."""
    linear = te.Linear(64, 48, params_dtype=torch.float64, device="cpu")
    peer = torch.nn.Linear(64, 48, dtype=torch.float64)
    peer.load_state_dict(linear.state_dict())
    x, dy = torch.randn(5, 64, dtype=torch.float64), torch.randn(5, 48, dtype=torch.float64)
    mine, theirs = forward_backward(linear, x, dy), forward_backward(peer, x, dy)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(linear, x.requires_grad_(), rtol=1e-6)


@pytest.mark.parametrize("name", RECIPES)
def test_gradients_under_a_recipe_are_near(name):
    """Every operand is off by at most half a step of its format: relative to it 1/16 for E4M3, 1/8
    for E5M2, 1/4 for E2M1. Errors of random operands are independent of what they are multiplied
    with, so that of a product stays below the sum of the two, in the norm."""
    halves = {"nvfp4": 1 / 4 + 1 / 4, "mxfp8": 1 / 16 + 1 / 16, "block": 1 / 16 + 1 / 16}
    bound = halves.get(name.removesuffix("_f32"), 1 / 16 + 1 / 8)
    torch.manual_seed(2)
    linear = te.Linear(256, 128, device="cpu")
    # Delayed scaling has no scale yet in the first step, so tensors fit the format as they are.
    torch.nn.init.normal_(linear.weight)
    peer = torch.nn.Linear(256, 128)
    peer.load_state_dict(linear.state_dict())
    x, dy = torch.randn(64, 256), torch.randn(64, 128)
    mine = forward_backward(linear, x, dy, RECIPES[name])
    theirs = forward_backward(peer, x, dy)
    for a, b in zip(mine, theirs, strict=True):
        assert (a - b).norm() <= bound * b.norm()
    assert any(not torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("override", ["high_precision", "dequantized"])
def test_backward_override(override):
    linear = te.Linear(64, 32, device="cpu")
    x, dy = torch.randn(32, 64), torch.randn(32, 32)
    recipe = MXFP8BlockScaling(backward_override=override)
    _, dx, dw, _ = forward_backward(linear, x, dy, recipe)
    w = linear.weight.detach()
    if override == "dequantized":
        x, w = (ov.dequantize(ov.quantize(t, qs.MXFP8Quantizer().scaling)) for t in (x, w))
    torch.testing.assert_close(dx, dy @ w)
    torch.testing.assert_close(dw, dy.t() @ x)


def test_codes_are_kept_for_backward_not_values():
    linear = te.Linear(64, 64, device="cpu")
    x = torch.randn(64, 64)
    gone = weakref.ref(x)
    with te.autocast(recipe=MXFP8BlockScaling()):
        y = linear(x)
    assert sum(saved.nbytes for saved in y.grad_fn.saved_tensors) == 64 * 64 + 64 * 2
    del x
    gc.collect()
    assert gone() is None
    y.sum().backward()


def test_micro_batches_share_the_codes_of_a_weight():
    linear = te.Linear(32, 32, device="cpu")
    x, recipe = torch.randn(32, 32), MXFP8BlockScaling()

    def y(is_first_microbatch):
        with te.autocast(recipe=recipe):
            return linear(x, is_first_microbatch=is_first_microbatch).detach()

    first = y(True)
    with torch.no_grad():
        linear.weight.mul_(2)
    assert torch.equal(y(False), first)
    second = y(True)
    assert not torch.equal(second, first) and torch.equal(y(None), second)


def test_gradients_add_up_and_a_graph_is_used_once():
    linear = te.Linear(32, 32, device="cpu")
    x, dy = torch.randn(32, 32), torch.randn(32, 32)
    _, _, once, _ = (t.clone() for t in forward_backward(linear, x, dy, MXFP8BlockScaling()))
    _, _, twice, _ = forward_backward(linear, x, dy, MXFP8BlockScaling())
    assert torch.equal(twice, 2 * once)
    for recipe in (None, MXFP8BlockScaling()):
        with te.autocast(enabled=recipe is not None, recipe=recipe):
            y = linear(x)
        y.backward(dy, retain_graph=True)
        y.backward(dy)
        with pytest.raises(RuntimeError, match="a second time"):
            y.backward(dy)


def test_overwritten_values_are_noticed():
    linear = te.Linear(32, 32, device="cpu")
    x = torch.randn(32, 32)
    y = linear(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="inplace operation"):
        y.sum().backward()


def test_only_what_is_asked_for():
    linear = te.Linear(32, 32, device="cpu")
    linear.weight.requires_grad_(False)
    linear.bias.requires_grad_(False)
    x = torch.randn(32, 32, requires_grad=True)
    with te.autocast(recipe=MXFP8BlockScaling()):
        linear(x).sum().backward()
        assert x.grad is not None and linear.weight.grad is None
        with torch.no_grad():
            assert not linear(x).requires_grad
        assert not linear(x.detach()).requires_grad


def test_return_bias_and_no_bias():
    linear = te.Linear(32, 32, return_bias=True, device="cpu")
    torch.nn.init.ones_(linear.bias)
    x = torch.randn(32, 32)
    y, bias = linear(x)
    torch.testing.assert_close(y, x @ linear.weight.t())
    assert bias is linear.bias
    bare = te.Linear(32, 32, bias=False, device="cpu")
    assert bare.bias is None and list(bare.state_dict()) == ["weight"]
    with te.autocast():
        bare(x).sum().backward()
    assert bare.weight.grad.shape == (32, 32)


def test_torch_autocast_says_the_type():
    linear = te.Linear(32, 32, device="cpu")
    with torch.autocast("cpu", torch.bfloat16), te.autocast(recipe=MXFP8BlockScaling()):
        y = linear(torch.randn(32, 32))
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert linear.weight.grad.dtype == torch.float32


def test_custom_recipe():
    asked = []

    def qfactory(role):
        asked.append(role)
        return te.MXFP8Quantizer(te.DType.kFloat8E4M3)

    linear = te.Linear(32, 32, name="mine", device="cpu")
    recipe = CustomRecipe(qfactory)
    x, dy = torch.randn(32, 32), torch.randn(32, 32)
    mine = [t.clone() for t in forward_backward(linear, x, dy, recipe)]
    assert asked[0] == QuantizerRole("linear", "input", "mine")
    assert [role.tensor_type for role in asked] == [
        "input", "weight", "output", "grad_output", "grad_input",
    ]  # fmt: skip
    forward_backward(linear, x, dy, recipe)
    assert len(asked) == 5  # once
    other = te.Linear(32, 32, device="cpu")
    other.load_state_dict(linear.state_dict())
    for a, b in zip(mine, forward_backward(other, x, dy, MXFP8BlockScaling()), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "made, error, text",
    [
        (None, ValueError, "gave no quantizer"),
        (3, TypeError, "gave int"),
    ],
)
def test_custom_recipe_that_gives_no_quantizer(made, error, text):
    linear = te.Linear(32, 32, device="cpu")
    with te.autocast(recipe=CustomRecipe(lambda role: made)), pytest.raises(error, match=text):
        linear(torch.randn(32, 32))


def test_a_factory_s_own_error_comes_out():
    linear = te.Linear(32, 32, device="cpu")
    with te.autocast(recipe=CustomRecipe(lambda role: 1 / 0)), pytest.raises(ZeroDivisionError):
        linear(torch.randn(32, 32))


@pytest.mark.parametrize(
    "x, error, text",
    [
        (torch.randn(4, 33), ValueError, r"x has shape \[4, 33\]"),
        (torch.randn(32), ValueError, "at least two dimensions"),
        (torch.ones(4, 32, dtype=torch.int64), TypeError, "int64"),
        (torch.ones(4, 32, dtype=torch.complex64), TypeError, "complex64"),
        (torch.ones(4, 32, dtype=torch.float8_e4m3fn), TypeError, "float8_e4m3fn"),
        (torch.ones(4, 32).to_sparse(), TypeError, "to_dense"),
        (torch.ones(4, 32, device="meta"), RuntimeError, "meta"),
        ([[1.0] * 32], TypeError, "expected a torch tensor"),
    ],
)
@pytest.mark.parametrize("recipe", [None, MXFP8BlockScaling(), DelayedScaling()])
def test_bad_input(x, error, text, recipe):
    linear = te.Linear(32, 32, device="cpu")
    with te.autocast(enabled=recipe is not None, recipe=recipe):
        with pytest.raises(error, match=text):
            linear(x)
        assert linear(torch.randn(2, 32)).shape == (2, 32)


def test_strides_do_not_matter():
    linear = te.Linear(32, 32, device="cpu")
    for x in (
        torch.randn(32, 40).t(),
        torch.randn(5, 64)[:, ::2],
        torch.randn(3, 4, 32).transpose(0, 1),
        torch.randn(1, 32).expand(6, 32),
    ):
        with te.autocast(recipe=MXFP8BlockScaling()):
            assert torch.equal(linear(x), linear(x.contiguous()))


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: te.Linear(0, 3), ValueError, "at least 1"),
        (lambda: te.Linear(4.5, 3), TypeError, "got in_features = 4.5; expected an integer"),
        (lambda: te.Linear(3, "4"), TypeError, "got out_features = '4'; expected an integer"),
        (lambda: te.Linear(3, 3, params_dtype=torch.int32), TypeError, "params_dtype"),
        (lambda: te.Linear(3, 3, params_dtype=torch.float8_e4m3fn), TypeError, "params_dtype"),
        (lambda: te.Linear(32, 32, tp_size=2), RuntimeError, "tp_size is not offered"),
        (lambda: te.Linear(32, 32, parallel_mode="row"), RuntimeError, "parallel_mode"),
        (lambda: te.Linear(32, 32, fuse_wgrad_accumulation=True), RuntimeError, "fuse_wgrad"),
        (lambda: te.autocast(recipe="mxfp8"), TypeError, "type str"),
        (lambda: te.autocast(recipe=MXFP8BlockScaling), TypeError, "type type"),
        (lambda: te.quantized_model_init(recipe=1), TypeError, "type int"),
    ],
)
def test_bad_arguments(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize("argument", ["fp8_output", "fp8_grad"])
def test_quantized_results_are_refused(argument):
    linear = te.Linear(32, 32, device="cpu")
    with te.autocast(recipe=MXFP8BlockScaling()), pytest.raises(RuntimeError, match=argument):
        linear(torch.randn(4, 32), **{argument: True})


def test_torch_compile_goes_around_the_layer():
    model = torch.nn.Sequential(
        te.Linear(32, 48, device="cpu"), torch.nn.ReLU(), te.Linear(48, 8, device="cpu")
    )
    compiled, x = torch.compile(model, backend="aot_eager"), torch.randn(4, 32)
    with te.autocast(recipe=MXFP8BlockScaling()):
        y, wanted = compiled(x), model(x)
    assert torch.equal(y, wanted)
    y.sum().backward()
    gradient, model[0].weight.grad = model[0].weight.grad, None
    wanted.sum().backward()
    assert torch.equal(gradient, model[0].weight.grad)


def test_a_quantized_tensor_as_input():
    linear = te.Linear(64, 32, device="cpu")
    x = te.MXFP8Quantizer(te.DType.kFloat8E4M3)(torch.randn(4, 64)).requires_grad_()
    values = x.dequantize().detach().requires_grad_()
    for recipe in (None, MXFP8BlockScaling()):
        with te.autocast(enabled=recipe is not None, recipe=recipe):
            got, want = linear(x), linear(values)
        assert torch.equal(got, want)
        (got + want).sum().backward()
        assert torch.equal(x.grad, values.grad)


@pytest.mark.parametrize("recipe", [None, MXFP8BlockScaling()])
def test_a_parametrized_layer_is_copied(recipe):
    linear = torch.nn.utils.parametrizations.weight_norm(te.Linear(64, 32, device="cpu"))
    other, x = copy.deepcopy(linear), torch.randn(4, 64)
    with te.autocast(enabled=recipe is not None, recipe=recipe):
        assert torch.equal(other(x), linear(x))
    with torch.no_grad():
        other.parametrizations.weight.original0.mul_(2)
    assert torch.equal(other.weight, 2 * linear.weight)


@pytest.mark.parametrize("given", [5, 1, "yes"])
def test_bad_is_first_microbatch(given):
    linear = te.Linear(64, 32, device="cpu")
    with pytest.raises(TypeError, match="is_first_microbatch = .*expected True, False or None"):
        linear(torch.ones(4, 64), is_first_microbatch=given)
