"""te.DotProductAttention: what it keeps from one step to the next, and where that goes."""

from __future__ import annotations

import copy
import io
import pathlib
import pickle
import sys
import threading
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # pytest's importlib mode does not
from attention_testing import FP8, in_scope, inputs, layer  # noqa: E402

import octavo.torch as te  # noqa: E402
from octavo.recipe import DelayedScaling, MXFP8BlockScaling  # noqa: E402

LARGEST = torch.tensor(448.0)  # torch divides numbers by tensors otherwise than tensors by tensors


def test_delayed_scaling_moves_on():
    module, tensors = layer(), inputs()
    recipe = DelayedScaling(fp8_mha=True, amax_history_len=4)
    out = in_scope(module, tensors, recipe)
    found = module.quantizers["scaling_fwd"]
    assert [type(one).__name__ for one in found] == ["Float8Quantizer"] * 5
    for quantizer, x in zip(found, tensors, strict=False):
        amax = x.detach().abs().max()
        assert quantizer.amax_history[-1] == amax and quantizer.scale == LARGEST / amax
    # The first row sees one key; exponentials of FP8's kernels are within 2^-9.
    assert found[3].amax_history[-1].item() == pytest.approx(1, rel=2**-9)
    # Of the output before it was rounded: within 2^-4 of what is there.
    assert found[4].amax_history[-1] == pytest.approx(out.detach().abs().max().item(), rel=2**-4)
    first = [one.scale.clone() for one in found]
    in_scope(module, [2 * x for x in tensors], recipe)
    assert found[0].scale == first[0] / 2 and module.quantizers["scaling_bwd"] == []


@pytest.mark.parametrize("how", ["eval", "no_grad"])
def test_inference_leaves_state_alone(how):
    module, tensors = layer(), inputs()
    in_scope(module, tensors, FP8["delayed"])
    before = {key: value.clone() for key, value in module.state_dict().items()}
    assert sorted(before) == ["scaling_fwd.amax_history", "scaling_fwd.scale"]
    if how == "eval":
        module.eval()
    with torch.set_grad_enabled(how != "no_grad"):
        in_scope(module, [3 * x for x in tensors], FP8["delayed"])
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_calibration():
    module, tensors = layer(), inputs()
    with te.autocast(enabled=False, calibrating=True, recipe=FP8["delayed"]):
        out = module(*tensors)
    assert torch.equal(out, layer()(*tensors))
    for quantizer, x in zip(module.quantizers["scaling_fwd"], tensors, strict=False):
        assert quantizer.scale == LARGEST / x.detach().abs().max()


@pytest.mark.parametrize("through", ["state_dict", "deepcopy", "pickle", "file"])
def test_state_comes_along(through):
    module, tensors = layer(), inputs()
    in_scope(module, tensors, FP8["delayed"])
    if through == "deepcopy":
        other = copy.deepcopy(module)
    elif through == "pickle":
        other = pickle.loads(pickle.dumps(module))
    else:
        other, state = layer(), module.state_dict()
        if through == "file":
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
        other.load_state_dict(state)
    want = in_scope(module, tensors, FP8["delayed"])
    assert torch.equal(in_scope(other, tensors, FP8["delayed"]), want)


def test_a_change_of_recipe_is_reported():
    module, tensors = layer(), inputs()
    in_scope(module, tensors, FP8["delayed"])
    text = (
        "Recipe type changed from DelayedScaling to MXFP8BlockScaling. "
        "Replacing quantizers for DotProductAttention."
    )
    with pytest.warns(UserWarning) as heard:
        in_scope(module, tensors, FP8["mxfp8"])
    assert [str(one.message) for one in heard] == [text]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_scope(module, tensors, FP8["mxfp8"])


def test_state_waits_for_a_recipe_that_asks():
    module, tensors = layer(), inputs()
    in_scope(module, tensors, FP8["delayed"])
    want = in_scope(copy.deepcopy(module), tensors, FP8["delayed"])
    other = layer()
    other.load_state_dict(module.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_scope(other, tensors, MXFP8BlockScaling())
        assert torch.equal(in_scope(other, tensors, FP8["delayed"]), want)


def test_threads_share_a_layer():
    """Each under its own recipe; calls are serialized, and results are those of an unshared
    layer."""
    module, tensors = layer(), [x.detach() for x in inputs()]
    want = {name: in_scope(layer(), tensors, FP8[name]) for name in ("current", "mxfp8")}
    found = {name: [] for name in want}

    def work(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(10):
                found[name].append(in_scope(module, tensors, FP8[name]))

    threads = [threading.Thread(target=work, args=(name,)) for name in want]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, results in found.items():
        assert len(results) == 10 and all(torch.equal(one, want[name]) for one in results)


def test_state_of_another_kind_of_module():
    linear = te.Linear(32, 32, device="cpu")
    with te.autocast(recipe=DelayedScaling()):
        linear(torch.randn(32, 32))
    saved = linear.state_dict()
    attends = layer()
    for module, given in (
        (attends, saved),
        (torch.nn.Sequential(attends), {f"0.{key}": value for key, value in saved.items()}),
    ):
        with pytest.raises(RuntimeError, match="may be the state of another kind of module"):
            module.load_state_dict(given, strict=False)
    in_scope(attends, inputs(), FP8["delayed"])
    with pytest.raises(RuntimeError, match=r"scaling_fwd.scale of shape \(5,\); expected 3 slots"):
        linear.load_state_dict(saved | attends.state_dict())
