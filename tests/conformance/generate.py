#!/usr/bin/env python3
"""Writes peer_{bf16,f16,f32,f64}.tsv: what torch, ml_dtypes and CUDA's host headers make of their
inputs, and peer_decode.tsv: the value of every code in ml_dtypes.

A cast is a step function of the input's bits, so its whole table is a few hundred runs "first last
code" per format. bf16, f16 and f32 runs come from trying every input (2^32 for f32: about 20
minutes in all on one core); f64 runs from bisection between the ends of the f32 runs. Rows that
several peers share are written once.

Needs torch, ml_dtypes, numpy, g++ and CUDA's headers:
    python tests/conformance/generate.py [--cuda-include DIR] [--only bf16,f16,decode]
Rows of peers that do not run are kept, so that an older torch can add its own (torch_2_11):
    python tests/conformance/generate.py --peers torch
"""

import argparse
import collections
import ctypes
import pathlib
import subprocess
import tempfile

import ml_dtypes
import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
WORD = {"bf16": np.uint16, "f16": np.uint16, "f32": np.uint32, "f64": np.uint64}
NUMPY = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64}
TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64}
# torch takes signed words from numpy.
SIGNED = {"bf16": np.int16, "f16": np.int16, "f32": np.int32, "f64": np.int64}
CUDA_SOURCE = {"f64": 0, "f32": 1, "f16": 2, "bf16": 3}
INF = {"bf16": 0x7F80, "f16": 0x7C00, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
BITS = {"bf16": 16, "f16": 16, "f32": 32, "f64": 64}
CHUNK = 1 << 24
ORDER = ["torch", "torch_2_11", "ml_dtypes", "cuda"]  # of names in a row

ML_DTYPES_FORMATS = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "e4m3": ml_dtypes.float8_e4m3,
    "e3m4": ml_dtypes.float8_e3m4,
    "e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "e3m2fn": ml_dtypes.float6_e3m2fn,
    "e2m3fn": ml_dtypes.float6_e2m3fn,
    "e2m1fn": ml_dtypes.float4_e2m1fn,
}
TORCH_FORMATS = {
    "e4m3fn": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
    "e8m0fnu": torch.float8_e8m0fnu,
}
CUDA_FORMATS = ["e4m3fn", "e5m2", "e8m0fnu", "e3m2fn", "e2m3fn", "e2m1fn"]


