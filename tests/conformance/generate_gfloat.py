#!/usr/bin/env python3
"""Writes gfloat.tsv: all bf16 inputs under the roundings that torch, ml_dtypes and CUDA lack.

gfloat is exact and knows every rounding mode; its stochastic mode "StochasticFastest" is P3109's
variant A. Needs gfloat, ml_dtypes and numpy:  python tests/conformance/generate_gfloat.py
"""

import collections
import pathlib

import ml_dtypes
import numpy as np
from gfloat import RoundMode, encode_ndarray, formats, round_ndarray

FORMATS = {
    "e4m3fn": formats.format_info_ocp_e4m3,
    "e5m2": formats.format_info_ocp_e5m2,
    "e3m2fn": formats.format_info_ocp_e3m2,
    "e2m3fn": formats.format_info_ocp_e2m3,
    "e2m1fn": formats.format_info_ocp_e2m1,
    "mxint8": formats.format_info_ocp_int8,
}
ROUNDINGS = {
    "toward_zero": RoundMode.TowardZero,
    "up": RoundMode.TowardPositive,
    "down": RoundMode.TowardNegative,
    "nearest_away": RoundMode.TiesToAway,
}
STOCHASTIC = [(3, 5), (16, 21845)]  # bits, draw


def runs(codes, skip):
    changes = (codes[1:] != codes[:-1]) | (skip[1:] != skip[:-1])
    starts = np.flatnonzero(np.concatenate([[True], changes]))
    ends = np.concatenate([starts[1:], [codes.size]]) - 1
    ranges = zip(starts.tolist(), ends.tolist(), strict=True)
    return [(first, last, int(codes[first])) for first, last in ranges if not skip[first]]


def main():
    values = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float64)
    nan = np.isnan(values)  # NaN codes are each library's own choice
    values[nan] = 0
    rows = collections.defaultdict(list)
    for name, info in FORMATS.items():
        overflows = ["saturate", "ieee"] if info.num_nans or info.num_infs else ["saturate"]
        choices = dict(ROUNDINGS)
        if name == "mxint8":
            choices["nearest_even"] = RoundMode.TiesToEven
        for overflow in overflows:
            for rounding, mode in choices.items():
                rounded = round_ndarray(info, values, mode, sat=overflow == "saturate")
                for row in runs(encode_ndarray(info, rounded), nan | np.isnan(rounded)):
                    rows[(name, *row)].append(f"{rounding}:{overflow}")
        for bits, draw in STOCHASTIC:
            draws = np.full(values.shape, draw, dtype=np.int64)
            random = {"srbits": draws, "srnumbits": bits}
            rounded = round_ndarray(info, values, RoundMode.StochasticFastest, sat=True, **random)
            for row in runs(encode_ndarray(info, rounded), nan):
                rows[(name, *row)].append(f"stochastic/{bits}/{draw}:saturate")
    path = pathlib.Path(__file__).resolve().parent / "gfloat.tsv"
    with open(path, "w", encoding="ascii") as out:
        out.write("# bf16 casts of gfloat 0.5.2; written by generate_gfloat.py.\n")
        out.write("# format\tpolicies\tsource\tfirst-last\tcode\n")
        for (name, first, last, code), policies in sorted(rows.items()):
            out.write(f"{name}\t{','.join(policies)}\tbf16\t{first:04x}-{last:04x}\t{code:02x}\n")
    print(path, len(rows), "rows")


if __name__ == "__main__":
    main()
