"""Several processes with a plan: octavo.quantize_checkpoint(plan=...)."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from pathlib import Path

import pytest

import octavo as ov
import octavo.ray as octavo_ray
from octavo.ray._quantize import of_the_whole

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cli"))
import tiny_model  # noqa: E402


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def one(plan, out, rank):
    ov.quantize_checkpoint(None, out, plan=plan, rank=rank, world=2, threads=1)


@pytest.fixture
def model(tmp_path):
    return tiny_model.llama(tmp_path / "model", shards=3)


@pytest.fixture
def plan(model, tmp_path):
    dry = ov.quantize_checkpoint(model, recipe="nvfp4", shard_bytes="200K", dry_run=True)
    assert json.loads(dry.json())["octavo_plan"] == 1
    (tmp_path / "plan.json").write_text(dry.json())
    return tmp_path / "plan.json"


def test_two_processes(model, plan, tmp_path):
    ov.quantize_checkpoint(model, tmp_path / "one", recipe="nvfp4", shard_bytes="200K")
    start = multiprocessing.get_context("spawn")
    running = [start.Process(target=one, args=(plan, tmp_path / "out", i)) for i in range(2)]
    for process in running:
        process.start()
    for process in running:
        process.join(100)
    assert [process.exitcode for process in running] == [0, 0]
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
    again = ov.quantize_checkpoint(None, tmp_path / "out", plan=plan, rank=1, world=2)
    assert again.was_complete and again.finished_by_another and again.tensors == []
    with pytest.raises(ov.LimitMissed, match="sqnr<99"):
        ov.quantize_checkpoint(None, tmp_path / "out", plan=plan, fail_if="sqnr<99")


def test_an_empty_name_is_no_plan(model, tmp_path):
    with pytest.raises(ValueError, match="got plan=''"):
        ov.quantize_checkpoint(model, tmp_path / "out", plan="")
    with pytest.raises(ValueError, match="got plan=''"):
        octavo_ray.quantize(model, tmp_path / "out", plan="")
    assert not (tmp_path / "out").exists()


def test_a_task_that_judged_no_limits_is_not_asked():
    """Of tasks on a Ray cluster: the one that finished the folder may have been lost."""
    busy = {"finished": False, "json": "{}"}
    found = busy | {"missed": [["sqnr<99", "a weight"]]}
    assert of_the_whole([busy, found], ["sqnr<99"])["missed"] == found["missed"]
    finished = {"finished": True, "json": "{}", "html": "page", "missed": []}
    assert of_the_whole([found, finished], ["sqnr<99"]) == finished
    assert of_the_whole([busy], [])["missed"] == []
    with pytest.raises(RuntimeError, match="fail_if was not judged"):
        of_the_whole([busy, busy], ["sqnr<99"])


def test_the_report_of_the_last_one(plan, tmp_path, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    report = ov.quantize_checkpoint(None, os.fspath(tmp_path / "out"), plan=plan)
    assert not report.finished_by_another and report.files_written > 1 and report.tensors


def test_arguments(model, plan, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="recipe, which the plan says"):
        ov.quantize_checkpoint(None, out, "fp8", plan=plan)
    with pytest.raises(ValueError, match="tile, which the plan says"):
        ov.quantize_checkpoint(None, out, tile=64, plan=plan)
    with pytest.raises(ValueError, match="without a plan"):
        ov.quantize_checkpoint(model, out, rank=0)
    with pytest.raises(TypeError, match="no model"):
        ov.quantize_checkpoint(None, out)
    with pytest.raises(ValueError, match="0 to 1"):
        ov.quantize_checkpoint(None, out, plan=plan, rank=2, world=2)
    with pytest.raises(TypeError, match="takeover_after"):
        ov.quantize_checkpoint(None, out, plan=plan, takeover_after="soon")
    with pytest.raises(FileNotFoundError):
        ov.quantize_checkpoint(None, out, plan=tmp_path / "none.json")
    assert not out.exists()
