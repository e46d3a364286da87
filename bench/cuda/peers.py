"""Times the peers as bench_cuda times octavo: events, L2 flushed before every call, median.

Writes its results after each case, so that stopping it early loses nothing.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
from peer_ops import VALUES, Peer, casts, quantizers

FLUSH_BYTES = 256 << 20
WARM_UP = 5


def timed(run, repeats: int, flushed: torch.Tensor) -> list[float]:
    """Microseconds of each call."""
    for _ in range(WARM_UP):
        run()
    torch.cuda.synchronize()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for before, after in events:
        flushed.zero_()
        before.record()
        run()
        after.record()
    torch.cuda.synchronize()
    return sorted(before.elapsed_time(after) * 1e3 for before, after in events)


def measure(peer: Peer, repeats: int, flushed: torch.Tensor) -> dict:
    row = {"case": peer.case, "how": peer.how, "bytes": peer.bytes}
    try:
        times = timed(peer.run, repeats, flushed)
    except Exception as error:  # a peer that fails is a result, too
        return row | {"failed": f"{type(error).__name__}: {error}"[:300]}
    median = statistics.median(times)
    return row | {"us": round(median, 2), "gbps": round(peer.bytes / median * 1e-3, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--cols", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=51)
    parser.add_argument("--seconds", type=float, default=150, help="start no case after this")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch sees no CUDA device", file=sys.stderr)
        return 2
    start = time.monotonic()
    torch.manual_seed(1)
    device = torch.device("cuda")
    base = torch.randn(args.rows, args.cols, device=device)
    values = {name: base.to(dtype) for name, dtype in VALUES.items()}
    flushed = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    x, y = values["bfloat16"], torch.empty_like(values["bfloat16"])
    copy = Peer("copy", "torch", 2 * x.numel() * x.element_size(), lambda: y.copy_(x))
    result = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(),
        "results": [],
    }
    for group in ([copy], casts(values), quantizers(x)):
        for peer in group:
            if time.monotonic() - start > args.seconds:
                result["results"].append({"case": peer.case, "how": peer.how, "failed": "no time"})
            else:
                result["results"].append(measure(peer, args.repeats, flushed))
            args.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
