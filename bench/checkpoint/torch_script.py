"""The baseline: a plain torch and safetensors script, one tensor at a time, file by file.

`python -m bench.checkpoint.torch_script SOURCE OUT RECIPE` quantizes every Linear's weight with
plain torch operations into the tensors of compressed-tensors, and prints seconds without the
imports.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

import torch
from safetensors import safe_open
from safetensors.torch import save_file

MAX8, MAX4 = 448.0, 6.0


def fp8_block(w: torch.Tensor) -> dict[str, torch.Tensor]:
    n, k = w.shape
    tiles = w.float().view(n // 128, 128, k // 128, 128)
    scale = tiles.abs().amax(dim=(1, 3), keepdim=True).clamp(min=1e-12) / MAX8
    codes = (tiles / scale).clamp(-MAX8, MAX8).to(torch.float8_e4m3fn).view(n, k)
    return {"weight": codes, "weight_scale": scale.view(n // 128, k // 128)}


def fp8_channel(w: torch.Tensor) -> dict[str, torch.Tensor]:
    values = w.float()
    scale = values.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / MAX8
    codes = (values / scale).clamp(-MAX8, MAX8).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale": scale}


def mxfp8(w: torch.Tensor) -> dict[str, torch.Tensor]:
    n, k = w.shape
    tiles = w.float().view(n, k // 32, 32)
    amax = tiles.abs().amax(dim=2, keepdim=True)
    exponent = torch.ceil(torch.log2(amax / MAX8)).clamp(-127, 127)
    codes = (tiles * torch.exp2(-exponent)).clamp(-MAX8, MAX8).to(torch.float8_e4m3fn)
    return {
        "weight": codes.view(n, k),
        "weight_scale": (exponent + 127).to(torch.uint8).view(n, k // 32),
    }


BOUNDS = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])


def nvfp4(w: torch.Tensor) -> dict[str, torch.Tensor]:
    n, k = w.shape
    values = w.float()
    whole = values.abs().max() / (MAX8 * MAX4)
    tiles = values.view(n, k // 16, 16)
    scale = (tiles.abs().amax(dim=2) / MAX4 / whole).clamp(max=MAX8).to(torch.float8_e4m3fn)
    u = tiles / (scale.float() * whole).unsqueeze(2)
    codes = torch.bucketize(u.abs(), BOUNDS).to(torch.uint8) | ((u < 0).to(torch.uint8) << 3)
    codes = codes.view(n, k)
    return {
        "weight_packed": codes[:, 0::2] | (codes[:, 1::2] << 4),
        "weight_scale": scale,
        "weight_global_scale": (1 / whole).view(1),
    }


RECIPES = {"fp8-block": fp8_block, "fp8-channel": fp8_channel, "mxfp8": mxfp8, "nvfp4": nvfp4}


def quantize(source: pathlib.Path, out: pathlib.Path, recipe: str) -> None:
    out.mkdir(parents=True)
    weight_map = {}
    for path in sorted(source.glob("*.safetensors")):
        tensors: dict[str, torch.Tensor] = {}
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            for name in names:
                tensor = file.get_tensor(name)
                if name.endswith("_proj.weight"):
                    module = name.removesuffix("weight")
                    parts = RECIPES[recipe](tensor)
                    tensors |= {module + part: value for part, value in parts.items()}
                else:
                    tensors[name] = tensor
        save_file(tensors, out / path.name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, path.name)
    index = {"metadata": {}, "weight_map": weight_map}
    (out / "model.safetensors.index.json").write_text(json.dumps(index))


def peak_mebibytes() -> float:
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    start = time.perf_counter()
    with torch.inference_mode():
        quantize(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak_mebibytes": peak_mebibytes()}))
