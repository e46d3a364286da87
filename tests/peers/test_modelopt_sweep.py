"""Policy modelopt_sweep is ModelOpt's sweep of NVFP4 scales, byte for byte.

The package's own calibrator and export are on one side, octavo.quantize on the other. ModelOpt's
fused kernels need a GPU, so the rounding of a block under a candidate is written here, in float32
as its kernel has it; candidates, choice, and all from the chosen amaxes to the file's bytes are the
package's.
"""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch

import octavo as ov

mse = pytest.importorskip("modelopt.torch.quantization.calib.mse", reason="needs nvidia-modelopt")
nvfp4 = pytest.importorskip("modelopt.torch.quantization.qtensor.nvfp4_tensor")

GRID = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def rounded(u: torch.Tensor) -> torch.Tensor:
    """The E2M1 value nearest to a magnitude, ties to even."""
    out = torch.zeros_like(u)
    for below, above, middle, up in (
        (0.0, 0.5, 0.25, False),
        (0.5, 1.0, 0.75, True),
        (1.0, 1.5, 1.25, False),
        (1.5, 2.0, 1.75, True),
        (2.0, 3.0, 2.5, False),
        (3.0, 4.0, 3.5, True),
        (4.0, 6.0, 5.0, False),
    ):
        takes_upper = (u > middle) | ((u == middle) & up)
        out = torch.where(u > below, torch.where(takes_upper, above, below), out)
    return out


def fake_quant(x: torch.Tensor, amax: torch.Tensor) -> torch.Tensor:
    scale = amax.reshape(-1, 1) / 6.0
    scale = torch.where(scale == 0, 1.0, scale)
    back = rounded(x.abs() / scale) * scale
    return torch.where(x < 0, -back, back)


def by_modelopt(weight: torch.Tensor) -> tuple[np.ndarray, np.ndarray, float]:
    """Packed codes, block scales as bytes, and the tensor's scale."""
    blocks = weight.float().reshape(-1, 16)
    global_amax = blocks.abs().max()
    calibrator = mse.NVFP4MSECalibrator(
        blocks.abs().amax(dim=1), global_amax, axis=0, quant_func=fake_quant
    )
    calibrator.collect(blocks)
    quantizer = types.SimpleNamespace(
        global_amax=global_amax,
        _amax=calibrator.compute_amax(),
        block_sizes={-1: 16},
        num_bits=(2, 1),
    )
    export = nvfp4.NVFP4QTensor
    scales, tensor_scale = export.get_weights_scaling_factor_from_quantizer(quantizer, weight)
    codes = export.quantize(weight.clone(), 16, scales, tensor_scale)[0]._quantized_data
    return codes.numpy(), scales.view(torch.uint8).numpy(), float(tensor_scale)


def inputs() -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    normal = torch.randn(64, 256)
    heavy = torch.distributions.StudentT(3.0).sample((64, 256))
    sparse = torch.where(torch.rand(64, 256) < 0.9, torch.zeros(()), normal)
    return {
        "normal": normal,
        "bf16": normal.bfloat16(),
        "heavy": heavy,
        "sparse": sparse,
        "binades": normal * 2.0 ** torch.randint(-12, 12, (64, 1)),
    }


@pytest.mark.parametrize("name", inputs())
def test_bytes(name: str) -> None:
    weight = inputs()[name]
    codes, scales, tensor_scale = by_modelopt(weight)
    scaling = ov.Scaling("e2m1fn", (1, 16), scale="e4m3+f32", policy="modelopt_sweep", nan="zero")
    q = ov.quantize(weight, scaling)
    assert float(np.asarray(q.tensor_scale).reshape(-1)[0]) == tensor_scale
    mine = np.asarray(q.scales).view(np.uint8).reshape(scales.shape)
    differ = mine != scales
    # torch adds sixteen losses in another order: a code may differ only where two losses agree to
    # within the roundings of such a sum, 16 * 2^-24 of it.
    blocks = weight.double().reshape(-1, 16)
    for at in np.flatnonzero(differ.reshape(-1)):
        losses = []
        for code in (mine.reshape(-1)[at], scales.reshape(-1)[at]):
            value = torch.tensor([code]).view(torch.float8_e4m3fn).double() * tensor_scale
            u = (blocks[at].abs() / value).float()
            losses.append(float(((blocks[at].abs() - rounded(u) * value) ** 2).sum()))
        assert abs(losses[0] - losses[1]) <= 2**-19 * max(losses)
    assert differ.mean() < 1e-3
    if not differ.any():
        packed = np.asarray(q.codes).view(np.uint8).reshape(codes.shape)
        np.testing.assert_array_equal(packed, codes)
