"""JSON: octavo and nlohmann-json on the files of large checkpoints and on hostile ones."""

from __future__ import annotations

import json
import pathlib
import statistics

from bench.json import json_inputs
from bench.json.sandbox import BUILD, run_limited

PROGRAM = str(BUILD / "bench_json")
QUADRATIC_SECONDS = 600


def timed(work: str, sides: list[str], path: pathlib.Path, repeats: int) -> dict[str, object]:
    """CPU seconds (median) and peak memory over the bytes of the text, side by side."""
    size = path.stat().st_size
    row: dict[str, object] = {"work": work, "input": path.stem, "bytes": size, "sides": {}}
    for side in sides:
        # Linear search for each new key makes ordered_json quadratic: once is enough.
        count = 1 if side == "ordered" and size > 1 << 20 else repeats
        command = [PROGRAM, work, side, str(path), str(count)]
        done = run_limited(command, timeout=QUADRATIC_SECONDS)
        if done.ended:
            row["sides"][side] = {"ended": done.ended, "said": done.said[-200:]}
            continue
        told = json.loads(done.lines[-1])
        row["sides"][side] = {"seconds": statistics.median(told["seconds"])}
        if size > 1 << 20:  # below, pages count and not the text
            row["sides"][side]["peak_factor"] = told["peak_bytes"] / size
    return row


def timings(folder: pathlib.Path, quick: bool) -> list[dict[str, object]]:
    part = 100 if quick else 1
    texts = {
        f"header of {100_000 // part} tensors": json_inputs.safetensors_header(100_000 // part),
        f"index of {200_000 // part} tensors": json_inputs.shard_index(200_000 // part),
        "config": json_inputs.CONFIG_FINITE,
    }
    paths = {}
    for name, text in texts.items():
        paths[name] = folder / f"{name}.json"
        paths[name].write_text(text)
    header, index, config = paths.values()
    trees = ["octavo", "nlohmann", "ordered"]
    return [
        timed("header", ["octavo", "sax", "nlohmann", "ordered"], header, 7),
        timed("tree", trees, index, 7),
        timed("tree", trees, config, 1001),
        timed("write", ["octavo", "nlohmann"], index, 7),
    ]


def judged(side: str, path: pathlib.Path) -> dict[str, object]:
    done = run_limited([PROGRAM, "judge", side, str(path)])
    out: dict[str, object] = {"ended": done.ended, "seconds": done.seconds}
    for line in done.lines:
        for key, value in json.loads(line).items():
            if key != "bytes":
                out[key] = value
                out[f"{key}_bytes"] = json.loads(line)["bytes"]
    return out


def verdict(judgement: dict[str, object]) -> str:
    """One line for a table."""
    if "refused" in judgement:
        size = judgement["refused_bytes"]
        said = judgement["refused"] if size < 200 else f"a message of {size} bytes"
        return f"refused: {said}"
    if judgement["ended"]:
        where = "when it writes" if "accepted" in judgement else "when it reads"
        return f"{judgement['ended']} {where}"
    written = judgement["written"]
    return f"accepted: {written if len(written) < 60 else written[:57] + '...'}"


def hostile(folder: pathlib.Path) -> list[dict[str, object]]:
    rows = []
    for name, data in json_inputs.hostile().items():
        path = folder / "hostile.json"
        path.write_bytes(data)
        row: dict[str, object] = {"case": name, "bytes": len(data)}
        for side in ("octavo", "ordered"):
            row[side] = judged(side, path)
            row[side]["verdict"] = verdict(row[side])
            cost = run_limited([PROGRAM, "tree", side, str(path), "1"])
            if not cost.ended and len(data) > 1 << 20:
                told = json.loads(cost.lines[-1])
                row[side]["peak_factor"] = told["peak_bytes"] / len(data)
        row["python"] = json_inputs.python_verdict(data)
        rows.append(row)
    return rows


def round_trip(folder: pathlib.Path) -> dict[str, object]:
    """Lines of config.json that are others when it was read and written again."""
    changed = {}
    for name, text in (("config", json_inputs.CONFIG), ("finite", json_inputs.CONFIG_FINITE)):
        path = folder / "round.json"
        path.write_text(text)
        for side in ("octavo", "ordered"):
            done = judged(side, path)
            if "written" not in done:
                changed[f"{name}, {side}"] = verdict(done)
                continue
            before = {k: v for k, v in json.loads(text, parse_float=str, parse_int=str).items()}
            after = json.loads(done["written"], parse_float=str, parse_int=str)
            changed[f"{name}, {side}"] = {
                "same_order": list(before) == list(after),
                "changed": {k: after[k] for k in before if after[k] != before[k]},
            }
    return changed


def print_all(results: dict) -> None:
    for row in results["timings"]:
        print(f"  {row['work']:<7}{row['input']}, {row['bytes'] / 1e6:.2f} MB")
        for side, cost in row["sides"].items():
            if "ended" in cost:
                print(f"    {side:<10}{cost['ended']} {cost['said']}")
                continue
            rate = row["bytes"] / cost["seconds"] / 1e6
            print(f"    {side:<10}{cost['seconds'] * 1e3:10.3f} ms{rate:9.1f} MB/s", end="")
            print(f"   peak {cost['peak_factor']:.1f} x the text" if "peak_factor" in cost else "")
    for row in results["hostile"]:
        print(f"  {row['case']} ({row['bytes']} bytes); Python {row['python'][:70]}")
        for side in ("octavo", "ordered"):
            peak = row[side].get("peak_factor")
            more = f"   peak {peak:.1f} x the text" if peak is not None else ""
            print(f"    {side:<10}{row[side]['verdict'][:110]}{more}")
    for name, change in results["round_trip"].items():
        print(f"  round trip of {name}: {change}")


def measure(folder: pathlib.Path, quick: bool) -> dict[str, object]:
    return {
        "timings": timings(folder, quick),
        "hostile": hostile(folder),
        "round_trip": round_trip(folder),
    }
