"""octavo quantize --budget and --fit: errors beside NumPy's, mixes beside all that there are."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402
from test_int4 import nearest_bf16, tensors_of, widened, write_statistics  # noqa: E402

RECIPES = ["nvfp4", "mxfp4", "int4", "mxfp8", "fp8-channel"]


def spread_weights(layers: int = 2) -> dict[str, np.ndarray]:
    """A Llama whose matrices are not alike: some have outliers, some few large channels."""
    weights = tiny_model.llama_weights(layers)
    random = np.random.default_rng(11)
    for i, name in enumerate(sorted(weights)):
        if "_proj" not in name:
            continue
        values = widened(weights[name]).copy()
        if i % 3 == 0:
            values *= np.exp2(random.integers(-3, 3, values.shape[1])).astype(np.float32)
        if i % 3 == 1:
            values[random.random(values.shape) < 0.002] *= 40
        weights[name] = tiny_model.bf16(values)
    return weights


@pytest.fixture
def weights(octavo):
    made = spread_weights()
    tiny_model.llama(octavo.folder / "model", made)
    return made


def bytes_of_tensors(folder: Path) -> int:
    return sum(tensor.nbytes for tensor in tensors_of(folder).values())


def mixed(octavo, *words) -> dict:
    """The report's account of a mix, and a folder that holds what it says."""
    said = octavo("quantize", "model", "-o", "out", *words, "--json")
    assert said.code == 0, said
    return said.json


def part_of(name: str) -> str:
    """What servers load as one."""
    name = re.sub(r"(q|k|v)_proj$", "qkv", name.removesuffix(".weight"))
    return re.sub(r"(gate|up)_proj$", "gate_up", name)


def relative_errors(octavo, weights, recipe, square=None) -> dict[str, float]:
    """Of each part, from a model that is quantized by this recipe and decoded again."""
    octavo.good("quantize", "model", "-o", f"q-{recipe}", "--recipe", recipe)
    octavo.good("dequantize", f"q-{recipe}", "-o", f"d-{recipe}", "--dtype", "f32")
    decoded = tensors_of(octavo.folder / f"d-{recipe}")
    out: dict[str, float] = {}
    for name, bits in weights.items():
        if "_proj" not in name:
            continue
        was, found = widened(bits).astype(np.float64), decoded[name].astype(np.float64)
        weight = np.ones(was.shape[1])
        if square is not None and len(square) == was.shape[1]:
            weight = square.astype(np.float32).astype(np.float64)
        error = ((found - was) ** 2 * weight).sum() / (was**2 * weight).sum()
        out[part_of(name)] = out.get(part_of(name), 0.0) + error
    return out


@pytest.mark.parametrize("with_statistics", [False, True])
def test_errors_are_those_of_numpy(octavo, weights, with_statistics):
    square, words = None, ()
    if with_statistics:
        square = np.random.default_rng(4).random(512) ** 6 + 1e-4
        write_statistics(octavo.folder / "stats.safetensors", weights, square)
        words = ("--statistics", "stats.safetensors")
    mix = mixed(octavo, "--budget", "5bpw", *words)["mix"]
    assert mix["recipes"] == [*RECIPES, "none"]
    assert ("E[x^2]" in mix["measure"]) == with_statistics
    units = {part_of(unit["name"]): unit for unit in mix["units"]}
    for recipe in RECIPES:
        # NVFP4's tensor scale goes through bf16 and back in no file of f32: decoded values are
        # those that were measured. Sums of plain errors are f32's, within 2e-6
        # (docs/numerics/metrics.md); weighted ones f64's.
        for part, error in relative_errors(octavo, weights, recipe, square).items():
            assert units[part]["errors"][recipe] == pytest.approx(error, rel=4e-6), (recipe, part)


