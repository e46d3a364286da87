"""Work on another stream than torch's current one: whose memory it writes."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
torch = pytest.importorskip("torch", reason="torch is not installed")
from cuda_testing import needs_cuda, same, values  # noqa: E402

import octavo as ov  # noqa: E402

pytestmark = needs_cuda

SIZE = 2048
LONG = 400_000_000  # cycles: a fifth of a second


def _negated(x):
    """The same numbers; their sign is a flag (neg bit), not in memory."""
    return (-x)._neg_view()


# What is made, by where its memory comes from. `x` is of bfloat16.
CALLS = {
    "encode": lambda x, **on: ov.encode(x, "e4m3fn", **on),
    "encode, transposed": lambda x, **on: ov.encode(x.t(), "e4m3fn", **on),
    "decode": lambda x, **on: ov.decode(x, "float32", **on),
    "quantize": lambda x, **on: ov.quantize(x, "mxfp8", **on).codes,
    "fp8_quantize": lambda x, **on: ov.fp8_quantize(x, **on)[0],
    "requantize": lambda x, **on: ov.requantize(x, "fp8-block", **on).codes,
    "dequantize": lambda x, **on: ov.dequantize(x, "bfloat16", **on),
    "align_exponents": lambda x, **on: ov.align_exponents(x, count=False, **on).tensor.codes,
    "quantize_aligned": lambda x, **on: ov.quantize_aligned(x, count=False, **on).tensor.codes,
    "rms_norm": lambda x, **on: ov.rms_norm(x, **on),
    "silu, quantized": lambda x, **on: ov.silu(x, quantize="fp8-1x128", **on).codes,
    "gemm": lambda x, **on: ov.gemm(x, x, out="bfloat16", accumulator="float32", **on),
}


def _input(name):
    x = values(SIZE, SIZE, dtype=torch.bfloat16).cuda()
    if name == "decode":
        return ov.encode(x, "e4m3fn")
    return ov.quantize(x, "mxfp8") if name in ("requantize", "dequantize", "align_exponents") else x


@pytest.mark.parametrize("name", CALLS)
def test_a_result_is_not_in_memory_that_the_current_stream_still_writes(name):
    call, x, other = CALLS[name], _input(name), torch.cuda.Stream()
    wanted = call(x).cpu()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # or some other block would fit as well
    call(x, stream=other)  # kernels are loaded, which waits, and blocks are there
    torch.cuda.synchronize()
    old = torch.zeros(wanted.nbytes, dtype=torch.uint8, device="cuda")
    begin, end = old.data_ptr(), old.data_ptr() + old.nbytes
    torch.cuda._sleep(LONG)
    old.fill_(0x55)
    del old  # torch gives this block to the next allocation on the current stream
    got = call(x, stream=other)
    assert not torch.cuda.current_stream().query(), "the current stream was waited for"
    assert not begin <= got.data_ptr() < end
    other.synchronize()
    torch.cuda.synchronize()  # what was pending has been written now
    assert same(got, wanted)


def test_a_block_goes_back_to_the_stream_it_is_of():
    x, other = values(SIZE, SIZE).cuda(), torch.cuda.Stream()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    codes = ov.encode(x, "e4m3fn", stream=other)
    address = codes.data_ptr()
    del codes
    here = torch.empty(SIZE, SIZE, dtype=torch.uint8, device="cuda")
    assert here.data_ptr() != address
    again = ov.encode(x, "e4m3fn", stream=other.cuda_stream)
    assert again.data_ptr() == address  # in the order of that stream
    torch.cuda.synchronize()
    assert same(again, ov.encode(x.cpu(), "e4m3fn"))


def test_memory_that_was_recorded_waits_for_its_reader():
    """As the guide says for a result that another stream reads (record_stream)."""
    x, other = values(SIZE, SIZE).cuda(), torch.cuda.Stream()
    torch.cuda.synchronize()
    codes = ov.encode(x, "e4m3fn", stream=other)
    wanted, address = ov.encode(x.cpu(), "e4m3fn"), codes.data_ptr()
    torch.cuda.current_stream().wait_stream(other)
    torch.cuda._sleep(LONG)
    read = codes.clone()
    codes.record_stream(torch.cuda.current_stream())
    del codes
    again = ov.encode(x, "e4m3fn", stream=other)
    assert again.data_ptr() != address
    torch.cuda.synchronize()
    assert same(read, wanted) and same(again, wanted)


def test_a_sign_beside_the_memory_is_resolved_on_the_stream():
    x, other = values(SIZE, SIZE).cuda(), torch.cuda.Stream()
    negated = _negated(x)
    zeros = _negated(torch.zeros_like(x))
    torch.cuda.synchronize()
    ov.encode(zeros, "e4m3fn", stream=other)  # memory that is used again has other values
    ov.encode(zeros, "e4m3fn")
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG)
    got = ov.encode(negated, "e4m3fn", stream=other)
    other.synchronize()
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()
    assert same(got, ov.encode(x.cpu(), "e4m3fn"))


def test_the_default_stream_can_be_given():
    """0 is the address of a stream, and not of none."""
    x, other = values(SIZE, SIZE).cuda(), torch.cuda.Stream()
    wanted = ov.encode(x.cpu(), "e4m3fn")
    torch.cuda.synchronize()
    with torch.cuda.stream(other):
        for stream in (0, 1, torch.cuda.default_stream()):
            got = ov.encode(x, "e4m3fn", stream=stream)
            torch.cuda.default_stream().synchronize()
            assert same(got, wanted)
            assert torch.cuda.current_stream() == other