def load_cuda(include):
    library = pathlib.Path(tempfile.mkdtemp()) / "cuda_peer.so"
    source_file = str(HERE / "cuda_peer.cc")
    compiler = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", "-isystem", include]
    subprocess.run([*compiler, f"-I{HERE.parents[1]}", source_file, "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).cuda_codes
    pointer = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_int, pointer, pointer, ctypes.c_int64]

    def codes(name, source, bits):
        out = np.empty(bits.size, np.uint8)
        data = (bits.ctypes.data, out.ctypes.data, bits.size)
        assert function(name.encode(), CUDA_SOURCE[source], *data) == 0
        return out

    return codes


def torch_codes(name, source, bits):
    values = torch.from_numpy(bits.view(SIGNED[source])).view(TORCH[source])
    return values.to(TORCH_FORMATS[name]).view(torch.uint8).numpy()


def ml_dtypes_codes(name, source, bits):
    with np.errstate(all="ignore"):
        return bits.view(NUMPY[source]).astype(ML_DTYPES_FORMATS[name]).view(np.uint8)


def every_input_runs(codes, source):
    """(first, last, code) over all inputs of a 16- or 32-bit source."""
    total = 1 << BITS[source]
    starts, values = [], []
    previous = -1
    for begin in range(0, total, CHUNK):
        bits = np.arange(begin, min(begin + CHUNK, total), dtype=np.uint64).astype(WORD[source])
        got = codes(bits)
        changes = np.flatnonzero(got[1:] != got[:-1]) + 1
        if got[0] != previous:
            changes = np.concatenate([[0], changes])
        starts.extend((changes + begin).tolist())
        values.extend(got[changes].tolist())
        previous = got[-1]
    ends = [start - 1 for start in starts[1:]] + [total - 1]
    return list(zip(starts, ends, values, strict=True))


def bisected_runs(codes, coarse):
    """Runs of a 64-bit source; between neighbours in `coarse` a code changes at most once."""
    coarse = np.array(sorted(set(coarse)), dtype=np.uint64)
    got = codes(coarse)
    at = np.flatnonzero(got[1:] != got[:-1])
    low, high, low_code = coarse[at].copy(), coarse[at + 1].copy(), got[at]
    for _ in range(64):
        middle = low + (high - low) // np.uint64(2)
        same = codes(middle) == low_code
        low, high = np.where(same, middle, low), np.where(same, high, middle)
        if np.all(high - low <= 1):
            break
    starts = [int(coarse[0])] + [int(b) for b in high]
    ends = [int(b) for b in low] + [int(coarse[-1])]
    start_codes = codes(np.array(starts, dtype=np.uint64)).tolist()
    return list(zip(starts, ends, start_codes, strict=True))


def f64_coarse(f32_runs):
    """The f64 bits of the ends of f32 runs, with the ends of what f64 has more of."""
    ends = np.array(sorted({b for run in f32_runs for b in run[:2]}), dtype=np.uint32)
    wide = ends.view(np.float32).astype(np.float64).view(np.uint64).tolist()
    sign, nan = 1 << 63, INF["f64"] + 1
    wide = [b for b in wide if (b & (sign - 1)) < nan]
    for s in (0, sign):
        wide += [s, s | 1, s | (INF["f64"] - 1), s | INF["f64"], s | nan, s | (sign - 1)]
    return wide


def write(source, rows, ran):
    """rows: {(format, first, last, code): [peer, ...]}; those of other peers are kept."""
    digits = BITS[source] // 4
    path = HERE / f"peer_{source}.tsv"
    if path.exists():
        for line in path.read_text(encoding="ascii").splitlines():
            if not line.startswith("#"):
                name, peers, _, inputs, code = line.split("\t")
                first, last = inputs.split("-")
                key = name, int(first, 16), int(last, 16), int(code, 16)
                rows[key] += [peer for peer in peers.split(",") if peer not in ran]
    kept = {key: sorted(peers, key=ORDER.index) for key, peers in rows.items() if peers}
    with open(path, "w", encoding="ascii") as out:
        out.write(f"# {source} casts of peers; written by generate.py, see README.md.\n")
        out.write("# format\tprofiles\tsource\tfirst-last\tcode\n")
        for (name, first, last, code), peers in sorted(kept.items()):
            inputs = f"{first:0{digits}x}-{last:0{digits}x}"
            out.write(f"{name}\t{','.join(peers)}\t{source}\t{inputs}\t{code:02x}\n")
    print(path, len(kept), "rows", flush=True)


def write_decode():
    path = HERE / "peer_decode.tsv"
    with open(path, "w", encoding="ascii") as out:
        out.write(f"# values of codes in ml_dtypes {ml_dtypes.__version__}; from generate.py.\n")
        out.write("# format\tcode\tf32 bits\n")
        for name, dtype in ML_DTYPES_FORMATS.items():
            codes = np.arange(1 << ml_dtypes.finfo(dtype).bits, dtype=np.uint8)
            values = codes.view(dtype).astype(np.float32)
            for code, value in zip(codes.tolist(), values, strict=True):
                shown = "nan" if np.isnan(value) else f"{value.view(np.uint32):08x}"
                out.write(f"{name}\t{code:02x}\t{shown}\n")
    print(path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuda-include", default="/usr/local/cuda/include")
    parser.add_argument("--only", default="bf16,f16,f32,f64,decode", help="sources; f64 needs f32")
    parser.add_argument("--peers", default="torch,ml_dtypes,cuda")
    arguments = parser.parse_args()
    wanted, chosen = arguments.only.split(","), arguments.peers.split(",")
    if "decode" in wanted:
        write_decode()
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    peers = []
    if "torch" in chosen:
        peers.append(("torch" if version >= (2, 12) else "torch_2_11", TORCH_FORMATS, torch_codes))
    if "ml_dtypes" in chosen:
        peers.append(("ml_dtypes", ML_DTYPES_FORMATS, ml_dtypes_codes))
    if "cuda" in chosen:
        peers.append(("cuda", CUDA_FORMATS, load_cuda(arguments.cuda_include)))
    f32_runs = {}
    for source in ("bf16", "f16", "f32", "f64"):
        if source not in wanted:
            continue
        rows = collections.defaultdict(list)
        for peer, formats, codes in peers:
            for name in formats:

                def cast(bits, name=name, codes=codes, source=source):
                    return codes(name, source, bits)

                if source == "f64":
                    runs = bisected_runs(cast, f64_coarse(f32_runs[peer, name]))
                else:
                    runs = every_input_runs(cast, source)
                if source == "f32":
                    f32_runs[peer, name] = runs
                for first, last, code in runs:
                    # CUDA copies sign and payload of a NaN from f64 to FP8, and from no other type:
                    # no profile does.
                    is_nan = (first & ((1 << 63) - 1)) > INF["f64"]
                    if (peer, source) == ("cuda", "f64") and name in ("e4m3fn", "e5m2") and is_nan:
                        continue
                    rows[name, first, last, code].append(peer)
                print(source, peer, name, len(runs), "runs", flush=True)
        write(source, rows, [peer for peer, _, _ in peers])


if __name__ == "__main__":
    main()
