"""octavo quantize: the numbers it prints are those of the definitions, its options reach the
library, its limits end with code 3, and its plot shows the tensor. The arithmetic is checked
against NumPy and ml_dtypes, which share no code with it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import ml_dtypes
import numpy as np
import pytest

from tests.cli.test_plot import SVG, check_geometry, texts

RECIPES = [
    "fp8",
    "fp8-channel",
    "fp8-1x128",
    "fp8-block",
    "mxfp8",
    "mxfp6",
    "mxfp4",
    "mxint8",
    "int8-channel",
    "int4",
    "nvfp4",
]


def some_values(shape=(12, 70), seed=3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(np.float32)
    x[5] *= 1000  # an outlier row
    return x


def per_tensor_fp8(x):
    scale = np.float32(np.abs(x).max() / np.float32(448))
    codes = (x * (np.float32(1) / scale)).astype(ml_dtypes.float8_e4m3fn)
    return (codes.astype(np.float32) * scale).astype(np.float64), scale


def mxfp8(x):
    """Tiles of 32 along the last dimension, the least power of two that saturates nothing."""
    y = np.zeros(x.shape)
    for row in range(x.shape[0]):
        for col in range(0, x.shape[1], 32):
            tile = x[row, col : col + 32].astype(np.float64)
            scale = 2.0 ** np.ceil(np.log2(np.abs(tile).max() / 448))
            y[row, col : col + 32] = (tile / scale).astype(ml_dtypes.float8_e4m3fn) * scale
    return y


def numpy_metrics(x, y):
    x, error = x.astype(np.float64), np.abs(x.astype(np.float64) - y)
    return {
        "mse": np.mean(error**2),
        "relative_l2": np.linalg.norm(error) / np.linalg.norm(x),
        "sqnr": 10 * np.log10(np.sum(x**2) / np.sum(error**2)),
        "cosine": np.sum(x * y) / np.linalg.norm(x) / np.linalg.norm(y),
        "max_abs": error.max(),
        "max_relative": (error / np.abs(x)).max(),
        "amax": np.abs(x).max(),
        "flushed": np.mean(y == 0),
        "flushed_count": np.sum(y == 0),
        "saturated": 0,
    }


def measured(octavo, *options):
    result = octavo.good("quantize", "x.npy", *options, "--json")
    assert result.err == ""
    return result.json


@pytest.mark.parametrize("recipe", ["fp8", "mxfp8"])
def test_metrics_are_those_of_numpy(octavo, recipe):
    x = some_values()
    octavo.save("x.npy", x)
    y = mxfp8(x) if recipe == "mxfp8" else per_tensor_fp8(x)[0]
    got = measured(octavo, "--recipe", recipe)
    for name, wanted in numpy_metrics(x, y).items():
        assert got["metrics"][name] == pytest.approx(wanted, rel=1e-12), name
    assert got["metrics"]["effective_bits"] == pytest.approx((got["metrics"]["sqnr"] - 1.76) / 6.02)
    error2 = (x.astype(np.float64) - y) ** 2
    worst = got["rows"]["worst"][0]
    assert worst["index"] == np.argmax(error2.sum(1)) == 5 and worst["slice"] == "[5]"
    assert worst["error_share"] == pytest.approx(error2[5].sum() / error2.sum(), rel=1e-12)
    values = got["histogram"]
    exponents = np.floor(np.log2(np.abs(x)))
    for i, count in enumerate(values["values"]):
        assert count == np.sum(exponents == values["first_exponent"] + i)
    assert sum(values["values"]) + values["zeros"] == sum(values["codes"]) == x.size


def test_scale_and_storage(octavo):
    x = some_values()
    octavo.save("x.npy", x)
    got = measured(octavo, "--recipe", "fp8")
    scale = float(per_tensor_fp8(x)[1])
    assert got["scales"] == {"count": 1, "least": scale, "most": scale, "nan": 0, "zero": 0}
    assert got["nbytes"] == x.size + 4 and got["bits_per_value"] == 8 * (x.size + 4) / x.size
    got = measured(octavo, "--recipe", "mxfp4")
    assert got["tiles"]["count"] == 36 and got["nbytes"] == x.size // 2 + 36


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe(octavo, recipe):
    octavo.save("x.npy", some_values())
    got = measured(octavo, "--recipe", recipe)
    assert got["scaling"]["description"].startswith(recipe + ":")
    assert 0.9 < got["metrics"]["cosine"] <= 1
    table = octavo.good("quantize", "x.npy", "--recipe", recipe)
    assert recipe in octavo.good("quantize", "--help").out
    assert table.out.startswith("x.npy (12, 70) float32\n" + recipe) and table.err == ""
    assert f"{got['metrics']['cosine']:.8f}" in table.out and got["verdict"] in table.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--format e3m4 --tile row --scale bf16", "e3m4, tile 1xall, scale bf16"),
        ("--format e5m2 --tile column", "e5m2, tile allx1, scale f32"),
        ("--format e4m3fn --tile allx16 --scale e8m0", "e4m3fn, tile allx16, scale e8m0 rceil"),
        ("--recipe mxfp8 --scale-rule floor", "mxfp8: e4m3fn, tile 1x32, scale e8m0 floor"),
        ("--recipe mxfp8 --scale f32", "e4m3fn, tile 1x32, scale f32"),
        ("--recipe mxfp8:e5m2", "mxfp8: e5m2, tile 1x32, scale e8m0 rceil"),
        ("--recipe mxfp4 --tile 3x7", "e2m1fn, tile 3x7, scale e8m0 rceil"),
        ("--recipe nvfp4 --arith te", "e2m1fn, tile 1x16, scale e4m3+f32, arith te"),
        ("--recipe fp8 --margin 2", "e4m3fn, tile allxall, scale f32, margin 2"),
        ("--recipe fp8 --scale-policy mse", "e4m3fn, tile allxall, scale f32, mse"),
        ("--recipe mxfp8 --axis 0", "e4m3fn, tile 1x32, scale e8m0 rceil, axis 0"),
        (
            "--recipe fp8-channel --scale-policy percentile:90",
            "e4m3fn, tile 1xall, scale f32, percentile 90",
        ),
    ],
)
def test_options_make_the_scaling(octavo, options, expected):
    octavo.save("x.npy", some_values())
    assert measured(octavo, *options.split())["scaling"]["description"] == expected


def test_options_change_the_result(octavo):
    octavo.save("x.npy", some_values())
    plain = measured(octavo, "--recipe", "fp8")
    seen = [plain["histogram"]["codes"]]
    for more in (
        "--rounding toward_zero",
        "--rounding stochastic --seed 1",
        "--rounding stochastic --seed 2",
        "--rounding stochastic --stochastic-bits 1",
        "--margin 1",
        "--scale-policy percentile:90",
        "--tile row",
        "--format e5m2",
    ):
        seen.append(measured(octavo, "--recipe", "fp8", *more.split())["histogram"]["codes"])
        assert seen[-1] not in seen[:-1], more
    saturated = measured(octavo, "--recipe", "fp8", "--scale-policy", "percentile:90")
    assert saturated["metrics"]["saturated"] > 0.05
    assert "beyond the range" in saturated["verdict"]


def test_non_finite(octavo):
    x = some_values((6, 64))
    x[0, 3], x[1, 40] = np.nan, np.inf
    octavo.save("x.npy", x)
    got = measured(octavo, "--recipe", "mxfp4")
    assert got["metrics"]["input"] == {"nan": 1, "inf": 1}
    assert got["metrics"]["result"] == {"nan": 64, "inf": 0} and got["scales"]["nan"] == 2
    assert "64 results are not finite" in got["verdict"]
    refused = octavo("quantize", "x.npy", "--recipe", "mxfp4", "--non-finite", "saturate")
    refused.refused(1, "holds NaN", "--nan zero")
    got = measured(octavo, "--recipe", "mxfp4", "--non-finite", "saturate", "--nan", "zero")
    assert got["metrics"]["result"] == {"nan": 0, "inf": 0}
    # What no metric counts must not pass a limit.
    limited = octavo("quantize", "x.npy", "--recipe", "mxfp4", "--fail-if", "mse>1e30")
    assert limited.code == 3 and "NaN or Inf" in limited.err


def test_exact_has_no_noise(octavo):
    octavo.save("x.npy", np.float32([[1, 2, 3, 4]]))
    got = measured(octavo, "--recipe", "mxfp8", "--fail-if", "sqnr<200")
    assert got["metrics"]["sqnr"] is None and got["metrics"]["mse"] == 0
    assert got["verdict"].startswith("exact")
    assert "infinite" in octavo.good("quantize", "x.npy", "--recipe", "mxfp8").out


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (700,), (2, 3, 40), (1, 1, 1, 1)])
@pytest.mark.parametrize("recipe", ["fp8", "fp8-block", "nvfp4"])
def test_shapes(octavo, shape, recipe):
    x = np.asarray(np.random.default_rng(0).standard_normal(shape), np.float32)
    octavo.save("x.npy", x)
    got = measured(octavo, "--recipe", recipe)
    assert got["shape"] == list(shape) and got["elements"] == x.size
    octavo.good("quantize", "x.npy", "--recipe", recipe, "--plot", "p.svg")
    check_geometry(ET.parse(octavo.folder / "p.svg").getroot())


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_orders(octavo, dtype, order):
    x = np.asarray(some_values().astype(dtype), order=order)
    octavo.save("x.npy", x)
    more = ["--from", "bfloat16"] if dtype is ml_dtypes.bfloat16 else []
    if more:
        octavo("quantize", "x.npy", "--recipe", "fp8").refused(2, "V2", "--from bfloat16")
    got = measured(octavo, "--recipe", "mxfp8", *more)
    assert got["dtype"] == np.dtype(dtype).name
    wanted = numpy_metrics(x, mxfp8(x.astype(np.float64)))
    assert got["metrics"]["mse"] == pytest.approx(wanted["mse"], rel=1e-12)
    assert got["metrics"]["max_abs"] == wanted["max_abs"]


def test_threads_change_nothing(octavo):
    octavo.save("x.npy", some_values((300, 1000)))
    results = []
    for threads in (1, 2, 3):
        got = measured(octavo, "--recipe", "nvfp4", "--threads", threads)
        results.append({key: got[key] for key in ("metrics", "rows", "tiles", "histogram")})
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("cosine<0.999", 3),
        ("cosine<0.5", 0),
        ("cosine <= 1", 3),
        ("sqnr>1", 3),
        ("sqnr<1", 0),
        ("relative_l2>=0.5", 0),
        ("mse>1e-9", 3),
        ("max_abs>0", 3),
        ("saturated>0", 0),
        ("saturated>=0", 3),
        ("flushed>0.01", 3),
        ("flushed>1", 0),
    ],
)
def test_limits(octavo, limit, code):
    octavo.save("x.npy", some_values())
    result = octavo("quantize", "x.npy", "--recipe", "mxfp4", "--fail-if", limit, "--json")
    assert result.code == code
    assert result.json["fail_if"][0]["missed"] == (code == 3)
    assert ("limit missed" in result.err) == (code == 3)


def test_several_limits(octavo):
    octavo.save("x.npy", some_values())
    limits = ["--fail-if", "cosine<0.1", "--fail-if", "mse>0", "--fail-if", "sqnr<1000"]
    result = octavo("quantize", "x.npy", "--recipe", "mxfp4", *limits, "--json")
    assert result.code == 3 and result.err.count("\n") == 2
    assert [one["missed"] for one in result.json["fail_if"]] == [False, True, True]


def test_verdicts(octavo):
    rng = np.random.default_rng(0)
    even = rng.standard_normal((64, 256)).astype(np.float32)
    octavo.save("x.npy", even)
    assert "spread evenly" in measured(octavo, "--recipe", "mxfp8")["verdict"]
    spiky = even.copy()
    spiky[17] *= 100
    octavo.save("x.npy", spiky)
    verdict = measured(octavo, "--recipe", "mxfp8")["verdict"]
    assert re.search(r"% of the squared error is in \d of 512 tiles, the worst at \[17, ", verdict)
    tiny = even.copy()
    tiny[0, 0] = 1e6
    octavo.save("x.npy", tiny)
    assert "became zero beside larger" in measured(octavo, "--recipe", "fp8")["verdict"]


@pytest.mark.parametrize("recipe", ["fp8", "mxfp8", "nvfp4"])
def test_picture(octavo, recipe):
    x = some_values((100, 300))
    octavo.save("x.npy", x)
    result = octavo.good("quantize", "x.npy", "--recipe", recipe, "--plot", "p.svg")
    assert "wrote p.svg" in result.err and "SQNR" in result.out
    root = ET.parse(octavo.folder / "p.svg").getroot()
    check_geometry(root)
    labels = texts(root)
    for label in ("x.npy", "Values by magnitude", "Codes in use", "Where the error is"):
        assert label in labels
    got = measured(octavo, "--recipe", recipe)
    assert got["verdict"] in labels and f"{got['metrics']['sqnr']:.2f} dB" in labels
    # The outlier row has nearly all of the error, and the picture says so where it is.
    tips = [rect.find(f"{SVG}title").text for rect in root.iter(f"{SVG}rect") if len(rect)]
    rows = [tip for tip in tips if tip.startswith("row")]
    worst = max(rows, key=lambda tip: float(re.search(r"([\d.e-]+) % of the squared", tip)[1]))
    first, last = re.match(r"rows? (\d+)(?: to (\d+))?", worst).groups()
    assert int(first) <= 5 <= int(last or first)
    assert (octavo.folder / "p.svg").stat().st_size < 1_000_000


def test_output_holds_codes_and_scales(octavo):
    x = some_values()
    octavo.save("x.npy", x)
    options = ["quantize", "x.npy", "--recipe", "fp8", "-o", "q.safetensors"]
    result = octavo.good(*options, "--fail-if", "cosine<0.1")
    assert "wrote q.safetensors: x, x.scales" in result.err
    data = (octavo.folder / "q.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    part = {name: body[slice(*header[name]["data_offsets"])] for name in ("x", "x.scales")}
    scale = np.frombuffer(part["x.scales"], np.float32)
    codes = np.frombuffer(part["x"], np.uint8).view(ml_dtypes.float8_e4m3fn).reshape(x.shape)
    assert np.array_equal(codes.astype(np.float32) * scale, per_tensor_fp8(x)[0])
    (octavo.folder / "q.safetensors").unlink()
    assert octavo(*options, "--fail-if", "cosine<1").code == 3
    assert octavo.files() == {"x.npy"}


def test_output_is_another_file(octavo):
    octavo.save("x.npy", some_values())
    for option in ("-o", "--plot"):
        octavo("quantize", "x.npy", "--recipe", "fp8", option, "./x.npy").refused(1, "same file")
        octavo("quantize", "x.npy", "--recipe", "fp8", option, "-").refused(2, "stdout")


def test_picture_is_whole_or_not_there(octavo):
    octavo.save("x.npy", some_values())
    result = octavo("quantize", "x.npy", "--recipe", "fp8", "--plot", "nope/p.svg")
    result.refused(1, "nope/p.svg")
    assert octavo.files() == {"x.npy"}


def test_an_array_larger_than_memory_is_refused(octavo):
    header = np.lib.format.header_data_from_array_1_0(np.zeros(0, np.float32))
    with (octavo.folder / "x.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header | {"shape": (1 << 41,)})
        file.truncate(file.tell() + (4 << 41))  # 8 TiB of hole
    octavo("quantize", "x.npy", "--recipe", "fp8").refused(1, "of memory", "are free")
