"""The device meta, and other devices that torch is told to make tensors on."""

from __future__ import annotations

import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import DelayedScaling, MXFP8BlockScaling  # noqa: E402


def on_meta(**how):
    with torch.device("meta"):
        return te.Linear(32, 16, **how)


def test_a_scope_of_torch_s_says_the_device():
    made = on_meta()
    assert made.weight.is_meta and made.bias.is_meta
    with torch.device("meta"), torch.device("cpu"):
        assert te.Linear(32, 16).weight.device.type == "cpu"
    with torch.device("meta"):
        assert te.Linear(32, 16, device="cpu").weight.device.type == "cpu"
    assert not te.Linear(32, 16, device="cpu").weight.is_meta


def test_the_default_device_of_torch_is_that_of_layers():
    torch.set_default_device("meta")
    try:
        made = te.Linear(32, 16)
    finally:
        torch.set_default_device(None)
    assert made.weight.is_meta


@pytest.mark.parametrize("recipe", [MXFP8BlockScaling(), DelayedScaling()])
def test_a_layer_gets_memory_later(recipe):
    made = on_meta().to_empty(device="cpu")
    torch.manual_seed(0)
    made.reset_parameters()
    torch.manual_seed(0)
    like = te.Linear(32, 16, device="cpu")
    assert torch.equal(made.weight, like.weight) and torch.equal(made.bias, like.bias)
    x = torch.randn(4, 32)
    results = []
    for layer in (made, like):
        with te.autocast(recipe=recipe):
            y = layer(x)
        y.sum().backward()
        results.append((y, layer.weight.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_layer_gets_weights_of_a_state_dict():
    like = te.Linear(32, 16, device="cpu")
    made = on_meta()
    made.load_state_dict(like.state_dict(), assign=True)
    x = torch.randn(4, 32)
    with te.autocast(recipe=MXFP8BlockScaling()):
        assert torch.equal(made(x), like(x))


def test_the_init_method_waits():
    seen = []

    def init(weight):
        seen.append(weight.device.type)
        torch.nn.init.ones_(weight)

    made = on_meta(init_method=init)
    assert seen == []
    with pytest.raises(RuntimeError, match=r"call to_empty\(device=...\) first"):
        made.reset_parameters()
    made.to_empty(device="cpu").reset_parameters()
    assert seen == ["cpu"] and bool((made.weight == 1).all())
    again = pickle.loads(pickle.dumps(te.Linear(32, 16, init_method=lambda w: None, device="cpu")))
    with pytest.raises(RuntimeError, match="have no init_method"):
        again.reset_parameters()


def test_parameters_are_reset_where_a_weight_is_codes():
    with te.quantized_model_init(recipe=DelayedScaling()):
        made = te.Linear(32, 16, device="cpu")
    torch.manual_seed(0)
    made.reset_parameters()
    torch.manual_seed(0)
    values = te.Linear(32, 16, device="cpu").weight
    # e4m3 has four significant bits: half a unit is 1/16 of a value, and 2^-10 of the scale is
    # half of the smallest step.
    scale = values.abs().max() / 448
    assert bool(
        ((made.weight.dequantize() - values).abs() <= values.abs() / 16 + scale / 512).all()
    )


def test_what_meta_cannot_do_is_said():
    with pytest.raises(RuntimeError, match="got the device meta inside quantized_model_init"):  # noqa: SIM117
        with te.quantized_model_init(recipe=MXFP8BlockScaling()):
            on_meta()
    made = on_meta()
    with pytest.raises(RuntimeError, match="by to_empty"):
        made(torch.randn(4, 32))


def test_calls_inside_of_a_scope_of_devices():
    """Gradients and scales are where the tensors are."""
    made = te.Linear(32, 32, device="cpu")
    attend = te.DotProductAttention(1, 32)
    x = torch.randn(4, 1, 1, 32, requires_grad=True)
    with torch.device("meta"):
        with te.autocast(recipe=DelayedScaling(amax_compute_algo=lambda amaxes: amaxes.max())):
            y = made(x)
        out = attend(y, y, y)
        te.scaled_dot_product_attention(out, out, out).sum().backward()
    assert x.grad.device.type == "cpu" and bool(x.grad.isfinite().all())
