"""An instruction may only be in the folders of octavo/backend/cpu/isa whose CPUs have it.

    check_isa_instructions.py --arch x86_64 --objdump PROGRAM --folder NAME OBJECT... [--folder ...]

Flags of a folder let the compiler use more than its intrinsics name, and inline assembly asks no
flag at all; a CPU without the instruction stops with SIGILL, and no test on a newer one sees it.
So objects are disassembled and every instruction sorted into the classes below. A folder that lacks
what it is there for fails too: then this program does not see what it looks for.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Classes: an expression over "<form> <mnemonic>". The form is on x86 the encoding (legacy, vex,
# evex), which zmm, masks and registers above 15 need whatever the mnemonic; on ARM what the
# operands are (half: f16 or bf16 elements, sve, plain). What is in no class runs on every CPU.
CLASSES = {
    "x86_64": {
        "SSE3 to SSE4.2": r"legacy (addsubp|h(add|sub)p|mov(ddup|s[hl]dup|ntdqa)|lddqu|blendv?p|"
        r"dpp|(extract|insert)ps|mpsad|round[ps]|crc32|popcnt|lzcnt|"
        r"p(shufb|h(add|sub|min)|abs|align|maddub|mulhrs|sign|ackusdw|blend|cmp(eqq|gtq|.str)|"
        r"(extr|insr)[bdq]|m(in|ax)(s[bd]|u[dw])|mov[sz]x|mul(dq|ld)|test))",
        "BMI": r"vex (andn|bextr|bls|bzhi|mulx|pdep|pext|rorx|s(ar|hl|hr)x)",
        "AVX": r"vex v",  # with AVX2, FMA and F16C: no CPU that counts has one without the others
        "AVX-512": r"evex ",
        "masks": r"vex k",
        "VBMI": r"evex vp(erm([it]2)?b|multishiftqb)$",
        "VBMI2": r"evex vp((compress|expand)[bw]|sh[lr]dv?[wdq])",
        "VNNI": r"e?vex vpdp(bus|wss)d",
        "AVX-512 BF16": r"evex v(cvtne2?ps2bf16|dpbf16ps)",
        "AVX-512 FP16": r"evex v(?!cvt(ps2ph|ph2ps)$)(\w*(ph|sh)|\w*(ph|sh)2\w+|\w+2phx|movw)$",
        "rarer AVX-512": r"evex vp(madd52|opcnt|conflict|lzcnt|shufbitqmb|broadcastm|2intersect)",
        "GFNI": r"\w+ v?gf2p8",
        "AMX tiles": r"vex (ldtilecfg|sttilecfg|tile)",
        "AMX bf16": r"vex tdpbf16ps",
        "AMX int8": r"vex tdpb[su]{2}d",
        "AMX fp16": r"vex tdpfp16ps",
    },
    "aarch64": {
        "atomics of Armv8.1": r"plain (cas|swp|(ld|st)(add|clr|eor|set|[su]max|[su]min))",
        "half precision": r"half (f(?!cvt[ln]?2?$|ml[as]l)|[su]cvtf)",
        "half precision to f32 sums": r"half fml[as]l",
        "dot products": r"plain [su]dot",
        "bf16": r"\w+ bf(mmla|dot|cvt|mlal)",
        "int8 matrix products": r"plain ((s|u|us)mmla|usdot|sudot)",
        "SVE": r"sve ",
    },
}


@dataclass(frozen=True)
class Folder:
    """What its objects may have: all that `after` has, `adds`, which must be found, and `may`."""

    after: str | None = None
    adds: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


# A class joins a folder with its flag in octavo/CMakeLists.txt and its bit in the registry.
# "rooms" are all objects outside the folders.
FOLDERS = {
    "x86_64": {
        "rooms": Folder(),
        "portable": Folder(),
        "avx2": Folder("portable", adds=("AVX",)),
        "avx512": Folder("avx2", adds=("AVX-512", "masks")),
        "avx512_vbmi": Folder("avx512", adds=("VBMI",)),
        "amx": Folder("avx512_vbmi", adds=("AMX tiles", "AMX bf16", "AMX int8")),
    },
    "aarch64": {
        "rooms": Folder(),
        "portable": Folder(),
        "neon": Folder("portable"),
        "neon_fp16": Folder("neon", adds=("half precision",), may=("atomics of Armv8.1",)),
        "neon_dot": Folder("neon_fp16", adds=("dot products",)),
        "neon_bf16": Folder("neon_dot", adds=("bf16",)),
        "neon_i8mm": Folder("neon_bf16", adds=("int8 matrix products",)),
    },
}

# Segment and address size: what may stand before a VEX or EVEX prefix.
X86_PREFIXES = {"26", "2e", "36", "3e", "64", "65", "67"}
X86_FORMS = {"c4": "vex", "c5": "vex", "62": "evex"}
ARM_FORMS = re.compile(r"(?P<sve>\bz\d+\b)|(?P<half>\bv\d+\.(\d?h\b)|\bh\d+\b)")


def form_of(arch: str, encoding: str, text: str) -> str:
    if arch == "x86_64":
        first = next((byte for byte in encoding.split() if byte not in X86_PREFIXES), "")
        return X86_FORMS.get(first, "legacy")
    found = ARM_FORMS.search(text)
    return "plain" if found is None else found.lastgroup or "half"


def mnemonic_of(text: str) -> str:
    words = text.split(None, 2) or [""]
    return words[1] if words[0].startswith("{") and len(words) > 1 else words[0]


def instructions(arch: str, listing: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Place (object and function), form and text of all that objdump printed, in lines
    'address:<tab>bytes<tab>mnemonic operands'."""
    file = place = ""
    for line in listing:
        parts = line.rstrip("\n").split("\t", 2)
        if len(parts) == 3:
            yield place, form_of(arch, parts[1], parts[2]), parts[2]
        elif line.endswith(">:\n"):
            place = f"{file}: {line[line.index('<') + 1 : -3]}"
        elif "file format" in line:
            file = line.partition(":")[0]


