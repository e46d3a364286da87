"""State of quantizers in torch: it lies in tensors, saves as tensors and comes back."""

from __future__ import annotations

import copy
import io

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import DelayedScaling, MXFP8BlockScaling  # noqa: E402

STATE = [f"scaling_{way}.{part}" for way in ("fwd", "bwd") for part in ("amax_history", "scale")]


def steps(linear, recipe, xs, **scope):
    for x in xs:
        with te.autocast(recipe=recipe, **scope):
            y = linear(x)
        y.square().sum().backward()
    return linear


def inputs(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [(i + 1) * torch.randn(32, 32, generator=generator) for i in range(count)]


def saved_and_loaded(state_dict):
    file = io.BytesIO()
    torch.save(state_dict, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_state_dict_has_tensors_only():
    linear = steps(te.Linear(32, 32, device="cpu"), DelayedScaling(amax_history_len=4), inputs(3))
    state = linear.state_dict()
    assert list(state) == ["weight", "bias", *STATE]
    assert all(type(tensor) is torch.Tensor for tensor in state.values())
    assert state["scaling_fwd.amax_history"].shape == (4, 3)
    # scale means the same everywhere: what values are multiplied by.
    for key in ("scaling_fwd", "scaling_bwd"):
        scales = torch.cat([quantizer.scale for quantizer in linear.quantizers[key]])
        assert torch.equal(state[f"{key}.scale"], scales)


@pytest.mark.parametrize("used_before", [False, True])
def test_training_goes_on_after_a_checkpoint(used_before):
    recipe = DelayedScaling(amax_history_len=4)
    xs = inputs(6)
    linear = steps(te.Linear(32, 32, device="cpu"), recipe, xs[:3])
    other = te.Linear(32, 32, device="cpu")
    if used_before:
        steps(other, recipe, inputs(2, seed=1))
        other.zero_grad()
    other.load_state_dict(saved_and_loaded(linear.state_dict()))
    linear.zero_grad()
    steps(linear, recipe, xs[3:])
    steps(other, recipe, xs[3:])
    assert torch.equal(linear.weight.grad, other.weight.grad)
    mine, theirs = linear.state_dict(), other.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_checkpoint_that_waits_is_not_lost():
    recipe = DelayedScaling(amax_history_len=4)
    linear = steps(te.Linear(32, 32, device="cpu"), recipe, inputs(3))
    other = te.Linear(32, 32, device="cpu")
    other.load_state_dict(linear.state_dict())
    again = other.state_dict()  # no forward in between
    assert all(torch.equal(again[name], value) for name, value in linear.state_dict().items())


def test_a_history_of_another_length():
    xs = inputs(4)
    linear = steps(te.Linear(32, 32, device="cpu"), DelayedScaling(amax_history_len=8), xs)
    other = te.Linear(32, 32, device="cpu")
    other.load_state_dict(linear.state_dict())
    with te.autocast(recipe=DelayedScaling(amax_history_len=3)):
        other(xs[0])
        history = other.quantizers["scaling_fwd"][0].amax_history
    newest = [x.abs().max().item() for x in (xs[3], xs[0])]
    assert history.tolist() == [0, *newest]


def test_a_checkpoint_without_state_loads_everywhere():
    linear, peer = te.Linear(32, 32, device="cpu"), torch.nn.Linear(32, 32)
    linear.load_state_dict(peer.state_dict())
    peer.load_state_dict(linear.state_dict())
    with pytest.raises(RuntimeError, match="Unexpected key"):
        linear.load_state_dict({**peer.state_dict(), "scaling_up.scale": torch.ones(1)})
    with pytest.raises(RuntimeError, match="Missing key"):
        linear.load_state_dict({"bias": peer.bias})


def test_state_that_does_not_fit():
    linear = steps(te.Linear(32, 32, device="cpu"), DelayedScaling(), inputs(1))
    state = linear.state_dict()
    for part, wrong, text in (
        ("scale", torch.ones(7), r"scaling_fwd.scale of shape \(7,\); expected 3 slots"),
        ("scale", torch.zeros(3), r"scale = \[0.0, 0.0, 0.0\]; expected positive"),
        ("scale", torch.full((3,), float("nan")), r"scale = \[nan, nan, nan\]; expected positive"),
        ("amax_history", torch.ones(3), r"amax_history of shape \(3,\); expected the amaxes"),
        ("amax_history", torch.ones(5, 2), r"amax_history of shape \(5, 2\); expected 3 slots"),
        ("amax_history", -torch.ones(5, 3), "amax_history with -1.0; expected magnitudes"),
    ):
        with pytest.raises(RuntimeError, match=text):
            linear.load_state_dict({**state, f"scaling_fwd.{part}": wrong})
        assert torch.equal(linear.state_dict()["scaling_fwd.scale"], state["scaling_fwd.scale"])


def test_nested_in_a_model():
    recipe = DelayedScaling(amax_history_len=4)

    def model():
        return torch.nn.Sequential(
            te.Linear(32, 32, device="cpu"), torch.nn.ReLU(), te.Linear(32, 32, device="cpu")
        )

    first, xs = model(), inputs(4)
    steps(first, recipe, xs[:2])
    state = first.state_dict()
    assert "0.scaling_fwd.scale" in state and "2.scaling_bwd.scale" in state
    second = model()
    second.load_state_dict(state)
    first.zero_grad()
    steps(first, recipe, xs[2:])
    steps(second, recipe, xs[2:])
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_a_deep_copy_goes_its_own_way():
    recipe = DelayedScaling(amax_history_len=4)
    xs = inputs(3)
    linear = steps(te.Linear(32, 32, device="cpu"), recipe, xs[:2])
    other = copy.deepcopy(linear)
    before = {name: tensor.clone() for name, tensor in linear.state_dict().items()}
    other.zero_grad()
    steps(other, recipe, xs[2:])
    assert all(torch.equal(before[name], value) for name, value in linear.state_dict().items())
    linear.zero_grad()
    steps(linear, recipe, xs[2:])
    assert torch.equal(linear.weight.grad, other.weight.grad)


def test_calibration_makes_scales_and_quantizes_nothing():
    linear = te.Linear(32, 32, device="cpu")
    x = inputs(1)[0]
    with te.autocast(enabled=False, calibrating=True, recipe=DelayedScaling()), torch.no_grad():
        y = linear(x)
    assert torch.equal(y, linear(x))
    largest = torch.tensor(448.0)
    assert linear.quantizers["scaling_fwd"][0].scale == largest / x.abs().max()
    assert linear.quantizers["scaling_fwd"][1].scale == largest / linear.weight.detach().abs().max()


def test_inference_moves_nothing_on():
    linear = steps(te.Linear(32, 32, device="cpu"), DelayedScaling(), inputs(1))
    scale = linear.quantizers["scaling_fwd"][0].scale.clone()
    with torch.no_grad(), te.autocast(recipe=DelayedScaling()):
        linear(100 * inputs(1)[0])
    assert linear.quantizers["scaling_fwd"][0].scale == scale


def test_amax_group():
    calls = []

    def reduce(amaxes):
        calls.append(amaxes.clone())
        amaxes.mul_(2)

    linear = te.Linear(32, 32, device="cpu")
    x = inputs(1)[0]
    steps(linear, DelayedScaling(), [x], amax_reduction_group=reduce)
    assert len(calls) == 2 and calls[0][0] == x.abs().max()  # one for each direction
    assert linear.quantizers["scaling_fwd"][0].scale == torch.tensor(224.0) / x.abs().max()
    steps(linear, DelayedScaling(), [x], amax_reduction_group=None)
    assert len(calls) == 2


def test_a_group_that_fails_leaves_no_scope_behind():
    linear = te.Linear(32, 32, device="cpu")
    scope = te.autocast(recipe=DelayedScaling(), amax_reduction_group=lambda amaxes: 1 / 0)
    for _ in range(2):  # it ended, and may be entered again
        with pytest.raises(ZeroDivisionError), scope:
            linear(inputs(1)[0])
    assert linear.quantizers["scaling_fwd"][0].scale == 1
    with pytest.warns(UserWarning, match="Recipe type changed"):
        steps(linear, MXFP8BlockScaling(), inputs(1))


def test_functions_of_the_user_s():
    seen = []

    def amax(window):
        seen.append(window.clone())  # a torch tensor
        return 2 * window.max(dim=0).values

    def scale(amax, old, largest, recipe):
        return torch.where(amax > 0, largest / amax / 2**recipe.margin, old)

    recipe = DelayedScaling(
        margin=1, amax_history_len=3, amax_compute_algo=amax, scaling_factor_compute_algo=scale
    )
    xs = inputs(2)
    linear = steps(te.Linear(32, 32, device="cpu"), recipe, xs)
    amaxes = [x.abs().max().item() for x in xs]
    # As Transformer Engine has them: this step's, then from the oldest on.
    assert any(window.tolist() == [amaxes[1], 0, amaxes[0]] for window in seen)
    assert all(window.dtype == torch.float32 for window in seen)
    got = linear.quantizers["scaling_fwd"][0].scale.item()
    assert got == pytest.approx(448 / (2 * max(amaxes)) / 2, rel=1e-6)


def test_state_stays_float32_when_a_module_is_converted():
    linear = steps(te.Linear(32, 32, device="cpu"), DelayedScaling(), inputs(1))
    before = linear.quantizers["scaling_fwd"][0].scale.clone()
    linear.to(torch.bfloat16)
    scale = linear.quantizers["scaling_fwd"][0].scale
    assert scale.dtype == torch.float32 and scale == before
    x = inputs(1)[0].to(torch.bfloat16)
    steps(linear, DelayedScaling(), [x])
    assert linear.weight.grad.dtype == torch.bfloat16


def test_a_seed_gives_the_same_draws():
    from octavo.recipe import NVFP4BlockScaling

    def gradient():
        torch.manual_seed(5)
        linear = te.Linear(32, 32, device="cpu")
        return steps(linear, NVFP4BlockScaling(), inputs(2)).weight.grad

    assert torch.equal(gradient(), gradient())


def test_a_second_backward_has_the_scales_of_the_first():
    """The first one ends the step, and there are new scales; the graph is still that of its own."""
    torch.manual_seed(0)
    linear, x = te.Linear(32, 32, device="cpu"), torch.randn(8, 32, requires_grad=True)
    dy = 0.01 * torch.randn(8, 32)
    with te.autocast(recipe=DelayedScaling()):
        y = linear(x)
    first = torch.autograd.grad(y, (x, linear.weight), dy, retain_graph=True)
    assert linear.quantizers["scaling_bwd"][0].scale != 1
    for _ in range(2):
        again = torch.autograd.grad(y, (x, linear.weight), dy, retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    # The next graph has the new scale.
    with te.autocast(recipe=DelayedScaling()):
        y = linear(x)
    other = torch.autograd.grad(y, (x, linear.weight), dy)
    assert not torch.equal(other[0], first[0])


def test_inference_after_another_recipe_leaves_state_alone():
    torch.manual_seed(0)
    linear, x = te.Linear(32, 32, device="cpu"), 1e-4 * torch.randn(8, 32)
    with te.autocast(recipe=MXFP8BlockScaling()):
        linear(x)
    linear.eval()
    with (
        pytest.warns(UserWarning, match="Recipe type changed"),
        te.autocast(recipe=DelayedScaling()),
    ):
        linear(100 * x)
        y = linear(x)
    state = linear.scaling_fwd
    assert (state.amax_history == 0).all() and (state.scale == 1).all()
    linear.train()
    with te.autocast(recipe=DelayedScaling()):
        assert torch.equal(linear(x), y)  # what a step begins with
    assert linear.quantizers["scaling_fwd"][0].scale == 448 / x.abs().max()


@pytest.mark.parametrize("wrong", [-1.0, float("nan")])
def test_a_group_that_gives_no_magnitudes(wrong):
    linear, x = te.Linear(32, 32, device="cpu"), torch.randn(8, 32)
    scope = te.autocast(
        recipe=DelayedScaling(), amax_reduction_group=lambda amaxes: amaxes.fill_(wrong)
    )
    with pytest.raises(ValueError, match=f"the amax group gave {wrong:g}"), scope:
        linear(x)
    assert (linear.scaling_fwd.scale == 1).all()


@pytest.mark.parametrize("name", ["amax_compute_algo", "scaling_factor_compute_algo"])
@pytest.mark.parametrize("result", [None, "much", torch.ones(3)])
def test_functions_that_give_no_number(name, result):
    linear, x = te.Linear(32, 32, device="cpu"), torch.randn(8, 32)
    scope = te.autocast(recipe=DelayedScaling(**{name: lambda *given: result}))
    with pytest.raises(TypeError, match=f"{name} returned .*; expected a number"), scope:
        linear(x)
    assert (linear.scaling_fwd.scale == 1).all()
