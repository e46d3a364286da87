#!/usr/bin/env python3
"""Writes safetensors.tsv: small files, good and bad, with what safetensors 0.8 and octavo say of
them; and safetensors_written.tsv: files that safetensors 0.8 wrote, byte for byte.

    pip install safetensors==0.8.0 && python tests/conformance/generate_safetensors.py

Columns of the first: name, verdict of safetensors, of octavo, of octavo when strict (`accept` or
`reject`), the file in hexadecimal. Where octavo differs the row says so below (ONLY_THEIRS).
Columns of the second: name, tensors (`hex of the name|type|sizes`, parted by spaces; their bytes
count up from 0), metadata (`hex of the key=hex of the value`, parted by spaces), the file.
"""

import ctypes
import pathlib
import struct

import safetensors

HERE = pathlib.Path(__file__).resolve().parent

# What the Rust reader takes because of how it is made, and no document or writer knows.
ONLY_THEIRS = {"tensor_as_array", "dtype_as_object"}
STRICT_REJECTS = {
    "duplicate_tensor",
    "duplicate_tensor_other_size",
    "duplicate_metadata_key",
    "duplicate_unknown_field",
    "duplicate_key_in_unknown_field",
    "leading_space",
    "leading_tab",
    "leading_newline",
    "duplicate_escaped",
}
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
WRITABLE = {  # what safetensors calls them when it writes
    "BOOL": "bool", "F4": "float4_e2m1fn_x2", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "I16": "int16", "U16": "uint16", "F16": "float16",
    "BF16": "bfloat16", "I32": "int32", "U32": "uint32", "F32": "float32", "C64": "complex64",
    "F64": "float64", "I64": "int64", "U64": "uint64",
}  # fmt: skip


def tensor(dtype="F32", shape="[1]", place="[0,4]", extra=""):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{place}{extra}}}'


def file(header, data=4):
    """A file of this header, and `data` bytes or as many zeros."""
    header = header.encode() if isinstance(header, str) else header
    data = bytes(data) if isinstance(data, int) else data
    return struct.pack("<Q", len(header)) + header + data


def one(data=4, **changes):
    return file(f'{{"a":{tensor(**changes)}}}', data)


def two(first, second, data):
    return file(f'{{"a":{tensor(place=first)},"b":{tensor(place=second)}}}', data)


def unknown(value):
    return one(extra=f',"x":{value}')


