"""Whole checkpoints from Python; the command line's tests have the broken ones."""

from __future__ import annotations

import _thread
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import octavo as ov

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cli"))
import tiny_model  # noqa: E402


@pytest.fixture
def model(tmp_path):
    return tiny_model.llama(tmp_path / "model")


@pytest.fixture
def octavo_json():
    """What the command line prints with --json."""

    def run(*arguments):
        command = [program(), *map(str, arguments), "--json"]
        return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)

    return run


def program():
    if given := os.environ.get("OCTAVO_CLI"):
        return given
    root = Path(__file__).resolve().parents[2]
    places = [Path(sys.executable).parent / "octavo", root / "build/release/bin/octavo"]
    return str(next(place for place in places if place.exists()))


def test_quantize_and_inspect(model, tmp_path):
    seen = []
    report = ov.quantize_checkpoint(
        model, tmp_path / "out", recipe="mxfp8", progress=lambda *now: seen.append(now)
    )
    assert report.bytes_after < report.bytes_before and report.bits_per_weight == 8.25
    measured = [tensor for tensor in report.tensors if "metrics" in tensor]
    assert len(measured) == 14
    assert json.loads(report.json())["worst"] == report.worst
    assert report.html().startswith("<!DOCTYPE html>")
    assert "14 of 21 tensors quantized" in repr(report)
    done, total, seconds, name = seen[-1]
    assert done == total and seconds > 0 and isinstance(name, str)
    with pytest.raises(AttributeError):
        _ = report.nothing


def test_print_shows_the_worst_tensors(model, tmp_path):
    report = ov.quantize_checkpoint(model, tmp_path / "out", recipe="mxfp8")
    first, *rows, last = str(report).splitlines()
    assert first == repr(report) and last == "  and 9 more, no worse: see .tensors"
    by_name = {one["name"]: one["metrics"] for one in report.tensors if "metrics" in one}
    least = sorted(metrics["sqnr"] for metrics in by_name.values())[:5]
    assert [f"  {name!r}" for name in report.worst[:5]] == [row.split(":")[0] for row in rows]
    for row, sqnr in zip(rows, least, strict=True):
        assert f": SQNR {sqnr:.1f} dB, cosine 0.999" in row
    plan = ov.quantize_checkpoint(model, dry_run=True)
    assert str(plan) == repr(plan)
    same = ov.compare_checkpoints(model, model)
    assert "off by up to 0" in str(same) and "and 16 more" in str(same)


def test_every_verb(model, tmp_path):
    ov.quantize_checkpoint(model, tmp_path / "ct", recipe="nvfp4", exclude=["o_proj"])
    assert ov.verify_checkpoint(tmp_path / "ct", "vllm") == []
    seen = ov.inspect(tmp_path / "ct")
    assert seen["dialect"] == "compressed-tensors"
    assert sum(tensor["quantized"] for tensor in seen["tensors"]) == 12
    done = ov.convert_checkpoint(tmp_path / "ct", tmp_path / "mo", "modelopt")
    assert done["dialect"] == "compressed-tensors" and done["weights"] == 12
    ov.dequantize_checkpoint(tmp_path / "mo", tmp_path / "plain", "float32")
    compared = ov.compare_checkpoints(tmp_path / "mo", tmp_path / "plain")
    assert all(t["metrics"]["max_abs"] == 0 for t in compared.tensors if "metrics" in t)
    assert ov.inspect(model)["dialect"] is None


def test_findings_have_names(model, tmp_path):
    ov.quantize_checkpoint(model, tmp_path / "out", recipe="mxfp8")
    findings = ov.verify_checkpoint(tmp_path / "out", ["sglang"])
    assert [finding.loader for finding in findings] == ["sglang"]
    assert findings[0].severity == "error" and findings[0].rule == "support"


