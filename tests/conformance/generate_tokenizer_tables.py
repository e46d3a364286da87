"""Writes octavo/model/tokenizer/unicode_tables.cc: what the Unicode tables of PCRE2 10.42 and of
utf8proc 2.8 (Debian 12) lack or have too much of, beside those of PyPI's `tokenizers`.

    python tests/conformance/generate_tokenizer_tables.py   (needs tokenizers 0.23.3, Linux)

Three ages of Unicode meet in `tokenizers`: regular expressions (Oniguruma) know Unicode 16, normal
forms (a Rust crate) 9, numbers (Rust itself) 17. Every code point is asked for, on both sides.
"""

import ctypes
import json
import pathlib
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_ssize_t, c_uint32, c_void_p

from tokenizers import Regex, normalizers, pre_tokenizers

OUTPUT = pathlib.Path(__file__).parents[2] / "octavo/model/tokenizer/unicode_tables.cc"
POINTS = [point for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]
CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cn Co"
)
PROPERTIES = "Lowercase Uppercase White_Space Emoji Ideographic"
SCRIPTS = (
    "Han Hiragana Katakana Latin Cyrillic Greek Arabic Hebrew Thai Devanagari Common Inherited"
)

TEXT = "".join(map(chr, POINTS)).encode()
BYTES = [len(chr(point).encode()) for point in POINTS]


class Pcre2:
    """Which code points are of a class, by matching runs of it in a text of all of them."""

    UTF_UCP, NO_UTF_CHECK = 0x80000 | 0x20000, 0x40000000

    def __init__(self):
        self.lib = ctypes.CDLL("libpcre2-8.so.0")
        self.lib.pcre2_compile_8.restype = c_void_p
        self.lib.pcre2_compile_8.argtypes = [c_char_p, c_size_t, c_uint32, *[c_void_p] * 3]
        self.lib.pcre2_match_data_create_8.restype = c_void_p
        self.lib.pcre2_match_data_create_8.argtypes = [c_uint32, c_void_p]
        self.lib.pcre2_get_ovector_pointer_8.restype = POINTER(c_size_t)
        self.lib.pcre2_get_ovector_pointer_8.argtypes = [c_void_p]
        self.lib.pcre2_match_8.argtypes = [
            c_void_p, c_char_p, c_size_t, c_size_t, c_uint32, c_void_p, c_void_p,
        ]  # fmt: skip
        self.index_at, at = {}, 0
        for i, size in enumerate(BYTES):
            self.index_at[at] = i
            at += size
        self.index_at[at] = len(POINTS)

    def members(self, property_name):
        pattern = rf"\p{{{property_name}}}+".encode()
        problem, where = c_int(), c_size_t()
        code = self.lib.pcre2_compile_8(
            pattern, len(pattern), self.UTF_UCP, ctypes.byref(problem), ctypes.byref(where), None
        )
        assert code, property_name
        data = self.lib.pcre2_match_data_create_8(1, None)
        span = self.lib.pcre2_get_ovector_pointer_8(data)
        out, at = set(), 0
        while at < len(TEXT):
            found = self.lib.pcre2_match_8(code, TEXT, len(TEXT), at, self.NO_UTF_CHECK, data, None)
            if found < 0:
                break
            out.update(POINTS[self.index_at[span[0]] : self.index_at[span[1]]])
            at = span[1]
        return out


class Utf8proc:
    STABLE, COMPAT, COMPOSE, DECOMPOSE = 2, 4, 8, 16

    def __init__(self):
        self.lib = ctypes.CDLL("libutf8proc.so.2")
        self.lib.utf8proc_map.restype = c_ssize_t
        self.lib.utf8proc_map.argtypes = [c_char_p, c_ssize_t, POINTER(c_void_p), c_int]
        self.free = ctypes.CDLL(None).free
        self.free.argtypes = [c_void_p]

    def map(self, text, options):
        out, source = c_void_p(), text.encode()
        size = self.lib.utf8proc_map(source, len(source), ctypes.byref(out), options | self.STABLE)
        result = ctypes.string_at(out, size).decode()
        self.free(out)
        return result


def removed(pre_tokenizer, points=POINTS, block=4096):
    """The code points that a pre-tokenizer takes out of a text of all of them."""
    out = set()
    for i in range(0, len(points), block):
        part = points[i : i + block]
        pieces = pre_tokenizer.pre_tokenize_str("".join(map(chr, part)))
        left = {ord(c) for piece, _ in pieces for c in piece}
        out.update(point for point in part if point not in left)
    return out


def alone(pre_tokenizer, block=512):
    """Those that it cuts off from the letters around them."""
    out = set()
    for i in range(0, len(POINTS), block):
        text = "".join("xx" + chr(point) for point in POINTS[i : i + block]) + "xx"
        pieces = pre_tokenizer.pre_tokenize_str(text)
        out.update(ord(piece) for piece, _ in pieces if len(piece) == 1)
    return out - {ord("x")}


