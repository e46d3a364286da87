"""te.checkpoint under delayed scaling: a second forward has the scales of the first one."""

from __future__ import annotations

import contextlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import DelayedScaling  # noqa: E402

SIZE = 64
RECIPE = DelayedScaling(amax_history_len=4)
DPA = DelayedScaling(amax_history_len=4, fp8_dpa=True)
MHA = DelayedScaling(amax_history_len=4, fp8_mha=True)


class Model(torch.nn.Module):
    """A frozen layer, one that runs twice, and attention."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.frozen = te.Linear(SIZE, SIZE, device="cpu").requires_grad_(False)
        self.twice = te.Linear(SIZE, SIZE, device="cpu")
        self.attends = te.DotProductAttention(2, SIZE // 2, qkv_format="bshd")

    def forward(self, x):
        x = self.twice(torch.relu(self.twice(self.frozen(x))))
        heads = x.reshape(2, -1, 2, SIZE // 2)
        return self.attends(heads, heads, heads).reshape(-1, SIZE) + x


def plainly(model, x):
    return model(x)


def nested(model, x):
    return te.checkpoint(lambda x: te.checkpoint(model, x), x)


def train(run, recipe, steps=4, backwards=1):
    """Numbers grow from step to step, so that scales do."""
    model, found = Model(), []
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        x = torch.randn(32, SIZE, generator=generator) * 3.0**step
        x.requires_grad_()
        with te.autocast(recipe=recipe):
            y = run(model, x)
        loss = (y.float() ** 2).sum()
        for left in reversed(range(backwards)):  # after the scope, whose end has moved scales on
            loss.backward(retain_graph=left > 0)
        found += [y.detach().clone(), x.grad]
    found += [parameter.grad for parameter in model.twice.parameters()]
    return found + list(model.state_dict().values())


def check_equal(got, want):
    assert len(got) == len(want)
    for at, (a, b) in enumerate(zip(got, want, strict=True)):
        assert torch.equal(a, b), at


@pytest.mark.parametrize("recipe", [RECIPE, DPA, MHA], ids=["linear", "fp8_dpa", "fp8_mha"])
@pytest.mark.parametrize("run", [te.checkpoint, nested], ids=["once", "nested"])
def test_gradients_and_state_are_those_without_a_checkpoint(run, recipe):
    check_equal(train(run, recipe), train(plainly, recipe))


def test_every_backward_has_them():
    check_equal(train(te.checkpoint, RECIPE, backwards=2), train(plainly, RECIPE, backwards=2))


def test_the_function_may_open_the_scope():
    def own(model, x):
        with te.autocast(recipe=RECIPE):
            return model(x)

    def run(how):
        model, found = Model(), []
        for step in range(3):
            x = torch.full((32, SIZE), 3.0**step, requires_grad=True)
            how(own, model, x).sum().backward()
            found.append(x.grad)
        return found + list(model.state_dict().values())

    check_equal(run(te.checkpoint), run(lambda function, *given: function(*given)))


def test_steps_in_between_change_nothing():
    """Backward comes after other steps of the same layers."""

    def run(how):
        model = Model()
        x = torch.randn(32, SIZE, generator=torch.Generator().manual_seed(1), requires_grad=True)
        with te.autocast(recipe=RECIPE):
            y = how(model, x)
        with te.autocast(recipe=RECIPE):
            model(100 * x.detach())
        before = {key: value.clone() for key, value in model.state_dict().items()}
        y.sum().backward()
        after = model.state_dict()
        for key in before:  # forward's stays where it was
            if "scaling_fwd" in key:
                assert torch.equal(before[key], after[key]), key
        return [x.grad, *after.values()]

    check_equal(run(te.checkpoint), run(plainly))


def test_calibration_counts_once():
    def own(model, x):
        with te.autocast(enabled=False, calibrating=True, recipe=RECIPE):
            return model(x)

    def run(how):
        model, x = Model(), torch.ones(32, SIZE, requires_grad=True)
        how(own, model, x).sum().backward()
        return [value for key, value in model.state_dict().items() if "scaling_fwd" in key]

    check_equal(run(te.checkpoint), run(lambda function, *given: function(*given)))


def test_contexts_of_the_user_s():
    entered = []

    @contextlib.contextmanager
    def around(name):
        entered.append(name)
        yield
        entered.append(f"/{name}")

    model, x = Model(), torch.randn(32, SIZE, requires_grad=True)
    with te.autocast(recipe=RECIPE):
        y = te.checkpoint(model, x, context_fn=lambda: (around("first"), around("again")))
    assert entered == ["first", "/first"]
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        y.sum().backward()
    assert entered[2] == "again"
    for wrong in (3, "contexts"):
        with pytest.raises(TypeError, match=r"\[checkpoint\] got context_fn = "):
            te.checkpoint(model, x, context_fn=wrong)
    with pytest.raises(TypeError, match="what context_fn gave = None; expected two contexts"):
        te.checkpoint(model, x, context_fn=lambda: None)
