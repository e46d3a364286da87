"""A file of vectors: every row is tried on the formula and, where there is one, on the peer."""

import pathlib

import numpy as np

from quantize_peers.numbers import BF16, F, bits_of

HERE = pathlib.Path(__file__).resolve().parents[1]


class File:
    def __init__(self, name, comments):
        self.path = HERE / f"{name}.tsv"
        self.lines = [f"# {line}" for line in comments]
        self.lines.append(
            "# name\tpreset\tformat\ttile\tscale format\trule\tinput\trows\tcols\tinput bits"
            "\tscale bits\ttensor scale\tcodes"
        )
        self.rows = self.elements = self.tried = self.different = 0

    def add(self, case, preset, name, tile, scale_format, rule, x, formula, peer=None):
        with np.errstate(all="ignore"):
            want = formula(x)
        got = peer(x) if peer else want
        self.tried += peer is not None
        shown = [self.shown(*each, x) for each in (got, want)]
        if shown[0] != shown[1]:
            self.different += 1
            print("differs:", self.path.name, case, preset, name, rule, x.dtype, tile)
            for a, b in zip(*shown, strict=True):
                if a != b:
                    print("   peer   ", a[:160], "\n   formula", b[:160])
        width = 4 if x.dtype == BF16 else 8
        inputs = "".join(f"{v:0{width}x}" for v in bits_of(x).ravel().tolist())
        kind = "bf16" if x.dtype == BF16 else "f32"
        head = [case, preset, name, f"{tile[0]}x{tile[1]}", scale_format, rule, kind]
        head += [str(x.shape[0]), str(x.shape[1]), inputs]
        self.lines.append("\t".join(head + list(shown[0])))
        self.rows += 1
        self.elements += x.size

    def shown(self, scales, whole, codes, x):
        assert codes.shape == x.shape, (codes.shape, x.shape)
        scales = np.asarray(scales)
        if scales.dtype == F:
            scale = "".join(f"{v:08x}" for v in scales.view(np.uint32).ravel().tolist())
        else:
            scale = scales.astype(np.uint8).tobytes().hex()
        tensor = "-" if whole is None else f"{F(whole).view(np.uint32):08x}"
        return scale, tensor, np.ascontiguousarray(codes, dtype=np.uint8).tobytes().hex()

    def write(self):
        text = "\n".join(self.lines) + "\n"
        self.path.write_text(text, encoding="ascii")
        size = f"{len(text) / 1000:.0f} kB"
        print(
            f"{self.path.name}: {self.rows} rows, {self.elements} elements, {size};",
            f"{self.tried} rows tried on the peer, {self.different} differ",
            flush=True,
        )
