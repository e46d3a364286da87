"""Regular expressions: octavo, RE2 and std::regex against Python's re.match, which loaders call."""

from __future__ import annotations

import json
import pathlib
import statistics

from bench.json import pattern_inputs
from bench.json.json_inputs import module_names
from bench.json.sandbox import BUILD, run_limited
from tests.differential.random_expressions import RandomExpressions, python_verdicts

PROGRAM = str(BUILD / "bench_pattern")
SIDES = ("octavo", "re2", "std")


def timings(folder: pathlib.Path, quick: bool) -> list[dict[str, object]]:
    """Published expressions without lookahead, each on every name, CPU seconds."""
    names, rows = module_names(1000 if quick else 50_000), []
    (folder / "names").write_text("\n".join(name.removesuffix(".weight") for name in names))
    plain = [one for one in pattern_inputs.PUBLISHED if "(?!" not in one]
    ahead = [one for one in pattern_inputs.PUBLISHED if "(?!" in one]
    for kind, expressions in (("no lookahead", plain), ("lookahead", ahead)):
        (folder / "expressions").write_text("\n".join(expressions))
        row = {"kind": kind, "names": len(names), "expressions": len(expressions), "sides": {}}
        for side in SIDES:
            command = [PROGRAM, "names", side, str(folder / "expressions"), str(folder / "names")]
            done = run_limited([*command, "3"], timeout=300)
            if done.ended:
                row["sides"][side] = {"ended": done.ended, "said": done.said[-200:]}
                continue
            told = json.loads(done.lines[-1])
            each = statistics.median(told["seconds"]) / len(expressions) / len(names)
            row["sides"][side] = {"nanoseconds_each": each * 1e9, "found": told["result"]}
        rows.append(row)
    return rows


def hostile() -> list[dict[str, object]]:
    rows = []
    for name, (expression, text) in pattern_inputs.hostile().items():
        row: dict[str, object] = {"case": name}
        for side in SIDES:
            line = json.dumps([expression, text]) + "\n"
            done = run_limited([PROGRAM, "verdicts", side], timeout=20, text=line)
            said = json.loads(done.lines[-1]) if done.lines else None
            row[side] = {
                "verdict": done.ended
                or ("refused" if said is None else "gives up" if said[0] is None else str(said[0])),
                "seconds": done.seconds,
            }
        rows.append(row)
    return rows


def agreement(kind: str, cases: list[list[str]]) -> dict[str, object]:
    """Of expressions: the same as Python, refused though Python has it, wrong. Wrong is another
    verdict on a text, or an expression taken that Python refuses."""
    row: dict[str, object] = {"kind": kind, "expressions": len(cases), "sides": {}}
    said = [python_verdicts(case[0], case[1:]) for case in cases]
    row["python_slow"] = said.count("slow")
    cases = [case for case, word in zip(cases, said, strict=True) if word != "slow"]
    wanted = [
        None if word == "refused" else [letter == "m" for letter in word]
        for word in said
        if word != "slow"
    ]
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    for side in SIDES:
        done = run_limited([PROGRAM, "verdicts", side], timeout=60, text=lines)
        got = [json.loads(line) for line in done.lines]
        counts = {"same": 0, "refused": 0, "wrong": 0, "taken_python_refuses": 0}
        examples: list[object] = []
        for case, want, have in zip(cases, wanted, got, strict=False):
            if have == want:
                counts["same"] += 1
            elif have is None:
                counts["refused"] += 1
            else:
                counts["wrong" if want is not None else "taken_python_refuses"] += 1
                if len(examples) < 8:
                    examples.append([case, want, have])
        row["sides"][side] = {**counts, "ended": done.ended, "examples": examples}
    return row


def agreements(quick: bool) -> list[dict[str, object]]:
    published = [[one, *pattern_inputs.NAMES] for one in pattern_inputs.PUBLISHED]
    rows = [agreement("published", published)]
    count = 300 if quick else 5000
    for kind, wide, letters in (
        ("random", False, "ab.1-_"),
        ("random, with line ends", False, "ab.1-_\n\r"),
        ("random, beyond ASCII", False, "ab.1é中"),
        ("random, all of Python's", True, "ab.1-_"),
    ):
        made = RandomExpressions(1, letters, wide)
        cases = [[made.expression(), *[made.text() for _ in range(5)]] for _ in range(count)]
        rows.append(agreement(kind, cases))
    return rows


def print_all(results: dict) -> None:
    for row in results["timings"]:
        print(f"  {row['expressions']} expressions ({row['kind']}) on {row['names']} names")
        for side, cost in row["sides"].items():
            if "ended" in cost:
                print(f"    {side:<8}{cost['ended']} {cost['said']}")
            else:
                print(f"    {side:<8}{cost['nanoseconds_each']:8.0f} ns a match")
    for row in results["hostile"]:
        said = "  ".join(
            f"{side} {row[side]['verdict']} {row[side]['seconds']:.2f} s" for side in SIDES
        )
        print(f"  {row['case']:<34}{said}")
    for row in results["agreement"]:
        print(f"  {row['kind']}: {row['expressions']} expressions, against Python's re.match")
        for side, counts in row["sides"].items():
            shown = {key: value for key, value in counts.items() if key != "examples"}
            print(f"    {side:<8}{shown}")


def measure(folder: pathlib.Path, quick: bool) -> dict[str, object]:
    return {
        "timings": timings(folder, quick),
        "hostile": hostile(),
        "agreement": agreements(quick),
    }
