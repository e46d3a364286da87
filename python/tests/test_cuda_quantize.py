"""Quantizers on torch CUDA tensors: the CPU's bytes, scales that stay on the device."""

from __future__ import annotations

import copy
import pathlib
import pickle
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
torch = pytest.importorskip("torch", reason="torch is not installed")
from cuda_testing import DTYPES, bits, needs_cuda, same, same_quantized, values  # noqa: E402

import octavo as ov  # noqa: E402
from octavo import quantizers  # noqa: E402

pytestmark = needs_cuda

SHAPES = [(64, 256), (33, 70), (130, 257), (4, 5, 96), (257,), (), (0, 8), (8, 0)]


@pytest.mark.parametrize("name", ov.preset_names())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_presets_are_the_cpus(name, dtype):
    for shape in SHAPES:
        x = values(*shape, dtype=dtype)
        wanted, met = ov.quantize(x, name, counts=True)
        got, counted = ov.quantize(x.cuda(), name, counts=True)
        assert got.device == "cuda:0" and got.codes.is_cuda and got.scales.is_cuda
        assert same_quantized(got, wanted) and counted == met, shape
        for target in ("float32", "bfloat16"):
            assert same(ov.dequantize(got, target), ov.dequantize(wanted, target)), shape


@pytest.mark.parametrize("name", ov.preset_names())
def test_both_copies(name):
    scaling = ov.preset(name).replace(columnwise=True)
    for shape in [(64, 256), (96, 160), (33, 70), (1, 300), (300, 1)]:
        x = values(*shape, dtype=torch.bfloat16)
        assert same_quantized(ov.quantize(x.cuda(), scaling), ov.quantize(x, scaling)), shape
        alone = scaling.replace(rowwise=False)
        assert same_quantized(ov.quantize(x.cuda(), alone), ov.quantize(x, alone)), shape


@pytest.mark.parametrize("name", ["mxfp8", "fp8-1x128", "fp8", "nvfp4"])
def test_options(name):
    x = values(48, 192)
    x[3, 5], x[7, 100] = float("nan"), float("inf")
    base = ov.preset(name)
    for changes in (
        {"rounding": "stochastic", "seed": 9},
        {"rounding": "toward_zero"},
        {"arith": "te", "nan": "max"},
        {"arith": "torchao", "nan": "max"},
        {"non_finite": "saturate", "nan": "zero"},
        {"policy": "mse"},
        {"policy": "percentile:99"},
        {"margin": 1} if name != "nvfp4" else {"min_amax": 0.5},
        {"scale_order": "col_major", "columnwise": True},
    ):
        scaling = base.replace(**changes)
        wanted = ov.quantize(x, scaling)
        try:
            got = ov.quantize(x.cuda(), scaling)
        except RuntimeError as error:  # the device names what it does not offer
            assert "offer" in str(error), changes
            continue
        assert same_quantized(got, wanted), changes


def test_scales_as_a_gemm_reads_them():
    scaling = ov.preset("fp8-1x128").replace(scale_order="col_major")
    q = ov.quantize(values(64, 512).cuda(), scaling)
    assert q.scales.shape == (64, 4) and q.scales.stride() == (1, 64)
    assert same(ov.dequantize(q), ov.dequantize(ov.quantize(values(64, 512), "fp8-1x128")))


def test_any_strides():
    x = values(6, 64, 40)
    for cut in (lambda t: t[::2, 1:, ::2], lambda t: t.transpose(0, 2), lambda t: t.flip(1)):
        for name in ("mxfp8", "fp8", "fp8-1x128", "nvfp4"):
            assert same_quantized(ov.quantize(cut(x.cuda()), name), ov.quantize(cut(x), name))


def test_fp8_quantize_keeps_the_order():
    x = values(32, 48)
    for turn in (lambda t: t, lambda t: t.t()):
        codes, scale = ov.fp8_quantize(turn(x.cuda()))
        wanted, wanted_scale = ov.fp8_quantize(turn(x))
        assert same(codes, wanted) and same(scale, wanted_scale)
        assert codes.stride() == wanted.stride()
    assert ov.amax(x.cuda()) == ov.amax(x)


def test_requantize_and_quantized():
    x = values(64, 256)
    q = ov.quantize(x, "mxfp8")
    there = ov.quantize(x.cuda(), "mxfp8")
    for name in ("fp8-block", "nvfp4", "fp8"):
        assert same_quantized(ov.requantize(there, name), ov.requantize(q, name))
    again = ov.quantized(there.codes, there.scales, "mxfp8")
    assert again.codes.data_ptr() == there.codes.data_ptr()
    assert same(ov.dequantize(again), ov.dequantize(q))
    blocks = ov.quantize(x.cuda(), "fp8-block")
    blocks.scales[0, 1] = -1.0
    with pytest.raises(ValueError, match=r"tile \(0, 1\)"):
        ov.quantized(blocks.codes, blocks.scales, "fp8-block")


def test_out_and_wrong_devices():
    x = values(64, 256)
    q = ov.quantize(x.cuda(), "mxfp8")
    address = q.codes.data_ptr()
    new = values(64, 256, seed=3)
    assert ov.quantize(new.cuda(), "mxfp8", out=q) is q and q.codes.data_ptr() == address
    assert same_quantized(q, ov.quantize(new, "mxfp8"))
    with pytest.raises(ValueError, match="cpu.*cuda:0"):
        ov.quantize(x, "mxfp8", out=q)
    with pytest.raises(ValueError, match="cpu.*cuda:0"):
        ov.dequantize(q, out=torch.empty(64, 256))


