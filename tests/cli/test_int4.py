"""octavo quantize --recipe int4: compressed-tensors' pack-quantized beside NumPy's own arithmetic,
and beside compressed-tensors itself where that is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

DOWN = "model.layers.0.mlp.down_proj"
TYPES = {"I32": "<i4", "I64": "<i8", "BF16": "<u2", "F32": "<f4", "U8": "u1", "F8_E4M3": "u1"}


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    content = (folder / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(
            content[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]],
            TYPES[entry["dtype"]],
        ).reshape(entry["shape"])
        for name, entry in header.items()
    }


def nearest_bf16(values: np.ndarray) -> np.ndarray:
    raw = np.ascontiguousarray(values, "<f4").view("<u4").astype(np.uint64)
    return ((raw + 0x7FFF + (raw >> 16 & 1)) >> 16).astype("<u2")


def widened(bf16: np.ndarray) -> np.ndarray:
    return (bf16.astype("<u4") << 16).view("<f4")


def numbers_of(words: np.ndarray) -> np.ndarray:
    """The numbers of int32 words: eight nibbles each, the lowest first, 8 added."""
    nibbles = words.view("<u4")[..., None] >> (4 * np.arange(8, dtype="<u4")) & 15
    return nibbles.reshape(len(words), -1).astype(np.int64) - 8


def grouped(values: np.ndarray, group: int) -> np.ndarray:
    return values.reshape(len(values), -1, group)


def rounded(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Numbers of values [rows, groups, group] under scales [rows, groups], all in float32."""
    inverse = np.float32(1) / scales
    return np.clip(np.rint(values * inverse[..., None]), -8, 7).astype(np.int64)


@pytest.fixture
def weights(octavo):
    made = tiny_model.llama_weights(layers=1)
    tiny_model.llama(octavo.folder / "model", made)
    return made


@pytest.mark.parametrize("group", [32, 64, 128])
def test_bytes_are_those_of_numpy(octavo, weights, group):
    tile = () if group == 128 else ("--tile", group)
    octavo.good("quantize", "model", "-o", "out", "--recipe", "int4", *tile)
    made = tensors_of(octavo.folder / "out")
    seen = 0
    for name, bits in weights.items():
        module = name.removesuffix(".weight")
        if "_proj" not in name:
            assert (made[name] == bits).all()
            continue
        values = grouped(widened(bits), group)
        amax = np.abs(values).max(-1)
        scales = nearest_bf16(amax / np.float32(7))
        assert (made[f"{module}.weight_scale"] == scales).all(), name
        numbers = rounded(values, widened(scales)).reshape(bits.shape)
        assert (numbers_of(made[f"{module}.weight_packed"]) == numbers).all(), name
        assert made[f"{module}.weight_shape"].tolist() == list(bits.shape)
        assert made[f"{module}.weight_shape"].dtype == np.int64
        assert name not in made
        seen += 1
    assert seen == 7
    config = json.loads((octavo.folder / "out/config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "compressed-tensors" and config["format"] == "pack-quantized"
    assert config["ignore"] == ["lm_head"]
    assert config["config_groups"]["group_0"] == {
        "targets": ["Linear"],
        "format": "pack-quantized",
        "weights": {
            "num_bits": 4,
            "type": "int",
            "symmetric": True,
            "strategy": "group",
            "dynamic": False,
            "group_size": group,
        },
        "input_activations": None,
        "output_activations": None,
    }


def test_decoded_again(octavo, weights):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "int4", "--tile", "32")
    octavo.good("dequantize", "out", "-o", "back", "--dtype", "bf16")
    made, back = tensors_of(octavo.folder / "out"), tensors_of(octavo.folder / "back")
    numbers = grouped(numbers_of(made[f"{DOWN}.weight_packed"]).astype(np.float32), 32)
    product = numbers * widened(made[f"{DOWN}.weight_scale"])[..., None]
    wanted = nearest_bf16(product.reshape(weights[f"{DOWN}.weight"].shape))
    assert (back[f"{DOWN}.weight"] == wanted).all()


# The candidates of docs/numerics/scales.md: the amax, and 6 to 27 sixteenths of it.
SIXTEENTHS = [16, *(i for i in range(6, 28) if i != 16)]


@pytest.mark.parametrize("policy", ["mse", "wmse"])
def test_the_search_takes_the_best_candidate(octavo, weights, policy):
    words = ()
    square = np.ones(512)
    if policy == "wmse":
        square = np.random.default_rng(3).random(512) ** 4 + 1e-3
        write_statistics(octavo.folder / "stats.safetensors", weights, square)
        words = ("--statistics", "stats.safetensors")
    base = ("quantize", "model", "--recipe", "int4", "--tile", "64", "--include", r"down_proj")
    octavo.good(*base, "-o", "out", "--scale-policy", policy, *words)
    made = tensors_of(octavo.folder / "out")
    values = grouped(widened(weights[f"{DOWN}.weight"]), 64)
    weight = square.astype(np.float32).astype(np.float64).reshape(1, -1, 64)
    amax = np.abs(values).max(-1)
    errors, scales = [], []
    for sixteenths in SIXTEENTHS:
        part = amax * np.float32(sixteenths / 16)
        scales.append(nearest_bf16(part / np.float32(7)))
        scale = widened(scales[-1])
        u = (values * (np.float32(1) / scale)[..., None]).astype(np.float64)
        e = u - rounded(values, scale)
        errors.append((e * e * weight).sum(-1) * scale.astype(np.float64) ** 2)
    errors, scales = np.array(errors), np.array(scales)
    got = made[f"{DOWN}.weight_scale"]
    is_one = scales == got[None]
    assert is_one.any(0).all()
    chosen = np.where(is_one, errors, np.inf).min(0)
    # Sums of 64 squares in f32: sixteen lanes of four, then three levels, and the weight's product:
    # at most nine roundings of 2^-24, twice because two candidates are compared.
    assert (chosen <= errors.min(0) * (1 + 18 * 2**-24)).all()
    # It matters: of groups of 64 normal values nearly all gain.
    assert (chosen < errors[0]).mean() > 0.8
    numbers = rounded(values, widened(got)).reshape(weights[f"{DOWN}.weight"].shape)
    assert (numbers_of(made[f"{DOWN}.weight_packed"]) == numbers).all()


def write_statistics(path: Path, weights: dict, square: np.ndarray) -> None:
    """As docs/numerics/statistics.md has them, for every Linear; of any model."""
    tensors = {}
    for name, bits in weights.items():
        if "_proj" in name:
            module, width = name.removesuffix(".weight"), bits.shape[1]
            seen = square if width == len(square) else np.ones(width)
            tensors[f"{module}.amax"] = np.ones(width, np.float32)
            tensors[f"{module}.mean_square"] = seen.astype(np.float32)
            tensors[f"{module}.rows"] = np.array([100], np.int64)
    said = {"format": "octavo.statistics", "version": "1", "model": "model", "tokens": "100"}
    said |= {"model_fingerprint": "0" * 16, "texts": "[]", "made_by": "a test"}
    tiny_model.write(path, tensors, said)


def test_verify_and_its_friends(octavo, weights):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "int4", "--report", "report.html")
    assert "int4" in (octavo.folder / "report.html").read_text()
    for loader in ("vllm", "sglang", "transformers"):
        octavo.good("verify", "out", "--for", loader)
    said = octavo("verify", "out", "--for", "trtllm")
    assert said.code == 1 and "INT4" in said.out
    octavo.good("verify", "out", "--against", "model", "--for", "vllm")
    assert "int4" in octavo.good("inspect", "out").out
    compared = octavo.good("compare", "model", "out", "--json").json
    assert compared is not None
    planned = octavo.good("plan", "model", "-o", "plan.json", "--recipe", "int4")
    assert planned.code == 0
    octavo.good("quantize", "--plan", "plan.json", "-o", "shared")
    one, other = (octavo.folder / f"{name}/model.safetensors" for name in ("out", "shared"))
    assert one.read_bytes() == other.read_bytes()


