"""Transformer Engine's own pure PyTorch references, from a checkout of its source."""

import importlib.util
import pathlib
import sys
import types
import unittest.mock

from quantize_peers.formulas import te_nvfp4
from quantize_peers.numbers import FORMATS
from quantize_peers.torch_arrays import bytes_of, load_torch, to_torch, unpacked


def te_reference_peers(root):
    """Transformer Engine's own pure PyTorch references, for finite inputs without -0."""
    torch = load_torch()
    root = pathlib.Path(root)
    sys.path.insert(0, str(root / "tests" / "pytorch"))
    from references.blockwise_quantizer_reference import BlockwiseQuantizerReference
    from references.quantize_scale_calc import scale_from_amax_tensor

    # The NVFP4 one stands in the package, which needs a GPU: its neighbours are left empty.
    package = "transformer_engine.pytorch"
    recipes = f"{package}.custom_recipes"
    for name in ("transformer_engine", package, recipes, f"{package}.quantized_tensor"):
        sys.modules[name] = types.ModuleType(name)
    for name in ("QuantizedTensorStorage", "Quantizer"):
        setattr(sys.modules[f"{package}.quantized_tensor"], name, type(name, (), {}))
    sys.modules[recipes].gemm = unittest.mock.MagicMock()
    folder = root / "transformer_engine" / "pytorch" / "custom_recipes"
    for name in ("reference_utils", "reference_nvfp4"):
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
        setattr(sys.modules[recipes], name, sys.modules[name])
    quantizer = sys.modules["reference_nvfp4"].NVFP4QuantizerRef

    kinds = {"e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}

    def current(x, name, tile, rule):
        data = to_torch(x).float()
        scale, scale_inv, _ = scale_from_amax_tensor(
            torch.float32,
            data.abs().max().view(1),
            kinds[name],
            eps=0.0,
            pow_2_scales=rule == "rceil",
        )
        largest = FORMATS[name][2]
        codes = (data * scale).clamp(-largest, largest).to(kinds[name])
        return scale_inv.numpy().reshape(1, 1), None, bytes_of(codes)

    def block(x, name, tile, rule):
        ask = BlockwiseQuantizerReference._quantize_vector_tiling
        if tile[0] == 128:
            ask = BlockwiseQuantizerReference._quantize_square_block_tiling
        got = ask(
            to_torch(x),
            kinds[name],
            128,
            return_transpose=False,
            pow_2_scales=rule == "rceil",
            eps=0.0,
        )
        return got.scale.numpy(), None, bytes_of(got.data)

    def nvfp4(x):
        data = to_torch(x)
        amax = data.float().abs().max()
        got, scale = quantizer._quantize_blockwise_reference(
            data, amax, 16, 1, pow_2_scales=False, eps=0.0
        )
        # The reference does not give the tensor's scale back.
        return bytes_of(scale), te_nvfp4(x)[1], unpacked(got)

    return {"current": current, "block": block, "nvfp4": nvfp4}