def test_verify_beside_the_model(model, tmp_path):
    out = tmp_path / "out"
    ov.quantize_checkpoint(model, out)
    assert ov.verify_checkpoint(out, against=model) == []
    assert ov.verify_checkpoint(out).good and ov.verify_checkpoint(out, "octavo").good
    other = tiny_model.llama(tmp_path / "other", tiny_model.llama_weights(seed=1))
    findings = ov.verify_checkpoint(out, against=other)
    assert not findings.good and {one.rule for one in findings} == {"against"}
    assert all(one.silent and one.loader == "all" for one in findings)


def test_the_recipe_is_chosen_by_the_model(model, tmp_path):
    assert ov.quantize_checkpoint(model, dry_run=True).recipe == "fp8-block"
    narrow = tiny_model.llama(tmp_path / "narrow", tiny_model.llama_weights(width=192))
    plan = ov.quantize_checkpoint(narrow, dry_run=True)
    assert plan.recipe == "fp8-channel" and "was chosen for this model" in plan.notes[0]


def test_mistakes(model, tmp_path):
    with pytest.raises(ValueError, match="mxfp8"):
        ov.quantize_checkpoint(model, tmp_path / "out", recipe="mxpf8")
    with pytest.raises(ValueError, match="compressed-tensors"):
        ov.quantize_checkpoint(model, tmp_path / "out", target="vllm")
    with pytest.raises(TypeError, match="exclude"):
        ov.quantize_checkpoint(model, tmp_path / "out", exclude="o_proj")
    with pytest.raises(ValueError, match="scale_rounding"):
        ov.quantize_checkpoint(model, tmp_path / "out", scale_rounding="f32")
    with pytest.raises(ValueError, match="nonfinite"):
        ov.quantize_checkpoint(model, tmp_path / "out", nonfinite="ignore")
    with pytest.raises(ValueError, match="dtype"):
        ov.dequantize_checkpoint(model, tmp_path / "out", "e4m3fn")
    with pytest.raises(OSError):
        ov.inspect(tmp_path / "nowhere")
    assert not (tmp_path / "out").exists()


def test_an_exception_of_the_callback_stops(model, tmp_path):
    def stop(*_):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        ov.quantize_checkpoint(model, tmp_path / "out", recipe="mxfp8", progress=stop)
    assert not (tmp_path / "out" / "config.json").exists()
    ov.quantize_checkpoint(model, tmp_path / "out", recipe="mxfp8", resume=True)
    assert (tmp_path / "out" / "config.json").exists()


def test_complete_work_is_left_as_it_is(model, tmp_path):
    """As on the command line: nothing to do is no error, different options are one."""
    made = ov.quantize_checkpoint(model, tmp_path / "out", recipe="mxfp8")
    assert not made.was_complete
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    again = ov.quantize_checkpoint(model, tmp_path / "out", recipe="mxfp8", resume=True)
    assert again.was_complete and again.bytes_after == made.bytes_after
    assert [t["name"] for t in again.tensors] == [t["name"] for t in made.tensors]
    assert not any("metrics" in tensor for tensor in again.tensors)
    assert again.html().startswith("<!DOCTYPE html>")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    with pytest.raises(OSError, match="other options"):
        ov.quantize_checkpoint(model, tmp_path / "out", recipe="nvfp4", resume=True)
    for _ in range(2):
        done = ov.convert_checkpoint(tmp_path / "out", tmp_path / "ds", "deepseek", resume=True)
        plain = ov.dequantize_checkpoint(tmp_path / "out", tmp_path / "plain", resume=True)
    assert done["was_complete"] and plain["was_complete"]


def test_ctrl_c_stops(model, tmp_path):
    """Seen by the main thread, between two pieces of work."""

    def interrupt(*_):
        _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        ov.quantize_checkpoint(
            model, tmp_path / "out", recipe="mxfp8", threads=1, progress=interrupt
        )


