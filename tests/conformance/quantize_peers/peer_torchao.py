"""torchao: MX, float8 training and inference, NVFP4."""

import numpy as np

from quantize_peers.file import File
from quantize_peers.formulas import torchao_float8, torchao_mx, torchao_nvfp4
from quantize_peers.inputs import cases, nvfp4_cases, rows_apart
from quantize_peers.numbers import BF16, F, widen
from quantize_peers.torch_arrays import bytes_of, load_torch, to_torch, unpacked


def torchao_files():
    torch = load_torch()
    from torchao.float8.config import ScalingGranularity
    from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
    from torchao.float8.float8_training_tensor import LinearMMConfig
    from torchao.prototype.blockwise_fp8_training import kernels
    from torchao.prototype.mx_formats import mx_tensor, nvfp4_tensor
    from torchao.quantization import PerRow, PerTensor
    from torchao.quantization.granularity import PerBlock
    from torchao.quantization.quantize_.workflows.float8.float8_tensor import Float8Tensor

    float8 = {"e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}

    say = ["torchao 0.18.0 to_mx, eager; scales are to_mx's own bytes."]
    wide, narrow = File("quantize_torchao_mx", say), File("quantize_torchao_mxfp6", say)
    kinds = float8 | {
        "e2m3fn": mx_tensor.DTYPE_FP6_E2M3,
        "e3m2fn": mx_tensor.DTYPE_FP6_E3M2,
        "e2m1fn": torch.float4_e2m1fn_x2,
    }
    presets = {"e4m3fn": "mxfp8", "e5m2": "mxfp8", "e2m1fn": "mxfp4"}
    for name, kind in kinds.items():
        for rule in ("floor", "rceil", "ceil", "even"):

            def peer(x, name=name, kind=kind, rule=rule):
                mode = mx_tensor.ScaleCalculationMode(rule)
                scale, data = mx_tensor.to_mx(to_torch(x), kind, 32, mode)
                codes = unpacked(data) if name == "e2m1fn" else bytes_of(data)
                return bytes_of(scale), None, codes

            def formula(x, name=name, rule=rule):
                return torchao_mx(x, name, rule)

            found = cases(name, 32, F, 1)
            found += [(c, x) for c, x in cases(name, 32, BF16, 2, "few")]
            for case, x in found:
                preset = presets.get(name, "mxfp6")
                out = narrow if preset == "mxfp6" else wide
                out.add(case, preset, name, (1, 32), "e8m0", rule, x, formula, peer)
    wide.write()
    narrow.write()

    training = File(
        "quantize_torchao_training",
        [
            "torchao 0.18.0 float8 training, hp_tensor_to_float8_dynamic: per tensor, per row.",
            "Scales are reciprocals: torchao keeps max / amax, RN(1 / kept) is written.",
        ],
    )
    inference = File(
        "quantize_torchao_inference",
        [
            "torchao 0.18.0 Float8Tensor.from_hp, torch path: per tensor, per row, blocks.",
            "Zero tiles have scale 0 and NaN codes.",
        ],
    )
    for name, kind in float8.items():
        for tile, dtype in (((0, 0), F), ((0, 0), BF16), ((1, 0), F), ((1, 0), BF16)):
            found = cases(name, 24, dtype, 3)
            found = rows_apart(found) if tile == (0, 0) else found
            preset = "fp8" if tile == (0, 0) else "fp8-channel"
            for rule in ("f32", "rceil"):

                def peer(x, kind=kind, tile=tile, rule=rule):
                    per_row = tile == (1, 0)
                    how = ScalingGranularity.AXISWISE if per_row else ScalingGranularity.TENSORWISE
                    got = hp_tensor_to_float8_dynamic(
                        to_torch(x),
                        kind,
                        LinearMMConfig(),
                        scaling_granularity=how,
                        axiswise_dim=-1 if per_row else None,
                        round_scales_to_power_of_2=rule == "rceil",
                    )
                    scale = F(1) / got._scale.numpy().reshape(-1, 1)
                    return scale, None, bytes_of(got._data)

                def formula(x, name=name, tile=tile, rule=rule):
                    return torchao_float8(x, name, tile, rule, "training")

                for case, x in found:
                    training.add(case, preset, name, tile, "f32", rule, x, formula, peer)

            def peer(x, kind=kind, tile=tile):
                how = PerRow() if tile == (1, 0) else PerTensor()
                got = Float8Tensor.from_hp(to_torch(x), float8_dtype=kind, granularity=how)
                return got.scale.numpy().reshape(-1, 1), None, bytes_of(got.qdata)

            def formula(x, name=name, tile=tile):
                return torchao_float8(x, name, tile, "f32", "inference")

            for case, x in found:
                inference.add(case, preset, name, tile, "f32", "f32", x, formula, peer)
    for tile in ((1, 128), (16, 16)):
        for dtype in (F, BF16):
            found = cases("e4m3fn", tile[1], dtype, 4, "few")
            if tile[0] == 1 and dtype == F:
                found = [case for case in found if case[0] in ("normal", "max+3", "huge")]
            if tile[0] > 1:
                joined = np.concatenate([x for _, x in found])
                joined = np.tile(joined, (2, 2))[: 2 * tile[0], : 2 * tile[1]]
                found = [("mixed", np.ascontiguousarray(joined))]
                square = cases("e4m3fn", 16, dtype, 5)[0][1]
                found += [("normal", np.ascontiguousarray(np.tile(square, (8, 1))))]

            def peer(x, tile=tile):
                quantize = kernels.torch_blockwise_scale_weight_quant
                if tile[0] == 1:
                    quantize = kernels.torch_blockwise_scale_act_quant_lhs
                codes, scale = quantize(to_torch(x), tile[1])
                return np.ascontiguousarray(scale.numpy()), None, bytes_of(codes)

            def formula(x, tile=tile):
                return torchao_float8(x, "e4m3fn", tile, "f32", "training")

            def peer_inference(x, tile=tile):
                got = Float8Tensor.from_hp(to_torch(x), granularity=PerBlock(list(tile)))
                return got.scale.numpy(), None, bytes_of(got.qdata)

            def formula_inference(x, tile=tile):
                return torchao_float8(x, "e4m3fn", tile, "f32", "inference")

            preset = "fp8-1x128" if tile[0] == 1 else "fp8-block"
            head = (preset, "e4m3fn", tile, "f32", "f32")
            for case, x in found:
                training.add(case, *head, x, formula, peer)
                inference.add(case, *head, x, formula_inference, peer_inference)
    training.lines.insert(
        2,
        "# 1x128 and square blocks (here 16x16) are the torch functions of"
        " prototype/blockwise_fp8_training.",
    )
    training.write()
    inference.write()

    out = File(
        "quantize_torchao_nvfp4",
        [
            "torchao 0.18.0 nvfp4_quantize: one level (tensor scale -) and two.",
            "The tensor scale is per_tensor_amax_to_scale of the tensor's amax. Left out: tensors",
            "for which the two-level path gives NaN (1 / tensor scale is Inf, as for all zero).",
        ],
    )
    for two_level in (False, True):

        def peer(x, two_level=two_level):
            data = to_torch(x)
            whole = None
            if two_level:
                whole = nvfp4_tensor.per_tensor_amax_to_scale(data.abs().max())
            scale, codes = nvfp4_tensor.nvfp4_quantize(data, 16, whole)
            scale = bytes_of(scale).reshape(x.shape[0], -1)
            return scale, None if whole is None else F(whole.item()), unpacked(codes)

        def formula(x, two_level=two_level):
            return torchao_nvfp4(x, two_level)

        for case, x in nvfp4_cases():
            if two_level and not np.isfinite(F(1) / (widen(np.abs(x)).max() / F(2688))):
                continue
            out.add(case, "nvfp4", "e2m1fn", (1, 16), "e4m3", "f32", x, formula, peer)
    out.write()