def rows():
    good = f'{{"a":{tensor()}}}'
    yield "plain", file(good)
    for dtype, bits in BITS.items():
        yield f"dtype_{dtype}", one(bits, dtype=dtype, shape="[2,4]", place=f"[0,{bits}]")
    # The length.
    yield "empty_file", b""
    yield "seven_bytes", bytes(7)
    yield "length_zero", bytes(8)
    yield "length_zero_with_data", bytes(12)
    yield "length_past_end", struct.pack("<Q", 3) + b"{}"
    yield "length_beyond_limit", struct.pack("<Q", 100_000_001) + b"{}"
    yield "length_at_limit", struct.pack("<Q", 100_000_000) + b"{}"
    yield "length_wraps", struct.pack("<Q", 2**64 - 1) + b"{}"
    yield "length_wraps_by_eight", struct.pack("<Q", 2**64 - 8) + b"{}"
    yield "length_too_short", struct.pack("<Q", len(good) - 1) + good.encode() + bytes(4)
    # The text.
    yield "no_tensors", file("{}", 0)
    yield "no_tensors_but_data", file("{}", 1)
    for name, before in [("space", " "), ("tab", "\t"), ("newline", "\n")]:
        yield f"leading_{name}", file(before + good)
        yield f"trailing_{name}", file(good + before)
    yield "trailing_return", file(good + "\r")
    yield "trailing_form_feed", file(good + "\f")
    yield "trailing_nul", file(good + "\0")
    yield "second_json", file(good + "{}")
    yield "comment", file(good + "//")
    yield "byte_order_mark", file(b"\xef\xbb\xbf" + good.encode())
    yield "spaces_everywhere", file(good.replace(":", " : ").replace(",", " ,\n\t"))
    yield "cut_text", file(good[:-1])
    yield "single_quotes", file(good.replace('"', "'"))
    yield "trailing_comma", file(good[:-1] + ",}")
    yield "missing_comma", file(f'{{"a":{tensor()}"b":{tensor()}}}', 8)
    yield "missing_colon", file(f'{{"a"{tensor()}}}')
    yield "key_not_quoted", file(f"{{a:{tensor()}}}")
    for name, text in [("array", "[]"), ("string", '"a"'), ("number", "1"), ("null", "null")]:
        yield f"top_level_{name}", file(text, 0)
    # Strings.
    for name, key in [
        ("empty", b""), ("escaped_nul", rb"\u0000"), ("path", b"../../etc/passwd"),
        ("two_bytes", "\u00e9".encode()), ("four_bytes", "\U0001f600".encode()),
        ("surrogate_pair", rb"\ud83d\ude00"), ("all_escapes", rb"\"\\\/\b\f\n\r\t\u00E9"),
        ("delete", b"\x7f"), ("lone_high_surrogate", rb"\ud800"),
        ("lone_low_surrogate", rb"\udc00"),
        ("high_then_text", rb"\ud800x"), ("high_then_high", rb"\ud800\ud800"),
        ("high_then_escape", rb"\ud800\n"), ("unknown_escape", rb"\q"), ("short_escape", rb"\u12"),
        ("bad_hex", rb"\u12g4"), ("signed_hex", rb"\u+123"), ("raw_newline", b"\n"),
        ("raw_nul", b"\0"), ("latin_1", b"\xe9"), ("cut_utf8", b"\xf0\x9f\x98"),
        ("overlong_2", b"\xc0\xaf"), ("overlong_3", b"\xe0\x80\xaf"),
        ("overlong_4", b"\xf0\x80\x80\xaf"),
        ("utf8_surrogate", b"\xed\xa0\x80"), ("beyond_unicode", b"\xf4\x90\x80\x80"),
        ("continuation", b"\x80"), ("html", b"<script>alert(1)</script>"), ("long", b"n" * 300),
    ]:  # fmt: skip
        yield f"name_{name}", file(b'{"' + key + b'":' + tensor().encode() + b"}")
    # Metadata.
    for name, value in [
        ("empty", "{}"), ("null", "null"), ("text", '{"format":"pt"}'), ("number", '{"a":1}'),
        ("nested", '{"a":{"b":"c"}}'), ("null_inside", '{"a":null}'),
        ("list_inside", '{"a":["b"]}'), ("list", "[]"), ("string", '"a"'), ("true", "true"),
    ]:  # fmt: skip
        yield f"metadata_{name}", file(f'{{"__metadata__":{value}}}', 0)
    yield "metadata_last", file(f'{{"a":{tensor()},"__metadata__":{{"b":"c"}}}}')
    yield "metadata_escaped", file(r'{"__metadat\u0061__":{"b":"c"}}', 0)
    yield "metadata_as_tensor", file(f'{{"__metadata__":{tensor()}}}')
    yield "duplicate_metadata", file('{"__metadata__":{},"__metadata__":{}}', 0)
    yield "duplicate_null_metadata", file('{"__metadata__":null,"__metadata__":{}}', 0)
    yield "duplicate_metadata_key", file('{"__metadata__":{"a":"1","a":"2"}}', 0)
    # Fields.
    yield "key_order", file('{"a":{"data_offsets":[0,4],"shape":[1],"dtype":"F32"}}')
    yield "escaped_field", file(r'{"a":{"dty\u0070e":"\u004632","shape":[1],"data_offsets":[0,4]}}')
    yield "no_dtype", file('{"a":{"shape":[1],"data_offsets":[0,4]}}')
    yield "no_shape", file('{"a":{"dtype":"F32","data_offsets":[0,4]}}')
    yield "no_place", file('{"a":{"dtype":"F32","shape":[1]}}')
    yield "duplicate_dtype", one(extra=',"dtype":"F32"')
    yield "duplicate_shape", one(extra=',"shape":[1]')
    yield "duplicate_place", one(extra=',"data_offsets":[0,4]')
    for name, value in [("null", "null"), ("number", "3"), ("string", '"F32"'), ("empty", "{}")]:
        yield f"tensor_{name}", file(f'{{"a":{value}}}', 0)
    yield "tensor_as_array", file('{"a":["F32",[1],[0,4]]}')
    yield "dtype_as_object", file('{"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}')
    for name, dtype in [
        ("lower_case", "f32"),
        ("unknown", "F128"),
        ("empty", ""),
        ("space", "F32 "),
    ]:
        yield f"dtype_{name}", one(dtype=dtype)
    yield "dtype_number", file('{"a":{"dtype":1,"shape":[1],"data_offsets":[0,4]}}')
    yield "duplicate_tensor", file(f'{{"a":{tensor()},"a":{tensor()}}}')
    big = tensor(shape="[2]", place="[0,8]")
    yield "duplicate_tensor_other_size", file(f'{{"a":{big},"a":{tensor()}}}')
    yield "duplicate_tensor_last_is_wrong", file(f'{{"a":{tensor()},"a":{big}}}')
    yield "duplicate_tensor_first_is_no_tensor", file(f'{{"a":3,"a":{tensor()}}}')
    yield "duplicate_escaped", file(rf'{{"a":{tensor()},"\u0061":{tensor()}}}')
    # Unknown fields.
    for name, value in [
        ("words", '[true,false,null,{},[],"",-1.5e+3,0.0,1E5]'), ("cut_word", "tru"),
        ("nan", "NaN"), ("infinity", "Infinity"), ("no_fraction", "1."), ("no_integer", ".5"),
        ("no_exponent", "1e"), ("minus", "-"), ("plus", "+1"), ("leading_zero", "-01"),
        ("hex", "0x1"), ("nothing", ""),
        ("huge", "1e999"), ("minus_huge", "-1e309"), ("tiny", "1e-999"),
        ("zero_huge", "0e99999999999"), ("many_nines", "9" * 400), ("nines", "9" * 300),
        ("small_times_large", "0." + "0" * 400 + "1e500"),
        ("small", "0." + "0" * 400 + "1"), ("large_times_small", "1" + "0" * 400 + "e-300"),
        ("lone_surrogate", r'"\udc00"'), ("raw_tab", '"\t"'), ("trailing_comma", "[1,]"),
        ("object_comma", '{"a":1,}'), ("closed_wrong", "[1}"), ("number_key", "{1:1}"),
    ]:  # fmt: skip
        yield f"unknown_{name}", unknown(value)
    yield "duplicate_unknown_field", one(extra=',"x":1,"x":2')
    yield "duplicate_key_in_unknown_field", unknown('[{"y":1,"y":2}]')
    for depth in (125, 126, 200):  # and two around it
        yield f"arrays_{depth}_deep", unknown("[" * depth + "]" * depth)
        yield f"objects_{depth}_deep", unknown('{"":' * depth + "1" + "}" * depth)
    yield "never_closed", unknown("[" * 3000)
    # Numbers.
    for name, number in [
        ("minus", "-1"), ("minus_zero", "-0"), ("float", "1.0"), ("exponent", "1e0"),
        ("string", '"1"'), ("null", "null"), ("true", "true"), ("leading_zero", "01"),
        ("nested", "[1]"),
        ("2_to_64", "18446744073709551616"), ("2_to_64_plus_1", "18446744073709551617"),
    ]:  # fmt: skip
        yield f"size_{name}", one(shape=f"[{number}]")
        yield f"begin_{name}", one(place=f"[{number},4]")
        yield f"end_{name}", one(place=f"[0,{number}]")
    for name, place in [("none", "[]"), ("one", "[0]"), ("three", "[0,4,8]"), ("null", "null"),
                        ("number", "4"), ("object", '{"0":0,"1":4}')]:  # fmt: skip
        yield f"place_of_{name}", one(place=place)
    for name, shape in [("null", "null"), ("number", "1"), ("string", '"1"'), ("object", "{}")]:
        yield f"shape_{name}", one(shape=shape)
    # Shapes.
    yield "scalar", one(shape="[]")
    yield "zero_size", one(0, shape="[3,0]", place="[0,0]")
    yield "many_sizes", one(shape="[" + "1," * 5000 + "1]")
    yield "wraps_to_zero", one(0, shape="[4294967296,4294967296]", place="[0,0]")
    yield "overflow_before_zero", one(0, shape="[9223372036854775808,2,0]", place="[0,0]")
    yield "overflow_behind_zero", one(0, shape="[0,9223372036854775808,2]", place="[0,0]")
    yield "largest_size_behind_zero", one(0, shape="[0,18446744073709551615]", place="[0,0]")
    yield "bits_wrap", one(0, dtype="F4", shape="[4611686018427387904]", place="[0,0]")
    yield "bits_wrap_f32", one(0, shape="[576460752303423488]", place="[0,0]")
    yield (
        "bits_fit_but_not_file",
        one(shape="[576460752303423487]", place="[0,2305843009213693948]"),
    )
    yield "f4_odd", one(1, dtype="F4", shape="[1]", place="[0,1]")
    yield "f4_odd_rows", one(3, dtype="F4", shape="[2,3]", place="[0,3]")
    for count in (1, 2, 3, 4, 8):
        size = count * 6 // 8
        yield f"f6_{count}", one(size, dtype="F6_E2M3", shape=f"[{count}]", place=f"[0,{size}]")
    yield "bool_is_2", one(b"\2", dtype="BOOL", place="[0,1]")
    # Places.
    yield "two_tensors", two("[0,4]", "[4,8]", 8)
    yield "two_tensors_in_other_order", two("[4,8]", "[0,4]", 8)
    yield "overlap", two("[0,4]", "[2,6]", 6)
    yield "same_place", two("[0,4]", "[0,4]", 4)
    yield "hole_at_start", one(8, place="[4,8]")
    yield "hole_between", two("[0,4]", "[8,12]", 12)
    yield "hole_at_end", one(8)
    yield "one_byte_behind", one(5)
    yield "cut_by_one", one(3)
    yield "no_data", one(0)
    yield "backwards", one(4, place="[4,0]")
    yield "backwards_and_far", one(0, shape="[0]", place="[18446744073709551615,0]")
    yield "too_small_place", one(3, place="[0,3]")
    yield "too_large_place", one(5, place="[0,5]")
    yield "far_place", one(place="[18446744073709551612,18446744073709551615]")
    empty = tensor(shape="[0]", place="[4,4]")
    yield "empty_between", file(f'{{"a":{tensor()},"e":{empty},"b":{tensor(place="[4,8]")}}}', 8)
    yield "two_empty_at_one_place", file(f'{{"a":{tensor()},"e":{empty},"f":{empty}}}')
    yield "empty_beyond", file(f'{{"a":{tensor()},"e":{tensor(shape="[0]", place="[5,5]")}}}')
    odd = tensor("U8", place="[0,1]")
    yield "f32_not_aligned", file(f'{{"o":{odd},"a":{tensor(place="[1,5]")}}}', 5)


