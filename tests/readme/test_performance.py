"""docs/performance.md and the tables of README.md are made from the newest results of bench/,
and the figures in the README's sentences are those of the results, too."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def newest(pattern: str) -> dict:
    path = max((ROOT / "bench" / "results").glob(pattern), key=lambda found: found.name[-15:])
    return json.loads(path.read_text())


def test_pages_are_up_to_date():
    command = [sys.executable, "-m", "bench.performance", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_says_which_page_is_out_of_date(tmp_path):
    for name in ("README.md", "docs", "bench"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "README.md").unlink()
    changed = re.sub(r"\d+ TFLOP/s", "9999 TFLOP/s", README)
    (tmp_path / "README.md").write_text(changed)
    program = "import sys; from pathlib import Path; from bench.performance import __main__ as m;"
    program += f"m.ROOT = Path({str(tmp_path)!r}); sys.argv[1:] = ['--check']; sys.exit(m.main())"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.startswith("README.md is out of date"), done
    assert (tmp_path / "README.md").read_text() == changed


def test_error_of_fp8_in_the_text():
    found = newest("error-*.json")["formats"]["e4m3fn"]
    percent = 100 * (found["least"] + found["most"]) / 2
    assert f"off by {percent:.1f} % (rms)" in README


def test_what_peers_lose_in_the_text():
    rows = newest("attention-mean-peers-h200-*.json")["results"]
    lost = [
        -100 * error
        for row in rows
        if row["keys"] in (8192, 16384)
        for name, error in row["mean_error"].items()
        if "FP8" in name
    ]
    said = f"loses {min(lost):.0f} to {max(lost):.0f} % of the answer at 8192 to 16384 keys"
    assert said in " ".join(README.split())


def test_what_a_checkpoint_takes_in_the_table_of_tools():
    rows = newest("checkpoint-peers-*.json")["rows"]
    (sides,) = (row["sides"] for row in rows if row["recipe"] == "nvfp4")
    ours, theirs = sides["octavo"], sides["model_free_ptq"]
    said = (
        f"| {ours['seconds']:.1f} s, {ours['peak_mebibytes']:.0f} MiB"
        f" | {theirs['seconds']:.0f} s, {theirs['peak_mebibytes']:.0f} MiB |"
    )
    assert said in README
