"""MB/s of octavo and of the tokenizers package, in turn, on one core; see README.md."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable


def seconds_of(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer")
    parser.add_argument("text")
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import tokenizers

    import octavo as ov

    text = pathlib.Path(arguments.text).read_bytes().decode()
    file = pathlib.Path(arguments.tokenizer).read_text()
    ours, theirs = ov.Tokenizer.from_json(file), tokenizers.Tokenizer.from_str(file)
    calls: dict[str, Callable[[], object]] = {
        "octavo": lambda: ours.encode(text),
        "tokenizers": lambda: theirs.encode(text),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(arguments.turns + 1):
        for name, call in calls.items():
            seconds[name].append(seconds_of(call))
    if ours.encode(text) != theirs.encode(text).ids:
        raise SystemExit("the ids differ")
    megabytes = len(text.encode()) / 1e6
    out = {
        name: {
            "first_mb_per_second": megabytes / all_of_them[0],
            "mb_per_second": megabytes / statistics.median(all_of_them[1:]),
        }
        for name, all_of_them in seconds.items()
    }
    print(json.dumps({"megabytes": megabytes, "tokenizers": tokenizers.__version__, **out}))


if __name__ == "__main__":
    main()
