"""Quantizers with Transformer Engine's arguments, and the tensors they make."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo as ov  # noqa: E402
import octavo.torch as te  # noqa: E402
from octavo import quantizers as qs  # noqa: E402
from octavo.recipe import DelayedScaling, MXFP8BlockScaling  # noqa: E402

E4M3 = te.DType.kFloat8E4M3


def one():
    return torch.full((1,), 2.0), torch.zeros(1)


CASES = {
    "delayed": (
        lambda: te.Float8Quantizer(*one(), E4M3),
        lambda: qs.Float8Quantizer(*one()),
        te.Float8Tensor,
    ),
    "current": (
        lambda: te.Float8CurrentScalingQuantizer(E4M3, "cpu", force_pow_2_scales=True),
        lambda: qs.Float8CurrentScalingQuantizer(power_of_two=True),
        te.Float8Tensor,
    ),
    "block": (
        lambda: te.Float8BlockQuantizer(E4M3, block_scaling_dim=1, amax_epsilon=8.0),
        lambda: qs.Float8BlockQuantizer(block_dims=1, min_amax=8.0),
        te.Float8BlockwiseQTensor,
    ),
    "mxfp8": (
        lambda: te.MXFP8Quantizer(te.DType.kFloat8E5M2),
        lambda: qs.MXFP8Quantizer(format="e5m2"),
        te.MXFP8Tensor,
    ),
    "nvfp4": (
        lambda: te.NVFP4Quantizer(with_rht=True),
        lambda: qs.NVFP4Quantizer(with_rht=True),
        te.NVFP4Tensor,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_octavo_s(name):
    mine, theirs, kind = CASES[name]
    x = torch.randn(64, 128)
    made, want = mine()(x), theirs()(x)
    assert type(made) is kind and made.shape == x.shape and made.dtype == torch.float32
    assert torch.equal(made.dequantize(), ov.dequantize(want))
    assert torch.equal(made._rowwise_data, want.codes.view(torch.uint8))
    columns = want.columnwise_codes.view(torch.uint8)
    assert torch.equal(made._columnwise_data, columns.t() if name == "mxfp8" else columns)
    assert made.nbytes == want.nbytes
    assert made.dequantize(dtype=torch.bfloat16).dtype == torch.bfloat16


def test_float8_quantizer_works_where_its_state_lies():
    scale, amax = one()
    quantizer = te.Float8Quantizer(scale, amax, E4M3)
    x = torch.randn(32, 32)
    made = quantizer(x)
    assert amax == x.abs().max() and made._scale_inv.tolist() == [0.5]
    scale.fill_(4)
    assert quantizer(x)._scale_inv.tolist() == [0.25]
    assert quantizer.scale is scale and quantizer.dtype is E4M3


def test_usage():
    quantizer = te.MXFP8Quantizer(E4M3)
    quantizer.set_usage(columnwise=False)
    assert quantizer.rowwise_usage and not quantizer.columnwise_usage
    assert (
        repr(quantizer) == "MXFP8Quantizer(fp8_dtype=kFloat8E4M3, rowwise=True, columnwise=False)"
    )
    x = torch.randn(64, 32)
    rows = quantizer(x)
    assert rows._columnwise_data is None
    with pytest.raises(RuntimeError, match="no columnwise copy"):
        rows.update_usage(columnwise_usage=True)
    quantizer.set_usage(columnwise=True)
    both = quantizer(x)
    size = both.nbytes
    both.update_usage(rowwise_usage=False)
    assert both._rowwise_data is None and both.nbytes == size // 2
    with pytest.raises(ValueError, match="one copy must remain"):
        both.update_usage(columnwise_usage=False)


@pytest.mark.parametrize(
    "quantizer",
    [
        te.Float8Quantizer(torch.full((1,), 4.0), torch.zeros(1), E4M3),
        te.Float8CurrentScalingQuantizer(E4M3),
        te.Float8BlockQuantizer(E4M3, block_scaling_dim=2),
        te.MXFP8Quantizer(E4M3, with_2d_quantization=True),
    ],
    ids=lambda quantizer: type(quantizer).__name__,
)
@pytest.mark.parametrize("missing", ["rowwise", "columnwise"])
def test_a_copy_that_is_the_transpose_of_the_other_is_made_on_request(quantizer, missing):
    x = torch.randn(96, 160)
    quantizer.set_usage(rowwise=True, columnwise=True)
    both = quantizer(x)
    quantizer.set_usage(rowwise=missing != "rowwise", columnwise=missing != "columnwise")
    one = quantizer(x)
    one.update_usage(rowwise_usage=True, columnwise_usage=True)
    for field in ("_rowwise_data", "_rowwise_scale_inv", "_columnwise_data"):
        assert torch.equal(getattr(one, field), getattr(both, field))
    assert torch.equal(one._columnwise_scale_inv, both._columnwise_scale_inv)
    assert one.nbytes == both.nbytes


def test_a_copy_with_tiles_of_its_own_cannot_be_made():
    for quantizer in (
        te.MXFP8Quantizer(E4M3, columnwise=False),
        te.Float8BlockQuantizer(E4M3, columnwise=False, block_scaling_dim=1),
        te.NVFP4Quantizer(columnwise=False),
    ):
        with pytest.raises(RuntimeError, match="no columnwise copy"):
            quantizer(torch.randn(64, 64)).update_usage(columnwise_usage=True)


def test_operations_see_values():
    made = te.MXFP8Quantizer(E4M3)(torch.randn(32, 32))
    values = made.dequantize()
    assert torch.equal(made + 1, values + 1) and type(made + 1) is torch.Tensor
    assert torch.equal(made.t(), values.t()) and torch.equal(made[3], values[3])
    assert torch.equal(torch.matmul(made, made), values @ values)


def test_writing_quantizes_again():
    quantizer = te.MXFP8Quantizer(E4M3)
    made, x = quantizer(torch.randn(32, 32)), torch.randn(32, 32)
    alias, clone = made.detach(), made.clone()
    before = clone.dequantize()
    made.copy_(x)
    want = quantizer(x).dequantize()
    assert torch.equal(made.dequantize(), want) and torch.equal(alias.dequantize(), want)
    assert torch.equal(clone.dequantize(), before)
    made.mul_(2)  # exact: scales are powers of two
    assert isinstance(made, te.MXFP8Tensor) and torch.equal(made.dequantize(), 2 * want)
    made.quantize_(x)
    assert torch.equal(made.dequantize(), want)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies(name, copied):
    made = CASES[name][0]()(torch.randn(32, 32)).requires_grad_()
    same = copied(made)
    assert type(same) is type(made) and same.requires_grad and same is not made
    assert torch.equal(same.dequantize(), made.dequantize())
    assert torch.equal(same._columnwise_data, made._columnwise_data)


def test_gradients_flow_through_dequantize():
    made = te.MXFP8Quantizer(E4M3)(torch.randn(32, 32)).requires_grad_()
    (3 * made.dequantize()).sum().backward()
    assert torch.equal(made.grad, torch.full((32, 32), 3.0))


@pytest.mark.parametrize("recipe", [MXFP8BlockScaling(), DelayedScaling()])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_an_optimizer_steps_quantized_weights(recipe, optimizer):
    torch.manual_seed(0)
    with te.quantized_model_init(recipe=recipe):
        linear = te.Linear(32, 32, device="cpu")
    wanted = torch.randn(32, 32)
    x = torch.randn(64, 32)
    step, losses = optimizer(linear.parameters(), lr=0.05), []
    for _ in range(30):
        step.zero_grad()
        with te.autocast(recipe=recipe):
            y = linear(x)
        loss = (y - x @ wanted.t()).square().mean()
        loss.backward()
        step.step()
        losses.append(loss.item())
    assert isinstance(linear.weight, te.QuantizedTensor)
    assert losses[-1] < 0.9 * losses[0]


def test_quantized_weights_of_delayed_scaling_fit_from_the_start():
    with te.quantized_model_init(recipe=DelayedScaling(), preserve_high_precision_init_val=True):
        linear = te.Linear(32, 32, device="cpu")
    values = linear.weight.get_high_precision_init_val()
    assert linear.quantizers["scaling_fwd"][1].scale == torch.tensor(448.0) / values.abs().max()
    # Half a step of E4M3 next to a value is at most 1/16 of it, or 2^-10 / scale below 2^-6.
    scale = linear.quantizers["scaling_fwd"][1].scale
    error = (linear.weight.dequantize() - values).abs()
    assert (error <= torch.maximum(values.abs() / 16, 2**-10 / scale)).all()
    linear.weight.clear_high_precision_init_val()
    assert linear.weight.get_high_precision_init_val() is None


def test_quantized_weights_without_values_kept():
    with te.quantized_model_init(recipe=MXFP8BlockScaling()):
        linear = te.Linear(32, 32, device="cpu")
    assert linear.weight.get_high_precision_init_val() is None
    with te.quantized_model_init(enabled=False):
        assert type(te.Linear(32, 32, device="cpu").weight) is torch.nn.Parameter


@pytest.mark.parametrize("recipe", [MXFP8BlockScaling(), DelayedScaling()])
def test_a_module_with_quantized_weights_is_copied(recipe):
    with te.quantized_model_init(recipe=recipe):
        linear = te.Linear(32, 32, device="cpu")
    other, x = copy.deepcopy(linear), torch.randn(4, 32)
    with te.autocast(recipe=recipe):
        assert torch.equal(linear(x), other(x))
    mine, theirs = linear.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)
    with torch.no_grad():
        other.weight.mul_(2)
    if recipe.delayed():  # by the copy's quantizer, which saw the new values
        mine, theirs = (one.quantizers["scaling_fwd"][1].amax for one in (linear, other))
        assert theirs == 2 * mine > 0
    with te.autocast(recipe=recipe):
        assert not torch.equal(linear(x), other(x))


@pytest.mark.parametrize("recipe", [MXFP8BlockScaling(), DelayedScaling()])
def test_a_module_with_quantized_weights_is_pickled(recipe):
    with te.quantized_model_init(recipe=recipe, preserve_high_precision_init_val=True):
        linear = te.Linear(32, 32, device="cpu")
    other, x = pickle.loads(pickle.dumps(torch.nn.Sequential(linear)))[0], torch.randn(4, 32)
    assert torch.equal(
        other.weight.get_high_precision_init_val(), linear.weight.get_high_precision_init_val()
    )
    with te.autocast(recipe=recipe):
        y = other(x)
        assert torch.equal(linear(x), y)
    y.sum().backward()
    before = other.weight.dequantize()
    torch.optim.SGD(other.parameters(), lr=1.0).step()  # quantizes again, with the copy's own
    assert not torch.equal(other.weight.dequantize(), before)
    wrong = DelayedScaling() if recipe.mxfp8() else MXFP8BlockScaling()
    with te.autocast(recipe=wrong), pytest.raises(RuntimeError, match="Recipe mismatch"):
        other(x)


def test_scopes_of_init_nest():
    with te.quantized_model_init(recipe=MXFP8BlockScaling()):
        with te.quantized_model_init(recipe=DelayedScaling()):
            inner = te.Linear(32, 32, device="cpu")
        outer = te.Linear(32, 32, device="cpu")
    for linear, recipe in ((inner, DelayedScaling()), (outer, MXFP8BlockScaling())):
        with te.autocast(recipe=recipe):
            pickle.loads(pickle.dumps(linear))(torch.randn(4, 32))


@pytest.mark.parametrize("recipe", [MXFP8BlockScaling(), DelayedScaling()])
def test_quantized_weights_save_as_tensors(recipe, tmp_path):
    def layer():
        with te.quantized_model_init(recipe=recipe):
            return te.Linear(64, 32, device="cpu")

    linear, other, x = layer(), layer(), torch.randn(4, 64)
    torch.save(linear.state_dict(), tmp_path / "state")
    state = torch.load(tmp_path / "state", weights_only=True)
    assert "weight" not in state and state["weight.codes"].dtype == torch.uint8
    assert all(type(tensor) is torch.Tensor for tensor in state.values())
    other.load_state_dict(state)
    with te.autocast(recipe=recipe):
        assert torch.equal(linear(x), other(x))
    # Plain values are quantized; a layer that keeps values takes no codes.
    plain = te.Linear(64, 32, device="cpu")
    other.load_state_dict(plain.state_dict(), strict=False)
    with pytest.raises(RuntimeError, match="Missing key"):
        plain.load_state_dict(state)
    state["weight.codes"] = state["weight.codes"][1:]
    with pytest.raises(RuntimeError, match=r"codes of torch.uint8 \(31, 64\); expected"):
        other.load_state_dict(state)


def test_codes_are_nowhere_else():
    with te.quantized_model_init(recipe=MXFP8BlockScaling()):
        linear = te.Linear(32, 32, device="cpu")
    with pytest.raises(RuntimeError, match="cannot be on meta"):
        linear.to("meta")
    with pytest.raises(RuntimeError, match="cannot be on meta"):
        linear.weight.to("meta")
    values = linear.weight.dequantize().double()
    assert torch.equal(linear.weight.to(torch.float64), values)  # of a tensor, values


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: te.MXFP8Quantizer(E4M3, rowwise=False, columnwise=False), ValueError, "neither"),
        (lambda: te.MXFP8Quantizer(E4M3)(torch.ones(4, 4, dtype=torch.int32)), TypeError, "int32"),
        (lambda: te.NVFP4Quantizer(E4M3), ValueError, "kFloat4E2M1"),
        (lambda: te.Float8Quantizer(torch.ones(2), torch.zeros(1), E4M3), ValueError, "one"),
        (
            lambda: te.Float8CurrentScalingQuantizer(E4M3, with_amax_reduction=True),
            ValueError,
            "go together",
        ),
    ],
)
def test_bad_arguments(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_functions_of_octavo_say_what_they_want_of_it():
    tensor = te.MXFP8Quantizer(te.DType.kFloat8E4M3)(torch.randn(32, 32))
    plain = torch.randn(32, 32)
    for work in (
        lambda: ov.gemm(tensor, plain),
        lambda: ov.attention(tensor, plain, plain),
        lambda: ov.quantize(tensor, "mxfp8"),
        lambda: ov.encode(tensor, "e4m3fn"),
    ):
        with pytest.raises(TypeError, match="got a MXFP8Tensor, which is codes with scales"):
            work()
    assert ov.gemm(tensor.quantized, plain).shape == (32, 32)
