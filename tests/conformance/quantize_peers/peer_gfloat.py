"""gfloat: blocks of OCP MX."""

import numpy as np

from quantize_peers.file import File
from quantize_peers.formulas import gfloat_mx
from quantize_peers.inputs import cases
from quantize_peers.numbers import BF16, F, widen


def gfloat_file():
    from gfloat import block, formats

    infos = {
        "e4m3fn": formats.format_info_mxfp8_e4m3,
        "e5m2": formats.format_info_mxfp8_e5m2,
        "e2m3fn": formats.format_info_mxfp6_e2m3,
        "e3m2fn": formats.format_info_mxfp6_e3m2,
        "e2m1fn": formats.format_info_mxfp4_e2m1,
        "mxint8": formats.format_info_mxint8,
    }
    presets = {"e4m3fn": "mxfp8", "e5m2": "mxfp8", "e2m1fn": "mxfp4", "mxint8": "mxint8"}
    out = File(
        "quantize_gfloat",
        [
            "gfloat 0.5.2 compute_scale_amax and encode_block (OCP MX 6.3), in float64.",
        ],
    )
    for name, info in infos.items():

        def peer(x, info=info):
            scales, codes = [], []
            for part in widen(x).astype(np.float64).reshape(-1, 32):
                scale = block.compute_scale_amax(info.etype.emax, part)
                first, *rest = block.encode_block(info, scale, part / scale)
                scales.append(first)
                codes.append(rest)
            shape = x.shape[0], -1
            return np.array(scales, np.uint8).reshape(shape), None, np.reshape(codes, x.shape)

        def formula(x, name=name):
            return gfloat_mx(x, name)

        for dtype, scope in ((F, "all"), (BF16, "few")):
            for case, x in cases(name, 32, dtype, 8, scope):
                preset = presets.get(name, "mxfp6")
                out.add(case, preset, name, (1, 32), "e8m0", "floor", x, formula, peer)
    out.write()
