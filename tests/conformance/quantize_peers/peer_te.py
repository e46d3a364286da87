"""Transformer Engine: its formulas, and where its source is at hand its own references, too."""

import numpy as np

from quantize_peers.file import HERE, File
from quantize_peers.formulas import te_delayed, te_float8, te_mxfp8, te_nvfp4
from quantize_peers.inputs import cases, non_finite_cases, nvfp4_cases, ragged, rows_apart
from quantize_peers.numbers import BF16, FLT_MAX, FORMATS, F, widen
from quantize_peers.te_references import te_reference_peers


def te_files(references):
    peers = te_reference_peers(references) if references else {}
    out = File(
        "quantize_te",
        [
            "Transformer Engine's formulas (2.x, August 2026), from its source; no epsilon.",
            "Scales are its scale_inv: current scaling, 1x128 and 128x128 blocks.",
        ],
    )
    for name in ("e4m3fn", "e5m2"):
        for dtype in (F, BF16):
            for rule in ("f32", "rceil"):
                for tile, preset in (
                    ((0, 0), "fp8"),
                    ((1, 128), "fp8-1x128"),
                    ((128, 128), "fp8-block"),
                ):

                    def formula(x, name=name, tile=tile, rule=rule):
                        return te_float8(x, name, tile, rule)

                    found = cases(name, 24, dtype, 13) + non_finite_cases(24, dtype, 14)
                    if tile != (1, 128):
                        found = rows_apart(found)
                    if tile[0] == 128:
                        found = [
                            case
                            for case in found
                            if case[0].startswith(("tiny", "huge", "inf", "nan", "max+3", "zero"))
                        ]
                    if tile[1] == 128 and name == "e4m3fn" and dtype == BF16:
                        found += ragged(dtype, 15)
                    peer = peers.get("current" if tile == (0, 0) else "block")
                    for case, x in found:
                        asked = None
                        if peer and np.isfinite(widen(x)).all():

                            def asked(x, peer=peer, name=name, tile=tile, rule=rule):
                                return peer(x, name, tile, rule)

                        out.add(case, preset, name, tile, "f32", rule, x, formula, asked)
    out.write()
    out = File(
        "quantize_te_mx",
        [
            "Transformer Engine's formulas (2.x, August 2026), from its source: MXFP8 and NVFP4.",
            "NVFP4: the tensor scale is S_dec = RN(1 / S_enc); Transformer Engine keeps the amax.",
        ],
    )
    for name in ("e4m3fn", "e5m2"):
        for dtype in (F, BF16):
            for case, x in cases(name, 32, dtype, 16) + non_finite_cases(32, dtype, 17):

                def formula(x, name=name):
                    return te_mxfp8(x, name)

                out.add(case, "mxfp8", name, (1, 32), "e8m0", "rceil", x, formula)
    found = nvfp4_cases() + non_finite_cases(32, F, 18) + non_finite_cases(32, BF16, 19)
    for case, x in found:
        plain = np.isfinite(widen(x)).all() and not (np.signbit(widen(x)) & (widen(x) == 0)).any()
        peer = peers.get("nvfp4") if plain else None
        out.add(case, "nvfp4", "e2m1fn", (1, 16), "e4m3", "f32", x, te_nvfp4, peer)
    out.write()
    te_delayed_file()


def te_delayed_file():
    lines = [
        "# Transformer Engine's delayed scaling, fused update, from its source. `inv_scale` is its",
        "# `scale`: what x is multiplied by. The amax is put into history[0] before the update; an",
        "# amax of 0 is a tensor that was not seen. Rows of one sequence follow each other.",
        "# sequence\tformat\talgo\tmargin\thistory before\tinv_scale before\tamax"
        "\thistory after\tinv_scale after\tscale after",
    ]
    inf, nan = F(np.inf), F(np.nan)
    sequences = {
        "plain": [3.0, 1.5, 7.25, 0.1, 448.0, 2.0, 2.0, 2.0],
        "zero": [0.0, 2.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5],
        "inf": [2.0, inf, 1.0, 1.0, 1.0, 1.0],
        "nan": [2.0, nan, 1.0, 0.25, 0.25, 0.25, nan, nan],
        "tiny": [1e-40, 2.0**-126, 2.0**-120, 1e-30, 1e-45],
        "huge": [FLT_MAX, 1e38, 3e38, 1.0],
    }
    count = 0
    for name in ("e4m3fn", "e5m2"):
        for algo in ("max", "most_recent"):
            for margin in (0, 1, 3, -2):
                for length in (1, 4):
                    for sequence, amaxes in sequences.items():
                        history, inv_scale = np.zeros(length, F), F(1)
                        for amax in np.array(amaxes, F):
                            with np.errstate(all="ignore"):
                                after, new = te_delayed(
                                    history, inv_scale, amax, margin, algo, FORMATS[name][2]
                                )
                                scale = F(1) / new
                            cells = [
                                f"{sequence}-{length}",
                                name,
                                algo,
                                str(margin),
                                hexes(history),
                                hexes(inv_scale),
                                hexes(amax),
                                hexes(after),
                                hexes(new),
                                hexes(scale),
                            ]
                            lines.append("\t".join(cells))
                            history, inv_scale = after, new
                            count += 1
    path = HERE / "delayed_scaling_te.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    print(path.name, count, "rows")


def hexes(values):
    return ",".join(f"{v:08x}" for v in np.atleast_1d(values).astype(F).view(np.uint32).tolist())
