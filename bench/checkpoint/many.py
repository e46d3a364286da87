"""How much memory do very many tensors take?

    python -m bench.checkpoint.many PROGRAM [--tensors 100000]

Writes a checkpoint of small bf16 matrices in four files, quantizes it with the program and --json,
and prints the peak of resident memory, the size of the JSON and the seconds. Nothing but Python is
needed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODULES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
MODULES += ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
ROWS, COLS, FILES = 32, 64, 4
# The upper byte of a bf16: 2^-7 to 2^-5, of either sign, so that nothing is NaN.
UPPER = bytes(0x3C if byte % 2 else 0xBC for byte in range(256))


def matrix(source: random.Random) -> bytes:
    out = bytearray(2 * ROWS * COLS)
    out[0::2] = source.randbytes(ROWS * COLS)
    out[1::2] = source.randbytes(ROWS * COLS).translate(UPPER)
    return bytes(out)


def write_model(folder: Path, tensors: int) -> None:
    folder.mkdir()
    source = random.Random(0)
    names = [f"model.layers.{i // 7}.{MODULES[i % 7]}.weight" for i in range(tensors)]
    size = 2 * ROWS * COLS
    where = {}
    for file in range(FILES):
        title = f"model-{file + 1:05d}-of-{FILES:05d}.safetensors"
        part = names[file * tensors // FILES : (file + 1) * tensors // FILES]
        header = {"__metadata__": {"format": "pt"}}
        for i, name in enumerate(part):
            place = [i * size, (i + 1) * size]
            header[name] = {"dtype": "BF16", "shape": [ROWS, COLS], "data_offsets": place}
            where[name] = title
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / title, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for _ in part:
                out.write(matrix(source))
    index = {"metadata": {"total_size": tensors * size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text('{"architectures": ["A"], "model_type": "a"}')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--recipe", default="mxfp8")
    parser.add_argument("--folder", help="where the model is put")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as at:
        root = Path(at)
        write_model(root / "model", given.tensors)
        words = ["quantize", root / "model", "-o", root / "out", "--recipe", given.recipe, "--json"]
        start = time.monotonic()
        with open(root / "report.json", "wb") as out:
            child = subprocess.Popen([given.program, *words], stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        peak = used.ru_maxrss * 1024 / 1e6
        report = os.path.getsize(root / "report.json") / 1e6
    print(
        f"{given.tensors} tensors, {given.recipe}: peak {peak:.1f} MB (asked: at most 300),"
        f" JSON {report:.1f} MB, {seconds:.1f} s, exit code {child.returncode}"
    )
    return child.returncode


if __name__ == "__main__":
    sys.exit(main())
