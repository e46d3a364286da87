#!/usr/bin/env python3
"""Writes quantize_*.tsv: the scales and codes that other libraries give for the same inputs.

quantize_peers/ has two implementations. A *peer* calls a library's own functions (torchao
0.18.0, gfloat 0.5.2, ModelOpt 0.47.0). A *formula* is docs/numerics/peer-arith.md in numpy, written
apart from the libraries and from octavo. Every row is tried on both, and the count of differences
is printed: zero says that the page is right. Transformer Engine needs a GPU, so its rows come from
the formulas alone; with --te-source the pure PyTorch references in its source are tried too (finite
inputs).

A row: name, preset, element format, tile, scale format, rule, input type, rows, cols, input bits,
scale bits, tensor scale bits or "-", codes. Everything is row-major hex; codes are not packed; a
tile side of 0 is the whole side. A scale is what a code is multiplied by. Names that begin with
tiny- and huge- are where peers differ most.

    pip install torch==2.15.0 torchao==0.18.0 gfloat==0.5.2 nvidia-modelopt==0.47.0 \
        ml_dtypes==0.6.0 requests huggingface_hub
    python tests/conformance/generate_quantize.py [--only te,gfloat] [--te-source DIR]
"""

import argparse
import warnings

from quantize_peers.log2 import check_log2
from quantize_peers.peer_gfloat import gfloat_file
from quantize_peers.peer_modelopt import modelopt_files
from quantize_peers.peer_te import te_files
from quantize_peers.peer_torchao import torchao_files


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="torchao,gfloat,modelopt,te")
    parser.add_argument("--te-source", help="a checkout of Transformer Engine")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    warnings.simplefilter("ignore")
    check_log2()
    if "te" in wanted:
        te_files(arguments.te_source)
    if "gfloat" in wanted:
        gfloat_file()
    if "torchao" in wanted:
        torchao_files()
    if "modelopt" in wanted:
        modelopt_files()


if __name__ == "__main__":
    main()
