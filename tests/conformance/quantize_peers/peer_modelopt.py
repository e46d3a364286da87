"""ModelOpt: FP8 and its export, MXFP8, MXFP4, NVFP4."""

from quantize_peers.file import File
from quantize_peers.formulas import modelopt_fp8, modelopt_mxfp4, modelopt_mxfp8, modelopt_nvfp4
from quantize_peers.inputs import cases, nvfp4_cases, ragged, rows_apart
from quantize_peers.numbers import BF16, F, tile_amax
from quantize_peers.torch_arrays import bytes_of, load_torch, to_torch, unpacked


def modelopt_files():
    torch = load_torch()
    from modelopt.torch.export import quant_utils
    from modelopt.torch.quantization.config import QuantizerAttributeConfig
    from modelopt.torch.quantization.nn import TensorQuantizer
    from modelopt.torch.quantization.qtensor import FP8QTensor, MXFP8QTensor, NVFP4QTensor
    from modelopt.torch.quantization.qtensor.mxfp4_tensor import MXFP4QTensor

    tiles = {(0, 0): "fp8", (1, 0): "fp8-channel", (128, 128): "fp8-block"}
    for path, say in (
        (
            "qtensor",
            [
                "ModelOpt 0.47.0 FP8QTensor.quantize, MXFP8QTensor, MXFP4QTensor, NVFP4QTensor;",
                "FP8 scales of bf16 inputs are bf16 there, shown widened to f32. Zero tiles: NaN.",
            ],
        ),
        (
            "export",
            [
                "ModelOpt 0.47.0 export of FP8 weights: get_scaling_factor of a calibrated",
                "quantizer, then to_quantized_weight.",
            ],
        ),
    ):
        out = File(f"quantize_modelopt_{path}", say)
        for tile, preset in tiles.items():

            def peer(x, tile=tile, path=path):
                data = to_torch(x)
                grid = tile_amax(x, tile).shape
                if path == "qtensor":
                    how = {"block_sizes": {-1: 128, -2: 128}} if tile[0] == 128 else {}
                    if tile == (1, 0):
                        how = {"axis": 0}
                    got, scale = FP8QTensor.quantize(data, **how)
                    codes = got._quantized_data
                else:
                    amax = torch.from_numpy(tile_amax(x, tile)).to(data.dtype)
                    quantizer = TensorQuantizer(QuantizerAttributeConfig(num_bits=(4, 3)))
                    quantizer.amax = amax.reshape(()) if tile == (0, 0) else amax.reshape(-1)
                    scale = quant_utils.get_scaling_factor(quantizer)
                    kind = {
                        "fp8": quant_utils.QUANTIZATION_FP8,
                        "fp8-channel": quant_utils.QUANTIZATION_FP8_PC_PT,
                        "fp8-block": quant_utils.QUANTIZATION_FP8_PB_WO,
                    }[tiles[tile]]
                    # Per tensor its export squeezes the scale, so that bf16 weights stay bf16.
                    shapes = {(0, 0): (), (1, 0): (-1,), (128, 128): grid}
                    scale = scale.reshape(shapes[tile])
                    codes = quant_utils.to_quantized_weight(data, scale, kind, block_size=128)
                return scale.float().numpy().reshape(grid), None, bytes_of(codes)

            def formula(x, tile=tile, path=path):
                return modelopt_fp8(x, tile, path)

            for dtype in (F, BF16):
                found = cases("e4m3fn", 24, dtype, 9)
                if tile == (0, 0):
                    found = rows_apart(found)
                elif tile[0] == 128:
                    found = [
                        case
                        for case in rows_apart(found)
                        if case[0][:4] in ("norm", "tiny", "huge", "max+", "ties", "zero")
                    ]
                    found += ragged(dtype, 10)
                for case, x in found:
                    out.add(case, preset, "e4m3fn", tile, "f32", "f32", x, formula, peer)
        if path == "export":
            out.write()
            continue

        def peer_mxfp8(x):
            got, scale = MXFP8QTensor.quantize(to_torch(x))
            return scale.numpy(), None, bytes_of(got._quantized_data)

        def peer_mxfp4(x):
            got, scale = MXFP4QTensor.quantize(to_torch(x), 32)
            codes = unpacked(got._quantized_data)
            return scale.numpy().reshape(x.shape[0], -1), None, codes

        def peer_nvfp4(x):
            got, scale, whole = NVFP4QTensor.quantize(to_torch(x), 16)
            codes = unpacked(got._quantized_data)
            return bytes_of(scale), F(whole.item()), codes

        for dtype in (F, BF16):
            for case, x in cases("e4m3fn", 32, dtype, 11):
                out.add(
                    case, "mxfp8", "e4m3fn", (1, 32), "e8m0", "rceil", x, modelopt_mxfp8, peer_mxfp8
                )
            for case, x in cases("e2m1fn", 32, dtype, 12):
                out.add(
                    case, "mxfp4", "e2m1fn", (1, 32), "e8m0", "rceil", x, modelopt_mxfp4, peer_mxfp4
                )
        for case, x in nvfp4_cases():
            out.add(case, "nvfp4", "e2m1fn", (1, 16), "e4m3", "f32", x, modelopt_nvfp4, peer_nvfp4)
        out.write()
