"""Casts of torch CUDA tensors: the CPU's bytes, torch's memory, torch's stream."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
torch = pytest.importorskip("torch", reason="torch is not installed")
from cuda_testing import DTYPES, FORMATS, needs_cuda, same, values  # noqa: E402

import octavo as ov  # noqa: E402

pytestmark = needs_cuda


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_encode_and_decode_are_the_cpus(format, dtype):
    x = values(37, 130, dtype=dtype)
    for rounding in ("nearest_even", "toward_zero", "up", "stochastic"):
        wanted, met = ov.encode(x, format, rounding=rounding, counts=True)
        got, counted = ov.encode(x.cuda(), format, rounding=rounding, counts=True)
        assert got.is_cuda and same(got, wanted) and counted == met, rounding
    for target in ("float32", "bfloat16", "float16", "float64"):
        kind = None if wanted.dtype not in (torch.uint8, torch.uint16) else format
        assert same(ov.decode(got, target, kind), ov.decode(wanted, target, kind))


@pytest.mark.parametrize("format", ["e2m1fn", "e2m3fn"])
def test_packed(format):
    x = values(5, 33)
    wanted = ov.encode(x, format, packed=True)
    got = ov.encode(x.cuda(), format, packed=True)
    assert same(got, wanted)
    arguments = {"format": format, "packed": True, "cols": 33} if got.dtype == torch.uint8 else {}
    assert same(ov.decode(got, **arguments), ov.decode(wanted, **arguments))


def test_specials():
    x = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e30, 1e-30, 448.0])
    for overflow in ("saturate", "propagate", "ieee", "saturate_finite"):
        assert same(
            ov.encode(x.cuda(), "e4m3fn", overflow=overflow),
            ov.encode(x, "e4m3fn", overflow=overflow),
        )
    with pytest.raises(ValueError, match="1 NaN"):
        ov.encode(x.cuda(), "e2m1fn")
    assert same(ov.encode(x.cuda(), "e2m1fn", nan="zero"), ov.encode(x, "e2m1fn", nan="zero"))


def test_any_strides():
    x = values(6, 5, 40)
    for cut in (
        lambda t: t[::2, 1:, ::3],
        lambda t: t.transpose(0, 2),
        lambda t: t.flip(1)[..., 3:],
        lambda t: t[:1].expand(4, 5, 40),
        lambda t: t[0, 0, 0],
        lambda t: t[:0],
    ):
        assert same(ov.encode(cut(x.cuda()), "e4m3fn"), ov.encode(cut(x), "e4m3fn"))


def test_out_is_written_and_has_to_be_there():
    x = values(8, 64)
    out = torch.empty(8, 64, dtype=torch.float8_e4m3fn, device="cuda")
    assert ov.encode(x.cuda(), "e4m3fn", out=out) is out
    assert same(out, ov.encode(x, "e4m3fn"))
    with pytest.raises(ValueError, match="cuda:0.*cpu|cpu.*cuda:0"):
        ov.encode(x, "e4m3fn", out=out)
    with pytest.raises(ValueError, match="cuda:0.*cpu|cpu.*cuda:0"):
        ov.encode(x.cuda(), "e4m3fn", out=out.cpu())


def test_misaligned_memory_is_refused():
    memory = torch.zeros(65, dtype=torch.uint8, device="cuda")
    from octavo import _octavo

    view = _octavo.View(memory.data_ptr() + 1, "float32", [16], [4], False, False, 0)
    codes = torch.empty(16, dtype=torch.uint8, device="cuda")
    target = _octavo.View(codes.data_ptr(), ov.Format("e4m3fn"), [16], [1], False, False, 0)
    with pytest.raises(ValueError, match="multiple"):
        _octavo.encode(view, target)
    # And the device works on.
    assert ov.encode(torch.ones(3, device="cuda"), "e4m3fn").float().sum().item() == 3


def test_a_host_pointer_is_refused():
    from octavo import _octavo

    x = values(16)
    lie = _octavo.View(x.data_ptr(), "float32", [16], [4], False, False, 0)
    codes = torch.empty(16, dtype=torch.uint8, device="cuda")
    target = _octavo.View(codes.data_ptr(), ov.Format("e4m3fn"), [16], [1], False, False, 0)
    with pytest.raises(ValueError, match="cuda:0"):
        _octavo.encode(lie, target)
    with pytest.raises(RuntimeError, match="device"):
        _octavo.Tensor.empty("float32", [1], cuda=99)


def test_runs_on_the_current_stream():
    x = values(2048, 2048)
    wanted = ov.encode(x, "e4m3fn")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        there = x.pin_memory().to("cuda", non_blocking=True)
        torch.cuda._sleep(10_000_000)
        there.mul_(1)  # the cast must come after this
        codes = ov.encode(there, "e4m3fn")
        back = codes.float()
    stream.synchronize()
    assert same(codes, wanted) and same(back, wanted.float())
    with torch.cuda.stream(stream):
        again = ov.encode(there, "e4m3fn", stream=torch.cuda.current_stream())
    stream.synchronize()
    assert same(again, wanted)


def test_captured_into_a_graph():
    x = values(64, 256).cuda()
    codes = torch.empty(64, 256, dtype=torch.float8_e4m3fn, device="cuda")
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        ov.encode(x, "e4m3fn", out=codes)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ov.encode(x, "e4m3fn", out=codes)
        fresh = ov.encode(x, "e5m2")  # in the graph's own pool
        back = ov.decode(fresh, "float32")
    for seed in (1, 2):
        new = values(64, 256, seed=seed)
        x.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        assert same(codes, ov.encode(new, "e4m3fn"))
        assert same(back, ov.decode(ov.encode(new, "e5m2"), "float32"))


def test_what_waits_cannot_be_captured():
    x = values(64).cuda()
    codes = torch.empty(64, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(RuntimeError, match="nan: zero or max"):
        ov.encode(x, "e2m1fn", out=codes)
    ov.encode(x, "e4m3fn")  # and the device works on


def test_dlpack_of_other_libraries():
    """A CUDA array that says of itself no more than DLPack does."""

    class Foreign:
        def __init__(self, x):
            self.x = x
            self.streams = []

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

        def __dlpack__(self, *, stream=None, **options):
            self.streams.append(stream)
            return self.x.__dlpack__(stream=stream)

    x = values(9, 32)
    foreign = Foreign(x.cuda())
    from octavo import _octavo
    from octavo._arrays import describe

    array = describe(foreign, "encode")
    assert array.cuda == 0 and foreign.streams == [1]
    own = _octavo.Tensor.empty("float32", [9, 32], cuda=0, stream=0)
    assert own.__dlpack_device__() == (2, 0)
    assert torch.from_dlpack(own).is_cuda


@pytest.mark.big
@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.mem_get_info()[1] < 40 << 30,
    reason="needs a CUDA device with 40 GB",
)
def test_more_than_two_to_the_31_elements():
    n = 2**31 + 4097
    x = torch.ones(n, dtype=torch.bfloat16, device="cuda")
    x[-1], x[2**31] = 448.0, -3.0
    codes = ov.encode(x, "e4m3fn")
    assert codes[-1].item() == 448.0 and codes[2**31].item() == -3.0 and codes[5].item() == 1.0
    back = ov.decode(codes, "bfloat16")
    assert torch.equal(back, x)
    del back, codes
    q = ov.quantize(x.view(1, -1)[:, : n - 1].reshape(-1, 4096), "mxfp8")
    assert q.codes.float().amax().item() > 0 and q.scales.shape[0] == (n - 1) // 4096
