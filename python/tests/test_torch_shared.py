"""Layers that threads share, layers that are frozen, and outputs without a backward."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import DelayedScaling, NVFP4BlockScaling  # noqa: E402


def test_threads_share_a_layer():
    """In a process of its own: a deadlock or a crash is then a failure with a message."""
    program = """
    import threading, warnings
    import torch
    import octavo.torch as te
    from octavo.recipe import DelayedScaling, Float8CurrentScaling, MXFP8BlockScaling

    warnings.simplefilter("ignore")
    shared = te.Linear(64, 64, device="cpu")
    x, dy = torch.randn(64, 64), torch.randn(64, 64)
    wrong = []

    def work(recipe):
        own = te.Linear(64, 64, device="cpu")
        own.load_state_dict(shared.state_dict())
        def run(layer):
            at = x.clone().requires_grad_()
            with te.autocast(recipe=recipe):
                y = layer(at)
                dropped = layer(at)  # its backward never comes
            y.backward(dy)
            return y.detach(), at.grad
        expected = run(own)
        for _ in range(150):
            found = run(shared)
            if not isinstance(recipe, DelayedScaling):
                wrong.extend(None for a, b in zip(found, expected) if not torch.equal(a, b))
            shared.quantizers, shared.state_dict()

    # Functions of Python's run while the library holds a lock.
    delayed = DelayedScaling(amax_compute_algo=lambda history: float(max(history)))
    recipes = (Float8CurrentScaling(), MXFP8BlockScaling(), delayed, DelayedScaling())
    threads = [threading.Thread(target=work, args=(recipe,)) for recipe in recipes]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong, len(wrong)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_an_output_without_backward_does_not_freeze_gradient_scales():
    layer = te.Linear(32, 32, device="cpu")
    with te.autocast(recipe=DelayedScaling()):
        used, unused = layer(torch.randn(32, 32)), layer(torch.randn(32, 32))
    dy = torch.randn(32, 32)
    used.backward(dy)
    del unused
    gc.collect()
    expected = torch.tensor(57344.0) / dy.abs().max()
    assert layer.quantizers["scaling_bwd"][0].scale.item() == expected.item()


@pytest.mark.parametrize("grad", [True, False])
def test_a_frozen_layer_moves_its_scales_on_in_grad_mode(grad):
    layer = te.Linear(32, 32, device="cpu").requires_grad_(False)
    x = torch.randn(32, 32)
    with torch.set_grad_enabled(grad), te.autocast(recipe=DelayedScaling()):
        layer(x)
    expected = (torch.tensor(448.0) / x.abs().max()).item() if grad else 1.0
    assert layer.quantizers["scaling_fwd"][0].scale.item() == expected


def test_float64_under_nvfp4_is_refused_before_anything_changes():
    layer = te.Linear(32, 32, device="cpu")
    with te.autocast(recipe=DelayedScaling()):
        layer(torch.randn(32, 32))
    scale = layer.quantizers["scaling_fwd"][0].scale.item()
    with warnings.catch_warnings(), te.autocast(recipe=NVFP4BlockScaling()):
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match=r"\[Linear\] x is float64.*cast x to float32"):
            layer(torch.randn(32, 32, dtype=torch.float64))
    assert layer.quantizers["scaling_fwd"][0].scale.item() == scale