def stand_ins_and_numbers():
    """[first, last, stand-in] where PCRE2 knows other categories than Oniguruma; the code points
    that it does not know at all; numbers."""
    pcre2 = Pcre2()
    wanted = {point: [] for point in POINTS}
    known = {point: [] for point in POINTS}
    for name in f"{CATEGORIES} Alphabetic {PROPERTIES} {SCRIPTS}".split():
        for point in removed(pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed")):
            wanted[point].append(name)
        for point in pcre2.members("sc:" + name if name in SCRIPTS.split() else name):
            known[point].append(name)
    core = {*CATEGORIES.split(), "Alphabetic"}

    def kinds(names, all_of_them):
        return tuple(name for name in names if all_of_them or name in core)

    # A stand-in has all properties in common, or at least the category and Alphabetic.
    stand_ins = {}
    for point, size in zip(POINTS, BYTES, strict=True):
        if wanted[point] == known[point]:
            for every in (True, False):
                stand_ins.setdefault((size, every, kinds(wanted[point], every)), point)
    rows = []
    for point, size in zip(POINTS, BYTES, strict=True):
        if kinds(wanted[point], False) == kinds(known[point], False):
            continue
        keys = [(size, every, kinds(wanted[point], every)) for every in (True, False)]
        stand_in = next(stand_ins[key] for key in keys if key in stand_ins)
        if rows and rows[-1][1] == point - 1 and rows[-1][2] == stand_in:
            rows[-1][1] = point
        else:
            rows.append([point, point, stand_in])
    unknown = {point for point in POINTS if known[point][:1] == ["Cn"] != wanted[point][:1]}
    numbers = {point for point in POINTS if {"Nd", "Nl", "No"} & set(wanted[point])}
    return rows, unknown, numbers


def not_normalized():
    """Code points whose decomposition or combining class came after the package's tables."""
    utf8proc = Utf8proc()
    forms = [
        (normalizers.NFC(), Utf8proc.COMPOSE),
        (normalizers.NFKD(), Utf8proc.DECOMPOSE | Utf8proc.COMPAT),
    ]
    # Marks of several classes before and after show the class of what is between.
    around = "%s|a%s\u0316|a%s\u0301|a%s\u0334|a\u0301%s|a\u0316%s|a\u0345%s|a%s\u0345|a\u05b0%s"
    # The only younger pair that utf8proc 2.8 composes: U+11935 U+11930.
    out = {0x11930}
    for point in POINTS:
        text = around.replace("%s", chr(point))
        if any(form.normalize_str(text) != utf8proc.map(text, options) for form, options in forms):
            out.add(point)
    return out


def ranges(points):
    rows = []
    for point in sorted(points):
        if rows and rows[-1][1] == point - 1:
            rows[-1][1] = point
        else:
            rows.append([point, point])
    return rows


def table(name, kind, rows):
    cells = ["{" + ", ".join(f"0x{number:X}" for number in row) + "}" for row in rows]
    lines, line = [], "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 99:
            lines.append(line)
            line = "   "
        line += f" {cell},"
    lines.append(line)
    body = "\n".join(lines).rstrip(",")
    return f"constexpr std::array<{kind}, {len(rows)}> {name}{{{{\n{body}\n}}}};\n"


def main():
    rows, unknown, numbers = stand_ins_and_numbers()
    more_numbers = alone(pre_tokenizers.Digits(individual_digits=True)) - numbers
    # A later utf8proc knows decompositions of characters that the package does not.
    raw = not_normalized() | unknown
    OUTPUT.write_text(
        "// Generated by tests/conformance/generate_tokenizer_tables.py: what these are.\n"
        '#include "octavo/model/tokenizer/unicode_tables_internal.h"\n\n'
        "#include <array>\n\n"
        "namespace octavo::tokenizer {\nnamespace {\n\n"
        + table("kStandIns", "StandIn", rows)
        + "\n"
        + table("kNotNormalized", "CharacterRange", ranges(raw))
        + "\n"
        + table("kNumbers", "CharacterRange", ranges(more_numbers))
        + "\n}  // namespace\n\n"
        "std::span<const StandIn> stand_ins() { return kStandIns; }\n"
        "std::span<const CharacterRange> not_normalized_characters() { return kNotNormalized; }\n"
        "std::span<const CharacterRange> youngest_numbers() { return kNumbers; }\n\n"
        "}  // namespace octavo::tokenizer\n"
    )
    print(json.dumps({"stand-ins": len(rows), "raw": len(raw), "numbers": len(more_numbers)}))


if __name__ == "__main__":
    main()