def allowed(arch: str, name: str) -> set[str]:
    folder = FOLDERS[arch][name]
    below = allowed(arch, folder.after) if folder.after else set()
    return below | {*folder.adds, *folder.may}


def check(arch: str, name: str, listing: Iterable[str]) -> tuple[Counter[str], list[str]]:
    """How many instructions of each class a folder has, and what is wrong with them."""
    classes = {label: re.compile(expression) for label, expression in CLASSES[arch].items()}
    permitted = allowed(arch, name)
    known: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    wrong = []
    for place, form, text in instructions(arch, listing):
        key = f"{form} {mnemonic_of(text)}"
        if key not in known:
            known[key] = [label for label, pattern in classes.items() if pattern.match(key)]
        counts["all"] += 1
        for label in known[key]:
            counts[label] += 1
            if label not in permitted:
                wrong.append(f"{place}: '{text}' is {label}, which {name} may not use")
    if counts["all"] == 0:
        wrong.append(f"{name}: no instruction was found; is objdump that of {arch}?")
    for label in FOLDERS[arch][name].adds:
        if counts["all"] and not counts[label]:
            wrong.append(f"{name}: no instruction of {label}, which it is there for")
    return counts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="check which instructions are in which folder")
    parser.add_argument("--arch", choices=FOLDERS, required=True)
    parser.add_argument("--objdump", default="objdump")
    parser.add_argument("--folder", nargs="+", action="append", metavar="NAME OBJECT")
    options = parser.parse_args()
    bad = 0
    for name, *objects in options.folder:
        if name not in FOLDERS[options.arch]:
            parser.error(f"folder {name} has no line in FOLDERS of this program")
        # Wide: a long instruction stays on one line.
        command = [options.objdump, "--disassemble", "--insn-width=16", *objects]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            counts, wrong = check(options.arch, name, process.stdout)
        if process.returncode != 0:
            wrong.append(f"{options.objdump} failed on the objects of {name}")
        print(f"{name}: " + ", ".join(f"{label} {n}" for label, n in counts.items()))
        for line in wrong[:10]:
            print(f"  {line}")
        if len(wrong) > 10:
            print(f"  and {len(wrong) - 10} more")
        bad += len(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