def test_the_mix_is_the_best_there_is(octavo, weights):
    """By its own measure, and all mixes of a model with four parts of its own."""
    few = ("--include", r"layers\.[01]\.(self_attn\.(q|k|v)|mlp\.down)_proj")
    names = ("--candidates", "nvfp4,int4,mxfp8")
    octavo.good("plan", "model", "-o", "plan.json", "--budget", "8bpw", *few, *names)
    recipes = ["nvfp4", "int4", "mxfp8"]
    shapes = {"qkv": 3 * 256 * 256, "down_proj": 256 * 512}
    bits = {"nvfp4": 4.5, "int4": 4.125, "mxfp8": 8.25}
    for budget in (4.2, 4.5, 5.0, 6.0, 7.5):
        done = octavo("quantize", "model", "-o", "out", "--budget", budget, *few, *names, "--json")
        mix = done.json["mix"]
        units = mix["units"]
        sizes = [shapes[part_of(unit["name"]).rsplit(".")[-1]] for unit in units]
        allowed = budget * sum(sizes)
        # NVFP4 has a scale of 32 bits for each matrix besides.
        cost = [{r: bits[r] * size for r in recipes} for size in sizes]
        for size, one, unit in zip(sizes, cost, units, strict=True):
            one["nvfp4"] += 32 * (3 if size == shapes["qkv"] else 1)
            one["int4"] += 128 * (3 if size == shapes["qkv"] else 1)  # weight_shape
            assert unit["elements"] == size
        least = min(
            sum(unit["errors"][r] for unit, r in zip(units, chosen, strict=True))
            for chosen in itertools.product(recipes, repeat=len(units))
            if sum(c[r] for c, r in zip(cost, chosen, strict=True)) <= allowed
        )
        steps = [a["error"] - b["error"] for a, b in itertools.pairwise(mix["frontier"])]
        matrices = 8
        taken = sum(unit["error"] for unit in units)
        assert mix["chosen"]["bits_per_weight"] <= budget
        assert taken <= least + max(steps) * matrices * (1 + 1e-9)
        subprocess.run(["rm", "-r", octavo.folder / "out"], check=True)


@pytest.mark.parametrize("budget", [4.3, 4.8, 6.0])
def test_the_output_is_within_the_budget(octavo, weights, budget):
    said = mixed(octavo, "--budget", f"{budget}bpw")
    made = tensors_of(octavo.folder / "out")
    elements = sum(bits.size for name, bits in weights.items() if "_proj" in name)
    own = sum(tensor.nbytes for name, tensor in made.items() if "_proj" in name)
    assert 8 * own / elements <= budget
    assert 8 * own / elements == pytest.approx(said["mix"]["chosen"]["bits_per_weight"])
    # No uniform recipe within as many bytes has less error.
    for uniform in said["mix"]["uniform"]:
        if uniform["bytes"] <= said["mix"]["chosen"]["bytes"]:
            assert uniform["error"] >= said["mix"]["chosen"]["error"]
    octavo.good("verify", "out", "--for", "vllm")


def test_fit(octavo, weights):
    whole = bytes_of_tensors(octavo.folder / "model")
    half = whole * 2 // 5
    said = mixed(octavo, "--fit", str(half))
    assert bytes_of_tensors(octavo.folder / "out") <= half
    assert bytes_of_tensors(octavo.folder / "out") == said["mix"]["chosen"]["bytes"]
    least = octavo("quantize", "model", "-o", "other", "--fit", "1000")
    least.refused(1, "the least that these recipes can is", "bytes")
    number = re.search(r"can is (\d+)", least.err)[1]
    octavo.good("quantize", "model", "-o", "other", "--fit", number)
    assert bytes_of_tensors(octavo.folder / "other") == int(number)


def test_plan_and_processes(octavo, weights):
    words = ("--budget", "5bpw", "--candidates", "nvfp4,mxfp8,none")
    planned = octavo.good("plan", "model", "-o", "plan.json", *words)
    assert "chosen" in planned.out and "nvfp4" in planned.out
    octavo.good("quantize", "model", "-o", "one", *words, "--threads", 1)
    octavo.good("quantize", "--plan", "plan.json", "-o", "two", "--rank", 0, "--world", 1)
    a, b = (octavo.folder / name / "model.safetensors" for name in ("one", "two"))
    assert a.read_bytes() == b.read_bytes()
    octavo("quantize", "--plan", "plan.json", "-o", "x", "--budget", "5").refused(2, "--budget")