def test_a_damaged_group_is_found(octavo, weights):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "int4")
    path = octavo.folder / "out/model.safetensors"
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    entry = json.loads(content[8:start])[f"{DOWN}.weight_scale"]
    at = start + entry["data_offsets"][0] + 2 * 5
    content[at : at + 2] = b"\0\0"
    path.write_bytes(content)
    said = octavo("verify", "out", "--for", "vllm")
    assert said.code == 1 and f"{DOWN}.weight_scale" in said.out and "zero" in said.out


def test_to_the_dialect_octavo_and_back(octavo, weights):
    octavo.good("quantize", "model", "-o", "out", "--recipe", "int4", "--tile", "64")
    octavo.good("convert", "out", "-o", "own", "--target", "octavo")
    octavo.good("convert", "own", "-o", "back", "--target", "compressed-tensors")
    first, last = tensors_of(octavo.folder / "out"), tensors_of(octavo.folder / "back")
    assert first.keys() == last.keys()
    for name, tensor in first.items():
        assert (tensor == last[name]).all(), name
    names = ("out", "back")
    configs = [json.loads((octavo.folder / n / "config.json").read_text()) for n in names]
    assert configs[0]["quantization_config"] == configs[1]["quantization_config"]


def test_beside_another_recipe(octavo, weights):
    words = ("--recipe", "nvfp4", "--recipe-for", "down_proj=int4")
    octavo("quantize", "model", "-o", "out", *words)
    octavo.good("verify", "out", "--for", "vllm")
    said = octavo("verify", "out", "--for", "sglang")
    assert said.code == 1 and "pack-quantized" in said.out
    config = json.loads((octavo.folder / "out/config.json").read_text())["quantization_config"]
    assert config["format"] == "mixed-precision"
    groups = {group["format"]: group["targets"] for group in config["config_groups"].values()}
    assert groups["pack-quantized"] == [DOWN] and len(groups) == 2
    octavo.good("dequantize", "out", "-o", "back", "--dtype", "bf16")


def test_what_it_cannot_be(octavo, weights):
    quantize = ("quantize", "model", "-o", "out", "--recipe", "int4")
    octavo(*quantize, "--tile", "16").refused(1, "groups of 32, 64 or 128")
    octavo(*quantize, "--target", "modelopt").refused(1, "int4")
    octavo(*quantize, "--input-scales", "one").refused(1, "no static input scales")
    assert not (octavo.folder / "out").exists()


def test_compressed_tensors_decodes_the_same(octavo, weights):
    """Its own unpacking, where the tests' environment has it."""
    pytest.importorskip("compressed_tensors")
    torch = pytest.importorskip("torch")
    from compressed_tensors.compressors import pack_quantized

    octavo.good("quantize", "model", "-o", "out", "--recipe", "int4", "--tile", "32")
    made = tensors_of(octavo.folder / "out")
    shape = torch.Size(made[f"{DOWN}.weight_shape"].tolist())
    words = torch.from_numpy(made[f"{DOWN}.weight_packed"].copy())
    numbers = pack_quantized.unpack_from_int32(words, 4, shape).numpy()
    assert (numbers == numbers_of(made[f"{DOWN}.weight_packed"])).all()
