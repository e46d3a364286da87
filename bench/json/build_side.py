"""What a library costs a build: seconds of a file that includes it, bytes of a program."""

from __future__ import annotations

import pathlib
import resource
import statistics
import subprocess

from bench.json.sandbox import ROOT

FLAGS = ["-std=c++20", "-O2", "-DNDEBUG", f"-I{ROOT}"]
STATIC = ROOT / "build" / "release" / "octavo" / "liboctavo_static.a"
SOURCES = {
    "nothing": "int main(int n, char**) { return n; }",
    "<string> and <vector>": "#include <string>\n#include <vector>\nint main(int n, char** v) { "
    "std::vector<std::string> a(v, v + n); return a.size() > 1; }",
    "json.h": '#include "octavo/base/json/json.h"\nint main(int n, char** v) { '
    'return n > 1 && octavo::parse_json(v[1], "f")["a"].dump().size() > 3; }',
    "nlohmann/json.hpp": "#include <nlohmann/json.hpp>\nint main(int n, char** v) { "
    'return n > 1 && nlohmann::ordered_json::parse(v[1])["a"].dump().size() > 3; }',
    "pattern.h": '#include "octavo/base/pattern/pattern.h"\nint main(int n, char** v) { '
    "return n > 2 && octavo::Pattern(v[1]).begins(v[2]); }",
    "re2/re2.h": "#include <re2/re2.h>\nint main(int n, char** v) { return n > 2 && "
    "RE2(v[1]).Match(v[2], 0, 9, RE2::ANCHOR_START, nullptr, 0); }",
    "<regex>": "#include <regex>\n#include <string>\nint main(int n, char** v) { return n > 2 && "
    "std::regex_search(std::string(v[2]), std::regex(v[1])); }",
}
LIBRARIES = {"re2/re2.h": ["-Wl,-Bstatic", "-lre2", "-Wl,-Bdynamic", "-lpthread"]}


def cpu_seconds_of(command: list[str]) -> float:
    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    subprocess.run(command, check=True, capture_output=True)
    return used() - before


def measure(folder: pathlib.Path, quick: bool) -> dict[str, object]:
    turns = 1 if quick else 7
    seconds: dict[str, list[float]] = {name: [] for name in SOURCES}
    for i, source in enumerate(SOURCES.values()):
        (folder / f"{i}.cc").write_text(source + "\n")
    for _ in range(turns):
        for i, name in enumerate(SOURCES):
            output = ["-c", str(folder / f"{i}.cc"), "-o", str(folder / f"{i}.o")]
            seconds[name].append(cpu_seconds_of(["g++", *FLAGS, *output]))
    out: dict[str, object] = {}
    for i, name in enumerate(SOURCES):
        program = folder / f"{i}.program"
        linked = [str(STATIC)] if name.endswith("n.h") and "/" not in name else []
        linked += LIBRARIES.get(name, [])
        command = ["g++", str(folder / f"{i}.o"), *linked, "-Wl,--gc-sections", "-s"]
        subprocess.run([*command, "-o", str(program)], check=True)
        # Sections that are loaded: a file's own size is rounded up to pages.
        loaded = subprocess.run(["size", str(program)], check=True, capture_output=True, text=True)
        out[name] = {
            "compile_seconds": statistics.median(seconds[name]),
            "program_bytes": sum(int(word) for word in loaded.stdout.split("\n")[1].split()[:3]),
        }
    return out


def print_all(results: dict) -> None:
    least = results["nothing"]["program_bytes"]
    for name, cost in results.items():
        print(
            f"  {name:<24}{cost['compile_seconds']:6.2f} s"
            f"{(cost['program_bytes'] - least) / 1024:10.0f} KiB"
        )