def test_sizes_as_the_command_line_has_them(model, tmp_path):
    ov.quantize_checkpoint(
        model, tmp_path / "out", recipe="mxfp8", max_memory="64M", shard_bytes="1 GiB"
    )
    for wrong, kind in (
        ("lots", ValueError),
        (-1, ValueError),
        (2.5, TypeError),
        (None, TypeError),
    ):
        with pytest.raises(kind, match=r"\[quantize_checkpoint\] got max_memory=.*256M"):
            ov.quantize_checkpoint(model, tmp_path / "no", recipe="mxfp8", max_memory=wrong)
    assert not (tmp_path / "no").exists()


def test_a_wrong_type_is_named(model, tmp_path):
    """No signature of the bindings is shown: the message has the argument."""
    out = tmp_path / "out"
    for name, call in {
        "model=b'": lambda: ov.quantize_checkpoint(b"model", out),
        "out=3": lambda: ov.quantize_checkpoint(model, 3),
        "recipe=3": lambda: ov.quantize_checkpoint(model, out, recipe=3),
        "target=7": lambda: ov.quantize_checkpoint(model, out, target=7),
        "arith=['": lambda: ov.quantize_checkpoint(model, out, arith=["te"]),
        "share='no'": lambda: ov.quantize_checkpoint(model, out, share="no"),
        "threads='2'": lambda: ov.quantize_checkpoint(model, out, threads="2"),
        "in include": lambda: ov.quantize_checkpoint(model, out, include=[3]),
        "recipe_for=['": lambda: ov.quantize_checkpoint(model, out, recipe_for=["a=fp8"]),
        "in recipe_for": lambda: ov.quantize_checkpoint(model, out, recipe_for={"a": 3}),
        "progress=1": lambda: ov.quantize_checkpoint(model, out, progress=1),
        "a=b'": lambda: ov.compare_checkpoints(b"a", model),
        "dtype=['": lambda: ov.dequantize_checkpoint(model, out, ["bfloat16"]),
        "target=3": lambda: ov.convert_checkpoint(model, out, 3),
        "loaders=5": lambda: ov.verify_checkpoint(model, 5),
        "tensor_parallel=1.5": lambda: ov.verify_checkpoint(model, tensor_parallel=1.5),
        "model=None": lambda: ov.inspect(None),
    }.items():
        with pytest.raises(TypeError) as told:
            call()
        message = str(told.value)
        assert message.startswith("[") and name in message and "nanobind" not in message, message
        assert "incompatible function arguments" not in message
    assert not out.exists()


def test_numbers_out_of_range_are_named(model, tmp_path):
    """With what may be given; no signature of the bindings."""
    out = tmp_path / "out"
    for name, call in {
        "threads=1000000000000; expected an int from 0 to": lambda: ov.quantize_checkpoint(
            model, out, threads=10**12
        ),
        "threads=-1; expected an int from 0 to": lambda: ov.compare_checkpoints(
            model, model, threads=-1
        ),
        "tensor_parallel=1099511627776; expected an int from 1 to 4096": lambda: (
            ov.verify_checkpoint(model, tensor_parallel=2**40)
        ),
        "tensor_parallel=0; expected": lambda: ov.verify_checkpoint(model, tensor_parallel=0),
        "max_memory=18446744073709551616; expected": lambda: ov.convert_checkpoint(
            model, out, "octavo", max_memory=2**64
        ),
        "shard_bytes='99999999999999999999T'; expected": lambda: ov.quantize_checkpoint(
            model, out, shard_bytes="99999999999999999999T"
        ),
    }.items():
        with pytest.raises(ValueError, match=r"^\[") as told:
            call()
        assert name in str(told.value), told.value
    assert not out.exists()


def test_names_that_no_system_has(model, tmp_path):
    """A NUL would end the name: another folder would be made."""
    short = tmp_path / "short"
    for name, call in {
        "out=": lambda: ov.quantize_checkpoint(model, f"{short}\0er"),
        "model=": lambda: ov.inspect(f"{model}\0"),
        "a=": lambda: ov.compare_checkpoints("\udcff", model),
        "recipe=": lambda: ov.quantize_checkpoint(model, short, recipe="\ud800"),
        "an entry of include=": lambda: ov.quantize_checkpoint(model, short, include=["\ud800"]),
        "an entry of recipe_for=": lambda: ov.quantize_checkpoint(
            model, short, recipe_for={"a": "\0"}
        ),
    }.items():
        with pytest.raises(ValueError, match=r"^\[") as told:
            call()
        assert name in str(told.value), told.value
    assert not short.exists()


