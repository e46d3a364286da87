"""How far off is a value after encode and decode? See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

import numpy as np

import octavo as ov

FORMATS = ("e4m3fn", "e5m2")
SCALED = ("fp8", "mxfp8")  # one scale for the tensor, and one for 32 values
ELEMENTS = 1 << 20
OCTAVES, STEPS_PER_OCTAVE = 6, 4


def relative_rms(x: np.ndarray, format: ov.Format) -> float:
    y = ov.decode(ov.encode(x, format), "float64", format)
    return float(np.sqrt(np.sum((y - x) ** 2) / np.sum(x**2)))


def scales(x: np.ndarray, format: ov.Format) -> list[float]:
    """From where nothing saturates down, through the upper part of the format's range."""
    largest = format.max / np.max(np.abs(x))
    steps = range(OCTAVES * STEPS_PER_OCTAVE + 1)
    return [float(largest * 2.0 ** (-step / STEPS_PER_OCTAVE)) for step in steps]


def distributions() -> dict[str, np.ndarray]:
    """Where one scale for the tensor is enough, and where it is not."""
    random = np.random.default_rng(2)
    normal = random.standard_normal((1024, 1024))
    outlier = normal.copy()
    outlier[random.integers(0, 1024, 8), random.integers(0, 1024, 8)] *= 1e5
    return {
        "normal": normal,
        "rows from 2^-24 to 1": normal * np.exp2(np.linspace(-24, 0, 1024))[:, None],
        "eight outliers of 1e5": outlier,
        "log-normal, sigma 4": np.exp(4 * normal) * np.sign(random.standard_normal(normal.shape)),
    }


def scaled_errors(x: np.ndarray) -> dict[str, dict[str, float]]:
    """Of the whole tensor, and of its median row: large values hide what happened to small ones."""
    errors = {}
    for preset in SCALED:
        found = ov.error(x.astype(np.float32), ov.quantize(x.astype(np.float32), preset), rows=True)
        errors[preset] = {
            "tensor": found["relative_l2"],
            "median_row": float(np.median(found["rows"]["relative_l2"])),
            "flushed": found["flushed_share"],
        }
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    args = parser.parse_args()
    normal = np.random.default_rng(1).standard_normal(ELEMENTS)
    results = {"question": "error", "octavo": ov.__version__, "formats": {}}
    print("relative rms error of normal values, over standard deviations")
    for name in FORMATS:
        format = ov.format(name)
        errors = {scale: relative_rms(normal * scale, format) for scale in scales(normal, format)}
        least, most = min(errors.values()), max(errors.values())
        results["formats"][name] = {
            "mantissa_bits": format.mantissa_bits,
            "least": least,
            "most": most,
            "by_scale": errors,
        }
        print(
            f"{name:<8}{format.mantissa_bits} mantissa bits "
            f"{100 * least:6.2f} to {100 * most:.2f} %"
        )
    results["scaled"] = {}
    print("\nrelative error of the median row (values flushed to zero)")
    for name, x in distributions().items():
        errors = results["scaled"][name] = scaled_errors(x)
        cells = "".join(
            f"  {preset} {100 * e['median_row']:7.2f} % ({100 * e['flushed']:.2f} %)"
            for preset, e in errors.items()
        )
        print(f"{name:<24}{cells}")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
