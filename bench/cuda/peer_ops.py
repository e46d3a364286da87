"""torch's version of what bench_cuda times: its casts, and quantizers as written in torch.

Each entry has the name of the bench_cuda case it is compared with. No peer offers the other
formats, roundings and policies on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

VALUES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CODES = {
    "e4m3fn": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
    "e8m0fnu": torch.float8_e8m0fnu,
}
FP8_MAX = 448.0


@dataclass
class Peer:
    case: str  # of bench_cuda
    how: str
    bytes: int  # counted as bench_cuda counts them
    run: Callable[[], object]


def casts(values: dict[str, torch.Tensor]) -> Iterator[Peer]:
    """Into existing memory, like octavo's."""
    for name, dtype in CODES.items():
        for source in VALUES if name in ("e4m3fn", "e5m2") else ("bfloat16",):
            x = values[source]
            codes = torch.empty(x.shape, dtype=dtype, device=x.device)
            size = x.numel() * (x.element_size() + 1)
            yield Peer(f"{source} -> {name}", "torch", size, lambda c=codes, x=x: c.copy_(x))
            back = torch.empty_like(x)
            yield Peer(f"{name} -> {source}", "torch", size, lambda c=codes, b=back: b.copy_(c))


def to_fp8(x: torch.Tensor) -> torch.Tensor:
    # torch's cast gives NaN beyond the range, so every quantizer of its kind clamps.
    return x.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def per_tensor(x):
    scale = x.abs().amax().float() / FP8_MAX
    return to_fp8(x.float() * scale.reciprocal()), scale


def delayed(x, inverse):
    return to_fp8(x.float() * inverse), x.abs().amax()


def per_row(x):
    scale = x.abs().amax(-1, keepdim=True).float() / FP8_MAX
    return to_fp8(x.float() / scale), scale


def blocks_of_128(x):
    tiles = x.view(x.shape[0], -1, 128)
    scale = tiles.abs().amax(-1, keepdim=True).float() / FP8_MAX
    return to_fp8(tiles.float() / scale).view_as(x), scale


def squares_of_128(x):
    tiles = x.view(x.shape[0] // 128, 128, -1, 128)
    scale = tiles.abs().amax((1, 3), keepdim=True).float() / FP8_MAX
    return to_fp8(tiles.float() / scale).view_as(x), scale


def mx_rows(x):
    """e8m0 scales, amax / 448 rounded up to a power of two by its bits."""
    tiles = x.reshape(x.shape[0], -1, 32).float()
    quotient = tiles.abs().amax(-1) / FP8_MAX
    exponent = (quotient.view(torch.int32) + 0x7FFFFF) >> 23
    inverse = ((254 - exponent) << 23).view(torch.float32)
    codes = (tiles * inverse.unsqueeze(-1)).to(torch.float8_e4m3fn)
    return codes.view(x.shape), exponent.to(torch.uint8)


def mx_both(x):
    return *mx_rows(x), *mx_rows(x.t())


def nvfp4(x, tensor_scale):
    tiles = x.view(x.shape[0], -1, 16).float()
    scale = (tiles.abs().amax(-1) / 6.0 / tensor_scale).to(torch.float8_e4m3fn)
    u = tiles / (scale.float() * tensor_scale).unsqueeze(-1)
    a = u.abs()
    # Ties go to the even code.
    code = (a > 0.25).to(torch.uint8) + (a >= 0.75) + (a > 1.25) + (a >= 1.75)
    code = code + (a > 2.5) + (a >= 3.5) + (a > 5.0) + (u < 0).to(torch.uint8) * 8
    pairs = code.view(x.shape[0], -1, 2)
    return pairs[..., 0] | pairs[..., 1] << 4, scale


def quantizers(x: torch.Tensor) -> Iterator[Peer]:
    n, rows = x.numel(), x.shape[0]
    inverse = torch.tensor(FP8_MAX / 6.0, device=x.device)
    tensor_scale = torch.tensor(6.0 / (6.0 * FP8_MAX), device=x.device)
    listed = [
        ("fp8, current", 3 * n + 4, per_tensor, ()),
        ("fp8, delayed, amax out", 3 * n + 4, delayed, (inverse,)),
        ("fp8-channel", 3 * n + 4 * rows, per_row, ()),
        ("fp8-1x128", 3 * n + n // 32, blocks_of_128, ()),
        ("fp8-block", 3 * n + n // 4096, squares_of_128, ()),
        ("mxfp8, row", 3 * n + n // 32, mx_rows, ()),
        ("mxfp8, both", 4 * n + n // 16, mx_both, ()),
        ("nvfp4, tensor amax given", 2 * n + n // 2 + n // 16, nvfp4, (tensor_scale,)),
    ]
    for case, size, function, more in listed:
        compiled = torch.compile(function)
        yield Peer(case, "torch.compile", size, lambda f=compiled, m=more: f(x, *m))
    yield Peer("fp8, current", "torch eager", 3 * n + 4, lambda: per_tensor(x))