def verdict(content):
    try:
        safetensors.deserialize(content)
    except safetensors.SafetensorError:
        return "reject"
    return "accept"


def write_verdicts():
    lines, names = [], set()
    for name, content in rows():
        assert name not in names, name
        names.add(name)
        theirs = verdict(content)
        ours = "reject" if name in ONLY_THEIRS else theirs
        assert name not in ONLY_THEIRS | STRICT_REJECTS or theirs == "accept", name
        strict = "reject" if name in STRICT_REJECTS else ours
        lines.append("\t".join([name, theirs, ours, strict, content.hex()]))
    assert names >= ONLY_THEIRS | STRICT_REJECTS
    (HERE / "safetensors.tsv").write_text("\n".join(lines) + "\n")
    print(len(lines), "files,", sum("\treject" in line for line in lines), "rejected")


def written(tensors, metadata):
    specs, alive = {}, []
    for name, dtype, shape in tensors:
        count = 1
        for size in shape:
            count *= size
        data = ctypes.create_string_buffer(bytes(i & 255 for i in range(count * BITS[dtype] // 8)))
        alive.append(data)
        storage = [*shape[:-1], shape[-1] // 2] if dtype == "F4" else shape
        specs[name] = safetensors.TensorSpec(
            dtype=WRITABLE[dtype], shape=storage, data_ptr=ctypes.addressof(data),
            data_len=count * BITS[dtype] // 8,
        )  # fmt: skip
    return bytes(safetensors.serialize(specs, metadata))


def write_written():
    cases = {
        "nothing": ([], {}),
        "metadata_alone": ([], {"format": "pt"}),
        "by_name": ([(name, "F32", [2]) for name in ("b", "a", "B", "a.b", "a10", "a2", "")], {}),
        "every_type": (
            [(f"t{i}", dtype, [2, 4]) for i, dtype in enumerate(WRITABLE)],
            {"format": "pt"},
        ),
        "empty_ones": (
            [("z", "U64", [0]), ("b", "F32", [0, 3]), ("a", "U8", []), ("c", "F32", [0])],
            {},
        ),
        "escapes": ([('q"\\/\b\f\n\r\t\x01\x1f\x7f\u00e9\U0001f600', "U8", [3])], {"\n": '"\x00'}),
    }
    for length in range(1, 9):  # every padding
        cases[f"name_of_{length}"] = ([("n" * length, "BF16", [length])], {})
    lines = []
    for name, (tensors, metadata) in cases.items():
        planned = " ".join(
            f"{tensor_name.encode().hex()}|{dtype}|{','.join(map(str, shape))}"
            for tensor_name, dtype, shape in tensors
        )
        texts = " ".join(f"{k.encode().hex()}={v.encode().hex()}" for k, v in metadata.items())
        content = written(tensors, metadata or None)
        lines.append("\t".join([name, planned, texts, content.hex()]))
    (HERE / "safetensors_written.tsv").write_text("\n".join(lines) + "\n")
    print(len(lines), "written files")


if __name__ == "__main__":
    write_verdicts()
    write_written()
