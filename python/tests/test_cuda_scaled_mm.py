"""scaled_mm and compat._scaled_mm on torch CUDA tensors: the bits of gemm, without
synchronization."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
torch = pytest.importorskip("torch", reason="torch is not installed")
from cuda_testing import needs_cuda, same  # noqa: E402

import octavo as ov  # noqa: E402
from octavo.compat import _scaled_mm  # noqa: E402

pytestmark = needs_cuda

E4M3, F32 = torch.float8_e4m3fn, torch.float32
M, N, K = 200, 264, 512
LONG = 400_000_000  # cycles: a fifth of a second


def quantized(a_name, b_name, device="cuda"):
    generator = torch.Generator().manual_seed(5)
    x, w = torch.randn(M, K, generator=generator), torch.randn(N, K, generator=generator)
    return ov.quantize(x.to(device), a_name), ov.quantize(w.to(device), b_name)


def swizzled(scales):
    return ov.to_layout(scales.cpu(), "swizzled_128x4").cuda()


# Presets of both operands, the recipes, and scales as the recipe wants them.
FP8 = {
    "TensorWise": ("fp8", "fp8", "TensorWise", "TensorWise"),
    "RowWise": ("fp8-channel", "fp8-channel", "RowWise", "RowWise"),
    "blocks": ("fp8-1x128", "fp8-block", "BlockWise1x128", "BlockWise128x128"),
}


def fp8_arguments(name):
    a_name, b_name, a_recipe, b_recipe = FP8[name]
    a, b = quantized(a_name, b_name)
    # (1, N), and K/128 before N/128.
    scale_b = b.scales.t() if name != "TensorWise" else b.scales
    return a, b, (a.codes, b.codes.t(), a.scales, a_recipe, scale_b, b_recipe)


@pytest.mark.parametrize("name", FP8)
def test_fp8_has_the_bits_of_the_model(name):
    _, _, arguments = fp8_arguments(name)
    got = ov.scaled_mm(*arguments, output_dtype=F32)
    here = quantized(*FP8[name][:2], device="cpu")
    assert got.is_cuda and same(got, ov.gemm(*here, accumulator="hopper_fp8"))
    for fast in (False, True):
        assert same(ov.scaled_mm(*arguments, output_dtype=F32, use_fast_accum=fast), got)


def byte_arguments(name, order):
    """Scales of one byte, as a grid or swizzled."""
    a, b = quantized(name, name)
    recipe = "BlockWise1x32" if name == "mxfp8" else "BlockWise1x16"
    scales, swizzle = [a.scales, b.scales], None
    if order == "swizzled":
        scales, swizzle = [swizzled(s) for s in scales], "SWIZZLE_32_4_4"
    return a, b, (a.codes, b.codes.t(), scales[0], recipe, scales[1], recipe, swizzle, swizzle)


@pytest.mark.parametrize("order", ["grid", "swizzled"])
def test_mx(order):
    a, b, arguments = byte_arguments("mxfp8", order)
    wanted = ov.gemm(a, b)
    assert same(ov.scaled_mm(*arguments, output_dtype=F32), wanted)
    if order == "swizzled":  # the default of the older arguments
        got = _scaled_mm(*arguments[:3], arguments[4], out_dtype=F32)
        assert same(got, wanted)


@pytest.mark.parametrize("order", ["grid", "swizzled"])
@pytest.mark.parametrize("levels", [1, 2])
def test_nvfp4(order, levels):
    a, b, arguments = byte_arguments("nvfp4", order)
    if levels == 2:
        both = ["BlockWise1x16", "TensorWise"]
        scale_a, scale_b = [arguments[2], a.tensor_scale], [arguments[4], b.tensor_scale]
        got = ov.scaled_mm(
            *arguments[:2], scale_a, both, scale_b, both, *arguments[6:], output_dtype=F32
        )
        assert same(got, ov.gemm(a, b))
        return
    one = torch.ones((), device="cuda")
    plain = [ov.quantized(q.codes, q.scales, "nvfp4", tensor_scale=one) for q in (a, b)]
    assert same(ov.scaled_mm(*arguments, output_dtype=F32), ov.gemm(*plain))


def calls():
    for name in FP8:
        yield name, fp8_arguments(name)[2]
    for name in ("mxfp8", "nvfp4"):
        for order in ("grid", "swizzled"):
            yield f"{name}, {order}", byte_arguments(name, order)[2]


def test_nothing_waits():
    for name, arguments in calls():
        for out in (F32, torch.bfloat16, E4M3):
            wanted = ov.scaled_mm(*arguments, output_dtype=out)  # kernels are loaded, which waits
            torch.cuda.synchronize()
            torch.cuda._sleep(LONG)
            got = ov.scaled_mm(*arguments, output_dtype=out)
            assert not torch.cuda.current_stream().query(), (name, out)
            torch.cuda.synchronize()
            assert same(got, wanted), (name, out)


def test_captured_into_a_graph():
    for name, arguments in calls():
        ov.scaled_mm(*arguments, output_dtype=F32)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = ov.scaled_mm(*arguments, output_dtype=F32)
        if name in FP8:
            arguments[2].mul_(2)  # scales are read when the graph runs
        graph.replay()
        torch.cuda.synchronize()
        assert same(got, ov.scaled_mm(*arguments, output_dtype=F32)), name


def test_a_scale_of_results():
    _, _, (a, b, scale_a, _, scale_b, _) = fp8_arguments("TensorWise")
    values = _scaled_mm(a, b, scale_a, scale_b, out_dtype=F32)
    for by in (torch.tensor(0.3, device="cuda"), torch.full((1, 1), 2.5, device="cuda")):
        got = _scaled_mm(a, b, scale_a, scale_b, scale_result=by, out_dtype=E4M3)
        divided = values.cpu() * (torch.ones(()) / by.cpu().reshape(()))
        assert got.is_cuda and same(got, ov.encode(divided, E4M3, profile="torch"))
    with pytest.raises(ValueError, match="scale_result is on cpu and mat_a on cuda:0"):
        _scaled_mm(a, b, scale_a, scale_b, scale_result=torch.tensor(2.0), out_dtype=E4M3)


def test_scales_are_not_validated():
    _, _, (a, b, scale_a, _, scale_b, _) = fp8_arguments("TensorWise")
    positive, negative = (
        ov.scaled_mm(a, b, scale, None, scale_b, output_dtype=F32) for scale in (scale_a, -scale_a)
    )
    assert same(positive, -negative)


def test_quantized_without_validation():
    q, _ = quantized("fp8-block", "fp8")
    wanted = ov.dequantize(q)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="captured"):
            ov.quantized(q.codes, q.scales, "fp8-block")
        made = ov.quantized(q.codes, q.scales, "fp8-block", check=False)
        back = ov.dequantize(made)
    graph.replay()
    torch.cuda.synchronize()
    assert same(back, wanted)


def test_errors_name_the_argument():
    _, _, (a, b, _, _, scale_b, _) = fp8_arguments("TensorWise")
    gaps = torch.ones(2 * M, 1, device="cuda")[::2]
    with pytest.raises(ValueError, match=r"scale_a\] got an array .* not contiguous"):
        ov.scaled_mm(a, b, gaps, None, scale_b)
    with pytest.raises(ValueError, match="codes is on cuda:0 and scales on cpu"):
        ov.scaled_mm(a, b, torch.ones(()), None, scale_b)