def test_memory_is_torchs():
    x = values(1024, 1024).cuda()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    q = ov.quantize(x, "mxfp8")
    assert torch.cuda.memory_allocated() - before >= 1024 * 1024
    codes = q.codes
    del q
    assert codes.float().isfinite().all()  # it keeps the memory
    del codes
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_error_files_and_pickles_go_through_the_host(tmp_path):
    x = values(64, 256)
    q = ov.quantize(x.cuda(), "nvfp4")
    wanted = ov.quantize(x, "nvfp4")
    assert ov.error(x.cuda(), q) == ov.error(x, wanted)
    ov.save(tmp_path / "q.safetensors", {"w": q})
    assert same_quantized(ov.load(tmp_path / "q.safetensors", "torch")["w"], wanted)
    for other in (pickle.loads(pickle.dumps(q)), copy.deepcopy(q)):
        assert other.device == "cpu" and same_quantized(other, wanted)


@pytest.mark.parametrize("name", ov.preset_names())
def test_captured_into_a_graph(name):
    scaling = ov.preset(name)
    x = values(64, 256).cuda()
    q = ov.quantize(x, scaling)
    back = torch.empty(64, 256, device="cuda")
    ov.dequantize(q, out=back)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ov.quantize(x, scaling, out=q)
        ov.dequantize(q, out=back)
        fresh = ov.quantize(x, scaling)  # in the graph's own pool
    for seed in (1, 2):
        new = values(64, 256, seed=seed)
        x.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        wanted = ov.quantize(new, scaling)
        assert same_quantized(q, wanted) and same_quantized(fresh, wanted)
        assert same(back, ov.dequantize(wanted))


def test_what_waits_cannot_be_captured():
    x = values(64, 256).cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="captured"):
            ov.amax(x)
        with pytest.raises(RuntimeError, match="captured"):
            ov.quantize(x, "mxfp8", counts=True)
    assert ov.amax(x) > 0  # and the device works on


@pytest.mark.parametrize("policy", ["max", "most_recent", "ema"])
def test_delayed_scaling_is_the_cpus(policy):
    state = {}
    for device in ("cpu", "cuda"):
        history = torch.empty(4, 2, device=device)
        inv_scale, scale = torch.empty(2, device=device), torch.empty(2, device=device)
        quantizers.reset_delayed(history, inv_scale, scale=scale)
        made = [quantizers.Float8Quantizer(inv_scale[i], history[0, i]) for i in range(2)]
        seen = []
        for step in range(6):
            for i, quantizer in enumerate(made):
                q = quantizer(values(32, 64, seed=step * 2 + i).to(device) * 2**step)
                seen += [bits(q.codes), bits(q.scales), bits(q.columnwise_codes)]
            quantizers.update_delayed(history, inv_scale, scale=scale, policy=policy)
        state[device] = [*seen, bits(history), bits(inv_scale), bits(scale)]
    assert all(map(torch.equal, state["cuda"], state["cpu"]))


def test_delayed_scaling_in_a_graph():
    history, inv_scale = torch.zeros(4, 1, device="cuda"), torch.ones(1, device="cuda")
    x = values(32, 64).cuda()
    quantizer = quantizers.Float8Quantizer(inv_scale[0], history[0, 0])
    q = quantizer(x)
    quantizers.reset_delayed(history, inv_scale)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        quantizer(x, out=q)
        quantizers.update_delayed(history, inv_scale)
    graph.replay()
    torch.cuda.synchronize()
    amax = x.abs().max().item()
    assert history[-1, 0].item() == amax and inv_scale[0].item() == pytest.approx(448 / amax)


@pytest.mark.parametrize(
    "make",
    [
        quantizers.Float8CurrentScalingQuantizer,
        quantizers.Float8BlockQuantizer,
        lambda: quantizers.Float8BlockQuantizer(block_dims=1),
        quantizers.MXFP8Quantizer,
        quantizers.NVFP4Quantizer,
        lambda: quantizers.NVFP4Quantizer(with_rht=True, stochastic_rounding=True, seed=5),
        lambda: quantizers.Float8CurrentScalingQuantizer(reduce_amax=lambda amax: 2 * amax),
    ],
)
def test_other_quantizers_are_the_cpus(make):
    for dtype in (torch.bfloat16, torch.float32):
        x = values(128, 256, dtype=dtype)
        assert same_quantized(make()(x.cuda()), make()(x))


@pytest.mark.parametrize("name", ["mxfp8", "mxfp8:e5m2"])
@pytest.mark.parametrize("to", ["rows", "blocks"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_aligned(name, to, dtype):
    for shape in [*SHAPES, (32, 4096), (3, 40000)]:
        x = values(*shape, dtype=dtype)
        q = ov.quantize(x, name)
        wanted = ov.align_exponents(q, to)
        got = ov.quantize_aligned(x.cuda(), name, to)
        assert got.tensor.codes.is_cuda
        assert same_quantized(got.tensor, wanted.tensor) and got.changed == wanted.changed, shape
        again = ov.align_exponents(ov.quantize(x.cuda(), name), to, out=got.tensor)
        assert same_quantized(again.tensor, wanted.tensor) and again.changed == wanted.changed


def test_aligned_in_a_graph():
    x = values(64, 2048, dtype=torch.bfloat16).cuda()
    out = ov.quantize_aligned(x, count=False).tensor
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ov.quantize_aligned(x, out=out, count=False)
    x.copy_(values(64, 2048, dtype=torch.bfloat16, seed=3))
    graph.replay()
    assert same_quantized(out, ov.quantize_aligned(x.cpu()).tensor)