def test_dry_run_is_the_plan_of_the_command_line(model, tmp_path):
    plan = ov.quantize_checkpoint(model, recipe="mxfp8", exclude=["o_proj"], dry_run=True)
    assert plan.verb == "plan" and plan.recipe == "mxfp8" and plan.files == ["model.safetensors"]
    made = ov.quantize_checkpoint(model, tmp_path / "out", recipe="mxfp8", exclude=["o_proj"])
    assert plan.bytes_after == made.bytes_after and plan.bits_per_weight == made.bits_per_weight
    assert {t["name"]: t["quantized"] for t in plan.tensors} == {
        t["name"]: t["quantized"] for t in made.tensors
    }
    assert "12 of 21 tensors quantized" in repr(plan) and "metrics" not in plan.tensors[0]
    with pytest.raises(ValueError, match="plan"):
        plan.html()
    with pytest.raises(TypeError, match="got no out"):
        ov.quantize_checkpoint(model)
    with pytest.raises(ValueError, match="mxfp8"):
        ov.quantize_checkpoint(model, recipe="mxpf8", dry_run=True)


def test_a_missed_limit_is_raised_when_all_is_written(model, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ov.LimitMissed, match=r"sqnr of 'model.* is .*others \(sqnr<90\)") as told:
        ov.quantize_checkpoint(model, out, recipe="mxfp8", fail_if=["cosine<0.5", "sqnr<90"])
    assert told.value.report.worst and (out / "config.json").exists()
    assert ov.compare_checkpoints(model, out, fail_if="cosine<0.5").worst
    with pytest.raises(ov.LimitMissed):
        ov.compare_checkpoints(model, out, fail_if=["max_abs>0"])
    for wrong in ("cosin<1", "cosine", "cosine<x"):
        with pytest.raises(ValueError, match=r"\[quantize_checkpoint\] fail_if: got 'cosin"):
            ov.quantize_checkpoint(model, tmp_path / "no", fail_if=[wrong])
    assert not (tmp_path / "no").exists()
    # Of a complete folder by what its config.json keeps.
    again = {"recipe": "mxfp8", "resume": True}
    assert ov.quantize_checkpoint(model, out, **again, fail_if=["cosine<0.5"]).was_complete
    with pytest.raises(ov.LimitMissed, match=r"sqnr of 'model.* is .* \(sqnr<90\)"):
        ov.quantize_checkpoint(model, out, **again, fail_if=["sqnr<90"])


def test_python_says_what_json_says(octavo_json, model, tmp_path):
    out = tmp_path / "out"
    ov.quantize_checkpoint(model, out, recipe="mxfp4")
    assert ov.inspect(out) == octavo_json("inspect", out)
    with_numbers = ov.inspect(out, stats=True)
    assert with_numbers == octavo_json("inspect", out, "--stats")
    weight = next(t for t in with_numbers["tensors"] if t["quantized"])
    assert weight["statistics"]["nan"] == 0 and len(weight["stored_as"]) == 2
    assert weight["type"] == "mxfp4: e2m1fn, tile 1x32, scale e8m0 even"
    said = octavo_json("verify", out, "--for", "vllm,sglang")
    seen = ov.verify_checkpoint(out, ["vllm", "sglang"])
    for key in ("good", "quantized", "dialect", "weights", "checked", "loaders"):
        assert getattr(seen, key) == said[key], key
    assert [vars(finding) for finding in seen] == said["findings"]
    plan = octavo_json("quantize", model, "--recipe", "mxfp4", "--dry-run")
    assert json.loads(ov.quantize_checkpoint(model, recipe="mxfp4", dry_run=True).json()) == plan
