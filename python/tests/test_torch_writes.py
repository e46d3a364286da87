"""Writes to quantized tensors, in each way torch has: they are quantized again or refused, never
lost."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import Float8BlockScaling, MXFP8BlockScaling  # noqa: E402

E4M3 = te.DType.kFloat8E4M3


def layer(out_features=32, recipe=None):
    with te.quantized_model_init(recipe=recipe or MXFP8BlockScaling()):
        return te.Linear(64, out_features, device="cpu")


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return layer()


# Powers of two are codes of MXFP8 whatever they stand beside, so that results are exact.


@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"fused": True}])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_every_kind_of_optimizer_step_writes(linear, optimizer, how):
    plain = torch.nn.Parameter(linear.weight.dequantize().detach().clone())
    for weight in (linear.weight, plain):
        weight.grad = torch.ones(32, 64)
        # Without decay, which would be a write and a rounding before that of the step.
        optimizer([weight], lr=1.0, weight_decay=0.0, **how).step()
    want = te.MXFP8Quantizer(E4M3)(plain)
    assert isinstance(linear.weight, te.MXFP8Tensor)
    assert torch.equal(linear.weight.dequantize(), want.dequantize())


def foreach_(weight):
    torch._foreach_zero_([weight])
    torch._foreach_add_([weight], 2.0)


def lerp(weight):
    torch._foreach_lerp_([weight], [torch.full((32, 64), 2.0)], 1.0)


def by_keyword(weight):
    assert torch.add(torch.ones(32, 64), 1.0, out=weight) is weight


def by_data(weight):
    weight.data = torch.full((32, 64), 2.0)


def of_a_vector(weight):
    torch.nn.utils.vector_to_parameters(torch.full((32 * 64,), 2.0), [weight])


def of_itself(weight):
    weight.fill_(1.0)
    torch.mul(weight, 2.0, out=weight)


def of_a_view(weight):
    weight.copy_(torch.full((32, 64), 2.0))
    weight.copy_(weight.view(-1).view(32, 64))


@pytest.mark.parametrize(
    "write", [foreach_, lerp, by_keyword, by_data, of_a_vector, of_itself, of_a_view]
)
def test_other_writes(linear, write):
    with torch.no_grad():
        write(linear.weight)
    assert isinstance(linear.weight, te.MXFP8Tensor) and linear.weight.requires_grad
    assert torch.equal(linear.weight.dequantize(), torch.full((32, 64), 2.0))


def test_an_average_of_models_moves():
    torch.manual_seed(0)
    model = torch.nn.Sequential(layer())
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
    )
    average.update_parameters(model)
    with torch.no_grad():
        average.module[0].weight.fill_(0.0)
        model[0].weight.fill_(4.0)
    average.update_parameters(model)
    assert torch.equal(average.module[0].weight.dequantize(), torch.full((32, 64), 2.0))


def item(weight):
    weight[0] = 1


@pytest.mark.parametrize(
    "write",
    [
        item,
        lambda weight: weight.view(-1).fill_(1.0),
        lambda weight: weight.t().fill_(1.0),
        lambda weight: weight[:, :4].mul_(2.0),
        lambda weight: weight.data[:4].t().zero_(),
        lambda weight: weight.unbind(0)[3].add_(1.0),
        lambda weight: weight.t().detach().data.zero_(),
        lambda weight: torch._foreach_zero_([torch.ones(2), weight[1]]),
        lambda weight: torch.add(torch.ones(64), 1.0, out=weight[1]),
    ],
)
def test_views_are_read_only(linear, write):
    before = linear.weight.dequantize().detach().clone()
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"view or a slice.*copy_\(values\)"):
        write(linear.weight)
    assert torch.equal(linear.weight.dequantize(), before)


def test_views_are_read():
    made = te.MXFP8Quantizer(E4M3)(torch.randn(32, 64)).requires_grad_()
    values = made.dequantize().detach()
    assert made.detach()[3].tolist() == values[3].tolist()
    assert (made.detach()[0].numpy() == values[0].numpy()).all()
    for copied in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), torch.clone):
        same = copied(made.detach().t())
        assert type(same) is torch.Tensor and torch.equal(same, values.t())
        same.zero_()  # it is its own
    x = torch.randn(4, 64)
    y = torch.nn.functional.linear(x, made)
    assert torch.equal(y, torch.nn.functional.linear(x, values))
    y.sum().backward()
    assert torch.allclose(made.grad, x.sum(0).expand(32, 64))


def test_content_of_another_shape_or_kind():
    weight, other = layer().weight.data, layer(64).weight.data
    for source in (other, torch.ones(64, 64)):
        with pytest.raises(
            ValueError, match=r"got values of shape \(64, 64\); expected \(32, 64\)"
        ):
            weight.copy_(source)
    with pytest.raises(ValueError, match=r"got \(64, 64\) for .data; expected .* \(32, 64\)"):
        weight.data = other
    with (
        pytest.warns(UserWarning, match="resized"),
        pytest.raises(ValueError, match=r"got values of shape \(4, 64\)"),
    ):
        torch.add(torch.ones(4, 64), 1.0, out=weight)
    blocks = layer(recipe=Float8BlockScaling()).weight.data
    weight.copy_(blocks)  # values, quantized as this tensor is
    assert weight.quantized.scaling == other.quantized.scaling
    row = layer(1).weight.data
    weight.copy_(row)
    assert weight.quantized.shape == (32, 64)
    assert torch.equal(weight.dequantize(), row.dequantize().expand(32, 64))


@pytest.mark.parametrize(
    ("out", "error", "text"),
    [
        (
            lambda: te.MXFP8Quantizer(E4M3)(torch.ones(8, 32)),
            ValueError,
            r"\(8, 32\); expected \(4",
        ),
        (lambda: te.NVFP4Quantizer()(torch.ones(4, 64)), TypeError, "NVFP4Tensor; expected MXFP8T"),
        (lambda: torch.ones(4, 64), TypeError, "got out of type Tensor; expected MXFP8Tensor"),
        (lambda: te.MXFP8Quantizer(E4M3)(torch.ones(4, 64).half()), TypeError, "float16"),
        (lambda: te.MXFP8Quantizer(te.DType.kFloat8E5M2)(torch.ones(4, 64)), ValueError, "e5m2"),
    ],
)
def test_out_of_another_shape_or_kind(out, error, text):
    with pytest.raises(error, match=text):
        te.MXFP8Quantizer(E4M3).quantize(torch.ones(4, 64), out=out())


def test_out_with_one_copy_is_filled():
    quantizer = te.MXFP8Quantizer(E4M3)
    out = quantizer(torch.ones(32, 64))
    out.update_usage(columnwise_usage=False)
    assert quantizer.quantize(torch.full((32, 64), 2.0), out=out) is out
    assert torch.equal(out.dequantize(), torch.full((32, 64), 2.0))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.transpose_(0, 1),
        lambda x: x.swapaxes_(0, 1),
        lambda x: x.swapdims_(0, 1),
        lambda x: x.as_strided_((64, 64), (1, 64)),
        lambda x: x.unsqueeze_(0),
    ],
)
@pytest.mark.parametrize("alias", [lambda x: x.data, lambda x: x.detach(), lambda x: x])
def test_codes_are_not_reshaped_in_place(change, alias):
    """Of a square weight the values would go back in another order, whoever else holds them."""
    weight = layer(64).weight
    before = weight.dequantize().detach().clone()
    with torch.no_grad(), pytest.raises(RuntimeError, match="in place, and codes lie as they"):
        change(alias(weight))
    assert torch.equal(weight.dequantize(), before) and weight.shape == (64, 64)


@pytest.mark.parametrize("has", [(True, True), (True, False), (False, True)])
def test_out_keeps_its_copies(has):
    x, new = torch.randn(32, 64), torch.randn(32, 64)
    out = te.MXFP8Quantizer(E4M3)(x)
    out.update_usage(*has)
    quantizer = te.MXFP8Quantizer(E4M3, columnwise=False)
    quantizer.quantize(new, out=out)
    want = te.MXFP8Quantizer(E4M3)(new)
    assert out.get_usages() == {"rowwise": True, "columnwise": has[1]}
    assert torch.equal(out._rowwise_data, want._rowwise_data)
    if has[1]:
        assert torch.equal(out._columnwise_data, want._columnwise_data)
    assert quantizer.get_usages() == {"rowwise": True, "columnwise": False}


def test_a_write_keeps_the_copies():
    quantizer, new = te.MXFP8Quantizer(E4M3), torch.randn(32, 64)
    out = quantizer(torch.randn(32, 64))
    quantizer.set_usage(columnwise=False)
    out.copy_(new)
    assert out.get_usages() == {"rowwise": True, "columnwise": True}
    assert torch.equal(out._columnwise_data, te.MXFP8Quantizer(E4M3)(new)._columnwise_data)


def saved_by(weight):
    x = torch.ones(4, 64, requires_grad=True)
    return torch.nn.functional.linear(x, weight).sum()


def test_a_graph_notices_other_codes():
    """It saved the tensor and would go back through the new values."""
    quantizer = te.MXFP8Quantizer(E4M3)
    out = quantizer(torch.randn(32, 64))
    loss = saved_by(out)
    quantizer.quantize(torch.randn(32, 64), out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    for change in (
        lambda made: made.requantize_weight(Float8BlockScaling()),
        lambda made: made.load_state_dict(layer().state_dict()),
    ):
        made = layer()
        loss = saved_by(made.weight)
        change(made)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
