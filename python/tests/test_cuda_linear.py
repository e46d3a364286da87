"""Products and octavo.torch's Linear on torch CUDA tensors: the reference's bits where the tensor
cores are modelled, and the CPU's numbers within what sums and formats can differ."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
torch = pytest.importorskip("torch", reason="torch is not installed")
from cuda_testing import needs_cuda, same  # noqa: E402

import octavo as ov  # noqa: E402
import octavo.torch as te  # noqa: E402

pytestmark = needs_cuda

RECIPES = ["DelayedScaling", "Float8CurrentScaling", "Float8BlockScaling", "MXFP8BlockScaling"]


@pytest.mark.parametrize(
    "pair", [("fp8", "fp8"), ("fp8-channel", "fp8"), ("fp8-1x128", "fp8-block")]
)
def test_products_are_those_of_the_model(pair):
    for m, n, k in [(40, 100, 300), (200, 264, 512)]:
        x, w = torch.randn(m, k), torch.randn(n, k)
        got = ov.gemm(ov.quantize(x.cuda(), pair[0]), ov.quantize(w.cuda(), pair[1]))
        here = [ov.quantize(x, pair[0]), ov.quantize(w, pair[1])]
        assert got.is_cuda and same(got, ov.gemm(*here, accumulator="hopper_fp8"))


def test_a_product_counts_what_alignment_changed():
    x = torch.rand(40, 256) + 1
    q = ov.quantize(x.cuda(), "mxfp8")
    assert ov.gemm(q, q, return_aligned=True)[1] == 0  # all exponents are the same
    x[:, 64:96] = torch.randn(40, 32) * 2.0**-7
    q = ov.quantize(x.cuda(), "mxfp8")
    got, aligned = ov.gemm(q, q, return_aligned=True)
    assert 0 < aligned < 2 * 40 * 32 and same(got, ov.gemm(q, q))


def test_what_alignment_changed_is_counted_once_in_row_blocks():
    x = torch.rand(3001, 256) + 1
    w = torch.rand(3504, 256) + 1
    w[:, 64:96] = torch.randn(3504, 32) * 2.0**-7
    a, b = ov.quantize(x.cuda(), "fp8-channel"), ov.quantize(w.cuda(), "mxfp8")
    whole = ov.gemm(a, b, return_aligned=True)[1]
    assert 0 < whole == ov.gemm(a, b, out="fp8-1x128", return_aligned=True)[1]


@pytest.mark.parametrize("rows", [64, 3001])  # at once, and in row blocks
def test_a_quantized_product_in_a_graph(rows):
    x, w = torch.randn(rows, 256).cuda(), torch.randn(3504, 256).cuda()
    a, b = ov.quantize(x, "fp8-1x128"), ov.quantize(w, "fp8-block")
    wanted = ov.gemm(a, b, out="mxfp8")
    target = torch.empty(rows, 3504, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = ov.gemm(a, b, out="mxfp8")  # in the graph's own pool
        with pytest.raises(RuntimeError, match="no count of aligned elements"):
            ov.gemm(a, b, out=target, return_aligned=True)
    graph.replay()
    torch.cuda.synchronize()
    assert same(made.codes.view(torch.uint8), wanted.codes.view(torch.uint8))
    assert same(made.scales.view(torch.uint8), wanted.scales.view(torch.uint8))


def test_what_the_device_does_not_offer_is_named():
    q = ov.quantize(torch.randn(64, 256).cuda(), "mxfp8")
    said = r"hopper_fp8 .* A mxfp8: .* use accumulator native, or .*x\.cpu"
    with pytest.raises(RuntimeError, match=said):
        ov.gemm(q, q, accumulator="hopper_fp8")


def relative(got, wanted):
    got, wanted = got.detach().double().cpu(), wanted.detach().double().cpu()
    return float((got - wanted).norm() / wanted.norm())


# Sums on the tensor cores keep 13 bits within 128 products: 1.3e-4 of normal sums, 5e-4 of sums of
# one sign (docs/numerics/gemm.md). The next quantization of such a number can take the neighbouring
# code now and then; nothing is quantized twice here.
LEAST = 1e-3


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_linear_on_the_device(name, dtype):
    torch.manual_seed(3)
    recipe = getattr(te.recipe, name)()
    here = te.Linear(256, 384, params_dtype=dtype, device="cpu")
    there = te.Linear(256, 384, params_dtype=dtype, device="cuda")
    with torch.no_grad():
        there.weight.copy_(here.weight)
        there.bias.copy_(here.bias)
    x, dy = torch.randn(192, 256, dtype=dtype), torch.randn(192, 384, dtype=dtype)
    results = []
    for layer, device in ((here, "cpu"), (there, "cuda")):
        input = x.detach().to(device, copy=True).requires_grad_()
        with te.autocast(enabled=True, recipe=recipe):
            y = layer(input)
        y.backward(dy.to(device))
        results.append((y, input.grad, layer.weight.grad, layer.bias.grad))
    rounding = LEAST if dtype == torch.float32 else 6e-3  # bf16 results, rounded differently
    for got, wanted in zip(results[1], results[0], strict=True):
        assert got.device.type == "cuda" and relative(got, wanted) < rounding


# The fallback of a product to the host is logged once per process: so the test runs in its own
# process, where a product that no device offers (sums that are never promoted) is the last.
ALONE = """
import logging, sys

import torch

import octavo.torch as te

logging.basicConfig(stream=sys.stdout)
device, recipes = sys.argv[1], te.recipe


def mxfp8(role):
    return te.MXFP8Quantizer(te.DType.kFloat8E4M3)


for recipe in (
    recipes.DelayedScaling(),
    recipes.Float8CurrentScaling(),
    recipes.Float8BlockScaling(),
    recipes.MXFP8BlockScaling(),
    recipes.NVFP4BlockScaling(),
    recipes.CustomRecipe(mxfp8),
    recipes.Float8CurrentScaling(accumulator="hopper_fp8"),
):
    for dtype in (torch.float32, torch.bfloat16):
        layer = te.Linear(256, 384, params_dtype=dtype, device=device)
        x = torch.randn(64, 256, dtype=dtype, device=device, requires_grad=True)
        print(type(recipe).__name__, recipe.accumulator, dtype, flush=True)
        with te.autocast(enabled=True, recipe=recipe):
            layer(x).sum().backward()
        assert x.grad.device.type == device
"""


def test_no_product_leaves_the_device():
    done = subprocess.run(
        [sys.executable, "-c", ALONE, "cuda"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    offered, _, refused = done.stdout.partition("Float8CurrentScaling hopper_fp8")
    assert "does not offer" not in offered and "does not offer" in refused, done.stdout
