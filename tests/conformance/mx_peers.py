"""Other implementations of MX through octavo.conform, and the table of what deviates.

    python tests/conformance/mx_peers.py     # needs octavo, and of torchao and gfloat what is there

torchao and gfloat are run. microxcaling and Transformer Engine are the formulas that their
descriptions publish, written here: they need CUDA extensions, or a GPU.
docs/numerics/mx-conformance.md has the table.
"""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import warnings

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import octavo as ov

FORMATS = ("e4m3fn", "e5m2", "e3m2fn", "e2m3fn", "e2m1fn", "mxint8")


def has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def gfloat_peer() -> dict:
    """compute_scale_amax and encode_block, a block at a time, in float64."""
    from gfloat import block, formats

    infos = {
        "e4m3fn": formats.format_info_mxfp8_e4m3,
        "e5m2": formats.format_info_mxfp8_e5m2,
        "e2m3fn": formats.format_info_mxfp6_e2m3,
        "e3m2fn": formats.format_info_mxfp6_e3m2,
        "e2m1fn": formats.format_info_mxfp4_e2m1,
        "mxint8": formats.format_info_mxint8,
    }

    def one_block(info, values):
        scale = block.compute_scale_amax(info.etype.emax, values)
        return list(block.encode_block(info, scale, values / scale))

    def convert(values, name):
        try:
            rows = [one_block(infos[name], row) for row in values.astype(np.float64)]
        except (ValueError, OverflowError) as error:
            raise NotImplementedError(f"it raises {type(error).__name__}: {error}") from None
        made = np.array(rows, np.uint8)
        return made[:, 0].copy(), made[:, 1:].copy()

    def dequantize(scales, codes, name):
        rows = [
            list(block.decode_block(infos[name], [int(scale), *map(int, row)]))
            for scale, row in zip(scales, codes, strict=True)
        ]
        return np.array(rows, np.float64).astype(np.float32)

    return {"convert": convert, "dequantize": dequantize}