def test_plan_with_statistics(octavo, weights):
    write_statistics(octavo.folder / "stats.safetensors", weights, np.linspace(0.01, 4, 512) ** 4)
    words = ("--budget", "4.8", "--statistics", "stats.safetensors")
    octavo.good("plan", "model", "-o", "plan.json", *words)
    octavo.good("quantize", "--plan", "plan.json", "-o", "two")
    octavo.good("quantize", "model", "-o", "one", *words)
    a, b = (octavo.folder / name / "model.safetensors" for name in ("one", "two"))
    assert a.read_bytes() == b.read_bytes()
    more = ("--input-scales", "statistics")
    octavo("plan", "model", "-o", "no.json", *words, *more).refused(2, "--statistics")


def test_killed_and_resumed(octavo):
    tiny_model.llama(octavo.folder / "model", spread_weights(12), shards=4)
    words = ["quantize", "model", "--budget", "5bpw", "--candidates", "nvfp4,mxfp8"]
    octavo.good(*words, "-o", "whole")
    out = octavo.folder / "out"
    process = subprocess.Popen(
        [octavo.path, *words, "-o", "out"],
        cwd=octavo.folder,
        env=octavo.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if out.exists() and list(out.glob("*.safetensors")):
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    octavo.good(*words, "-o", "out", "--resume")
    for file in (octavo.folder / "whole").iterdir():
        assert (out / file.name).read_bytes() == file.read_bytes(), file.name
    octavo("quantize", "model", "--budget", "6", "-o", "out", "--resume").refused(1, "other")


def test_the_page_draws_the_frontier(octavo, weights):
    done = octavo.good(
        "quantize", "model", "-o", "out", "--budget", "5bpw", "--report", "report.html"
    )
    assert "  *: chosen" in done.out and "bits" in done.out
    page = (octavo.folder / "report.html").read_text()
    section = page[page.index('id="mix"') :]
    assert "How recipes were chosen" in section and "<svg" in section
    assert section.count('class="mark line1"') == len(RECIPES)
    assert section.count('class="mark line2"') == 1
    assert "model.<wbr>layers" in section or "model.layers" in section


def test_what_is_refused(octavo, weights):
    quantize = ("quantize", "model", "-o", "out")
    for words, code, why in (
        (("--budget", "5", "--recipe", "nvfp4"), 2, "--candidates"),
        (("--budget", "5", "--fit", "1G"), 2, "one of them"),
        (("--candidates", "nvfp4"), 2, "without --budget or --fit"),
        (("--budget", "five"), 2, "bits per weight, such as 4.5bpw"),
        (("--budget", "5", "--candidates", "nvfp5"), 2, "Did you mean 'nvfp4'?"),
        (("--budget", "3"), 1, "the least that these recipes can is"),
        (("--budget", "5", "--compare", "nvfp4"), 2, "--compare"),
        (("--budget", "5", "--delete-source-shards"), 1, "--delete-source-shards"),
    ):
        octavo(*quantize, *words).refused(code, why)
        assert not (octavo.folder / "out").exists()
    octavo("quantize", "model", "--budget", "5", "--sweep", "tile=32,64").refused(2, "--budget")
    other = {name: bits for name, bits in weights.items() if "layers.1" not in name}
    write_statistics(octavo.folder / "stats.safetensors", other, np.ones(512))
    words = ("--budget", "5", "--statistics", "stats.safetensors")
    octavo(*quantize, *words).refused(1, "nothing about 'model.layers.1.")


def test_nan_is_an_error_here_too(octavo):
    weights = spread_weights(1)
    name = "model.layers.0.mlp.down_proj.weight"
    weights[name][3, 7] = 0x7FC0
    tiny_model.llama(octavo.folder / "model", weights)
    octavo("quantize", "model", "-o", "out", "--budget", "5").refused(1, name)
    assert not (octavo.folder / "out").exists()


def test_gptq_of_a_mix(octavo):
    tiny_model.runnable(octavo.folder / "model", 2, spread_weights(2))
    ids = np.random.default_rng(0).integers(0, 64, 600).tolist()
    (octavo.folder / "ids.json").write_text(json.dumps(ids))
    octavo.good(
        *("quantize", "model", "-o", "out", "--budget", "5bpw", "--candidates", "nvfp4,int4,none"),
        *("--method", "gptq", "--ids", "ids.json", "--window", "128"),
    )
    assert 'method": "gptq' in (octavo.folder / "out/config.json").read_text()


def experts_model(folder: Path) -> None:
    """One layer of a mixture of two experts, of Mixtral's names."""
    random = np.random.default_rng(5)
    tensors = {"model.embed_tokens.weight": tiny_model.bf16(random.standard_normal((64, 256)))}
    shapes = {f"self_attn.{part}_proj": (256, 256) for part in "qkvo"}
    for expert in range(2):
        at = f"block_sparse_moe.experts.{expert}"
        shapes |= {f"{at}.w1": (512, 256), f"{at}.w2": (256, 512), f"{at}.w3": (512, 256)}
    for name, shape in shapes.items():
        values = random.standard_normal(shape, np.float32) * 0.02
        tensors[f"model.layers.0.{name}.weight"] = tiny_model.bf16(values)
    folder.mkdir()
    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 256}))
    tiny_model.write(folder / "model.safetensors", tensors)


