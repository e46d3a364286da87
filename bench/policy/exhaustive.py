"""How near is the search of `mse` to all 126 codes, on the weights of real models?

    python -m bench.policy.exhaustive --model NAME=FOLDER ... [--json FILE] [--check]

Every matrix of a decoder's layers is quantized to NVFP4 by each policy; of some of its rows every
code of e4m3 is tried for every tile, under the tensor scale that `mse` has. Squared errors in f64.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from collections.abc import Iterator

import numpy as np
import torch
from safetensors import safe_open

import octavo as ov

AT_MOST = 1.01  # times the least error
TILE = 16
POLICIES = ("max", "4over6", "mse")
# Where the nearest value of E2M1 changes, and the values.
MIDDLES = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
GRID = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def scales_of_codes() -> torch.Tensor:
    """Of the codes of e4m3 from 1 to 126."""
    codes = torch.arange(1, 127, dtype=torch.uint8)
    return codes.view(torch.float8_e4m3fn).double()


def least_error(rows: torch.Tensor, tensor_scale: float) -> float:
    tiles = rows.abs().double().reshape(-1, TILE)
    least = torch.full((len(tiles),), math.inf, dtype=torch.float64)
    for scale in (scales_of_codes() * tensor_scale).tolist():
        nearest = GRID[torch.bucketize((tiles / scale).float(), MIDDLES)].double()
        least = torch.minimum(least, (tiles - nearest * scale).square().sum(dim=1))
    return float(least.sum())


def matrices(folder: pathlib.Path) -> Iterator[tuple[str, torch.Tensor]]:
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in list(file.keys()):
                if name.endswith("_proj.weight"):
                    weight = file.get_tensor(name)
                    if weight.ndim == 2 and weight.shape[1] % TILE == 0:
                        yield name, weight.float()


def measure(name: str, folder: pathlib.Path, rows: int) -> dict:
    """Errors of the same rows of all matrices, over the least that codes can have."""
    sums = dict.fromkeys((*POLICIES, "all"), 0.0)
    worst = ("", 0.0)
    count = 0
    for matrix, weight in matrices(folder):
        some = torch.linspace(0, len(weight) - 1, min(rows, len(weight))).long().unique()
        errors = {}
        for policy in POLICIES:
            q = ov.quantize(weight, ov.preset("nvfp4").replace(policy=policy))
            back = ov.dequantize(q)[some].double()
            errors[policy] = float((weight[some].double() - back).square().sum())
        # Of the last policy, which is the search.
        tensor_scale = float(np.asarray(q.tensor_scale).reshape(-1)[0])
        errors["all"] = least_error(weight[some], tensor_scale)
        for key, error in errors.items():
            sums[key] += error
        worst = max(worst, (matrix, errors["mse"] / errors["all"]), key=lambda one: one[1])
        count += 1
    if count == 0:
        raise SystemExit(f"'{folder}' has no matrices of a decoder's layers")
    ratios = {policy: sums[policy] / sums["all"] for policy in POLICIES}
    return {
        "model": name,
        "matrices": count,
        "rows": rows,
        "beside_all": ratios,
        "worst": worst[1],
        "worst_matrix": worst[0],
        "at_most": AT_MOST,
        "holds": ratios["mse"] <= AT_MOST,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--rows", type=int, default=32, help="of each matrix")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    parser.add_argument("--check", action="store_true", help="exit status 1 if the bar is missed")
    arguments = parser.parse_args()
    found = []
    for pair in arguments.model:
        name, _, folder = pair.partition("=")
        found.append(row := measure(name, pathlib.Path(folder), arguments.rows))
        ratios = ", ".join(f"{policy} {ratio:.4f}" for policy, ratio in row["beside_all"].items())
        print(
            f"{name}: {ratios} times the least error; worst matrix {row['worst']:.4f}", flush=True
        )
    if arguments.json:
        result = {"question": "exhaustive", "machine": ov.doctor(), "rows": found}
        arguments.json.write_text(json.dumps(result, indent=1, default=str) + "\n")
    return int(arguments.check and not all(row["holds"] for row in found))


if __name__ == "__main__":
    sys.exit(main())