def torchao_peer(rule: str) -> dict:
    """to_mx and to_dtype; products as MXTensor's emulation has them, of dequantized float32."""
    import torch
    from torchao.prototype.mx_formats import mx_tensor

    kinds = {
        "e4m3fn": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2,
        "e2m3fn": mx_tensor.DTYPE_FP6_E2M3,
        "e3m2fn": mx_tensor.DTYPE_FP6_E3M2,
        "e2m1fn": torch.float4_e2m1fn_x2,
    }

    def kind_of(name):
        if name not in kinds:
            raise NotImplementedError("it has no MXINT8")
        return kinds[name]

    def convert(values, name):
        mode = mx_tensor.ScaleCalculationMode(rule)
        scale, data = mx_tensor.to_mx(torch.from_numpy(values.copy()), kind_of(name), 32, mode)
        codes = data.contiguous().view(torch.uint8).numpy()
        if name == "e2m1fn":
            codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(values), 32)
        return scale.view(torch.uint8).numpy().reshape(-1), codes

    def dequantize(scales, codes, name):
        kind = kind_of(name)
        data = torch.from_numpy(codes.copy())
        if name == "e2m1fn":
            data = torch.from_numpy((codes[:, 0::2] | codes[:, 1::2] << 4).copy())
        elif name in ("e4m3fn", "e5m2"):
            data = data.view(kind)
        scale = torch.from_numpy(scales.copy()).reshape(-1, 1).view(torch.float8_e8m0fnu)
        return mx_tensor.to_dtype(data, scale, kind, 32, torch.float32).numpy()

    def dot(scales_a, codes_a, format_a, scales_b, codes_b, format_b):
        a = dequantize(scales_a, codes_a, format_a).reshape(1, -1)
        b = dequantize(scales_b, codes_b, format_b).reshape(-1, 1)
        return (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()

    return {"convert": convert, "dequantize": dequantize, "dot": dot}


def by_nearest(u, name, ties):
    """Codes of numbers that are scaled already: to nearest, clamped. ties: "even" or "away"."""
    values = ov.format(name).values()
    codes = np.flatnonzero(np.isfinite(values) & ~np.signbit(values))
    codes = codes[np.argsort(values[codes], kind="stable")]
    ladder = values[codes]
    size = np.minimum(np.abs(u), ladder[-1])
    above = np.clip(np.searchsorted(ladder, size), 1, len(ladder) - 1)
    up, down = ladder[above] - size, size - ladder[above - 1]
    higher = codes[above] % 2 == 0 if ties == "even" else np.ones(u.shape, bool)
    code = np.where((up < down) | ((up == down) & higher), codes[above], codes[above - 1])
    if name == "mxint8":
        return np.where(np.signbit(u), -code, code).astype(np.int8).view(np.uint8)
    sign = 1 << (ov.format(name).bits - 1)
    return (code + np.where(np.signbit(u), sign, 0)).astype(np.uint8)


EMAX = {"e4m3fn": 8, "e5m2": 15, "e3m2fn": 4, "e2m3fn": 2, "e2m1fn": 2, "mxint8": 0}


def microxcaling_peer(ties: str) -> dict:
    """quantize_mx: the exponent of the largest value less emax, kept to -127; beyond 127 (and for
    Inf and NaN) the scale is NaN; a block of zeros has the exponent of the smallest normal f32.
    Elements: to nearest, ties away from zero ("nearest", its default) or to even ("even")."""

    def convert(values, name):
        amax = np.abs(values).max(1).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            exponent = np.floor(np.log2(np.where(amax == 0, 2.0**-126, amax))) - EMAX[name]
        invalid = ~(exponent <= 127)
        exponent = np.where(invalid, 0, np.maximum(exponent, -127))
        u = np.nan_to_num(values.astype(np.float64)) * 2.0 ** -exponent[:, None]
        scales = np.where(invalid, 255, exponent + 127).astype(np.uint8)
        return scales, by_nearest(u, name, ties)

    return {"convert": convert}


def transformer_engine_peer() -> dict:
    """MXFP8: the exponent of amax / largest, rounded up; NaNs drop out of amax, the codes keep
    them. Elements: times the reciprocal of the scale, to nearest even, clamped."""
    from quantize_peers.formulas import te_mxfp8

    def convert(values, name):
        if name not in ("e4m3fn", "e5m2"):
            raise NotImplementedError("it has MXFP8 alone")
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            scales, _, codes = te_mxfp8(values.copy(), name)
        return scales.reshape(-1), codes

    return {"convert": convert}


PEERS = {
    "gfloat 0.5.2": ("gfloat", gfloat_peer),
    "torchao 0.18.0, floor": ("torchao", lambda: torchao_peer("floor")),
    "torchao 0.18.0, rceil": ("torchao", lambda: torchao_peer("rceil")),
    "microxcaling's formulas, nearest": ("numpy", lambda: microxcaling_peer("away")),
    "microxcaling's formulas, even": ("numpy", lambda: microxcaling_peer("even")),
    "Transformer Engine's formulas": ("ml_dtypes", transformer_engine_peer),
}


def rows(name: str, found: ov.Conformance) -> list[str]:
    """A line of the table for each clause and check, formats with the same outcome together."""
    out: dict[tuple, list] = {}
    for one in found.findings:
        if one["verdict"] in ("deviates", "chooses"):
            key = one["clause"], one["check"], one["verdict"]
            out.setdefault(key, []).append(one)
    lines = []
    for (clause, check, verdict), those in sorted(out.items()):
        if verdict == "chooses":
            continue
        count = sum(one["deviations"] for one in those)
        cases = sum(one["cases"] for one in those)
        formats = ", ".join(one["format"] for one in those)
        lines.append(
            f"| {name} | {clause} | {check} | {formats} | {count} of {cases} | {those[0]['what']} |"
        )
    return lines or [f"| {name} | | none deviates | | | |"]


def main() -> int:
    print("| implementation | clause | check | formats | deviations | the first |")
    print("|---|---|---|---|---|---|")
    good = ov.conform()
    print("\n".join(rows("octavo", good)))
    for name, (package, make) in PEERS.items():
        if not has(package):
            print(f"| {name} | | {package} is not installed | | | |")
            continue
        found = ov.conform(**make())
        print("\n".join(rows(name, found)))
        if "-v" in sys.argv:
            print(found)
    return 0 if good.conforms else 1


if __name__ == "__main__":
    sys.exit(main())