def test_recipes_that_are_several(octavo, weights):
    experts_model(octavo.folder / "moe")
    octavo("quantize", "moe", "-o", "experts", "--recipe", "experts-nvfp4")
    made = tensors_of(octavo.folder / "experts")
    packed = {name for name in made if name.endswith("weight_packed")}
    assert len(packed) == 6 and all(".experts." in name for name in packed)
    config = json.loads((octavo.folder / "experts/config.json").read_text())
    ignored = config["quantization_config"]["ignore"]
    assert "model.layers.0.self_attn.q_proj" in ignored and len(ignored) == 5  # and lm_head
    octavo("quantize", "model", "-o", "x", "--recipe", "experts-nvfp4").refused(1, "no experts")
    octavo.good("quantize", "model", "-o", "attention", "--recipe", "attention-fp8")
    octavo.good("verify", "attention", "--for", "vllm")
    made = tensors_of(octavo.folder / "attention")
    for name in made:
        if name.endswith(".weight_scale"):
            packed = name.removesuffix("scale") + "packed" in made
            assert packed == ("self_attn" not in name), name
    compared = octavo.good("quantize", "model", "--compare", "attention-fp8,nvfp4", "--json")
    assert [one["recipe"] for one in compared.json["recipes"]] == ["attention-fp8", "nvfp4"]
    said = octavo("quantize", "model", "-o", "y", "--recipe", "attention-fp9")
    said.refused(2, "Did you mean 'attention-fp8'?")


def test_experts_of_a_layer_are_one_part(octavo):
    experts_model(octavo.folder / "model")
    done = octavo("quantize", "model", "-o", "out", "--budget", "5", "--json").json
    units = {unit["name"]: unit for unit in done["mix"]["units"]}
    assert len(units) == 3
    name = "model.layers.0.block_sparse_moe.experts.0.w1"
    assert units[name]["elements"] == 2 * 3 * 512 * 256
    # Three matrices, each the mean of two experts: normal values have about 1 % of NVFP4's error
    # each, not two.
    assert 0.015 < units[name]["errors"]["nvfp4"] < 0.045
    assert nearest_bf16(np.float32([1])).tolist() == [0x3F80]
