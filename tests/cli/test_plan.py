"""octavo plan, and processes that share one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402
from shared_plan import SHARDED, contents, shared, started  # noqa: E402


def test_a_plan_says_what_dry_run_says(octavo, model):
    plan = octavo.good("plan", "model", "--json", *SHARDED).json
    assert plan == octavo.good("quantize", "model", "--dry-run", "--json", *SHARDED).json
    assert plan["octavo_plan"] == 1 and plan["options"]["recipe"] == "nvfp4"
    assert [shard["file"] for shard in plan["shards"]] == plan["files"]
    assert any(shard["bytes_shared"] > 0 for shard in plan["shards"])
    text = octavo.good("plan", "model", *SHARDED).out
    assert text == octavo.good("quantize", "model", "--dry-run", *SHARDED).out


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_processes_give_the_bytes_of_one(octavo, plan, whole, world):
    running = [shared(octavo, rank, world) for rank in range(world)]
    said = [one.communicate(timeout=100) for one in running]
    assert [one.returncode for one in running] == [0] * world, said
    assert contents(octavo.folder / "out") == whole
    assert not (octavo.folder / "out" / "octavo-work").exists()
    assert sum("and finished" in err for _, err in said) == 1
    assert octavo.good("quantize", "--plan", "plan.json", "-o", "out").err.count("complete") == 1


def test_a_plan_with_blocks_of_another_size(octavo, model):
    words = ("model", "--recipe", "fp8-block", "--tile", 64, "--target", "octavo")
    octavo.good("plan", *words, "-o", "plan.json")
    octavo.good("quantize", "--plan", "plan.json", "-o", "out")
    octavo.good("quantize", *words, "-o", "one")
    assert contents(octavo.folder / "out") == contents(octavo.folder / "one")


def test_ranks_are_found(octavo, plan, whole):
    slurm = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    words = ("quantize", "--plan", "plan.json", "-o")
    assert "rank 1 of 2" in octavo.good(*words, "out", env=slurm).err
    assert contents(octavo.folder / "out") == whole
    given = octavo.good(*words, "out2", "--rank", 0, "--world", 1, env=slurm)
    assert "rank 0 of 1" in given.err
    index = {"JOB_COMPLETION_INDEX": "2"}
    assert "rank 2 of 3" in octavo.good(*words, "out3", "--world", 3, env=index).err
    octavo(*words, "out4", env={"PMI_RANK": "x", "PMI_SIZE": "2"}).refused(2, "PMI_RANK")
    octavo(*words, "out4", "--world", 3, "--rank", 3).refused(2, "0 to 2")
    octavo(*words, "out4", "--rank", 1).refused(2, "--world")
    assert not (octavo.folder / "out4").exists()


def test_rank_in_an_allocation_of_slurm(octavo, plan):
    """A batch script exports RANK for all that it starts; only a step or torchrun says which."""
    words = ("quantize", "--plan", "plan.json", "-o")
    env = {"SLURM_JOB_ID": "7", "RANK": "3", "WORLD_SIZE": "4"}
    assert "rank 0 of 1" in octavo.good(*words, "out", env=env).err
    env["TORCHELASTIC_RUN_ID"] = "x"
    assert "rank 3 of 4" in octavo.good(*words, "out2", env=env).err


def test_one_is_killed_and_one_comes_late(octavo, plan, whole):
    first = shared(octavo, 0, 2, "--takeover-after", 0.5)
    deadline = time.monotonic() + 60
    while not (octavo.folder / "out" / "octavo-work").exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    first.send_signal(signal.SIGKILL)
    first.wait()
    late = shared(octavo, 1, 2, "--takeover-after", 0.5)
    _, said = late.communicate(timeout=100)
    assert late.returncode == 0, said
    assert contents(octavo.folder / "out") == whole


def test_the_last_one_reports_and_keeps_limits(octavo, plan):
    words = ("quantize", "--plan", "plan.json", "-o", "out", "--report", "r.html")
    result = octavo(*words, "--fail-if", "sqnr<99", "--json")
    assert result.code == 3 and (octavo.folder / "r.html").exists()
    assert result.json["files_written"] > 3 and len(result.json["tensors"]) > 10


def test_limits_are_judged_again_when_it_is_complete(octavo, plan):
    """A gate that the run missed does not open by running it again."""
    words = ("quantize", "--plan", "plan.json", "-o", "out")
    assert octavo(*words, "--fail-if", "sqnr<99").code == 3
    before = contents(octavo.folder / "out")
    again = octavo(*words, "--rank", 1, "--world", 2, "--fail-if", "sqnr<99")
    assert again.code == 3 and "limit missed: sqnr of" in again.err, again
    octavo.good(*words, "--fail-if", "sqnr<1")
    octavo.good(*words, "--report", "r.html")  # a note, as the same command may be started again
    octavo("quantize", "model", "-o", "one", *SHARDED, "--fail-if", "cosine<2")
    assert (
        octavo("quantize", "model", "-o", "one", *SHARDED, "--resume", "--fail-if", "cosine<2").code
        == 3
    )
    assert contents(octavo.folder / "out") == before == contents(octavo.folder / "one")


def test_a_folder_of_another_model_is_not_complete(octavo, plan, model):
    words = ("quantize", "--plan", "plan.json", "-o", "out")
    octavo.good(*words)
    shard = model / "model-00002-of-00003.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    octavo(*words).refused(1, "made from another source")


def test_what_is_missing_is_said_or_written_again(octavo, plan):
    words = ("quantize", "--plan", "plan.json", "-o", "out")
    octavo.good(*words)
    out = octavo.folder / "out"
    whole = contents(out)
    (out / "tokenizer.json").unlink()
    assert "tokenizer.json" in octavo.good(*words).err
    assert contents(out) == whole
    lost = sorted(out.glob("*.safetensors"))[0]
    lost.unlink()
    octavo(*words).refused(1, lost.name, "not there any more")


def test_what_the_plan_says_is_not_said_again(octavo, plan, model):
    words = ("quantize", "--plan", "plan.json", "-o", "out")
    for option in (
        ("--recipe", "mxfp8"),
        ("--no-share",),
        ("--dry-run",),
        ("--target", "octavo"),
        ("--tile", "32"),
        ("--non-finite", "clamp"),
        ("--sweep", "recipe=mxfp8,mxfp4"),
    ):
        octavo(*words, *option).refused(2, option[0], "the plan says")
    octavo("quantize", "model", "-o", "out", "--rank", 0).refused(2, "--rank", "--plan")
    octavo("quantize").refused(2, "IN", "required")
    octavo("convert", "--plan", "plan.json", "-o", "out").refused(1, "a plan to quantize")
    octavo(*words[:3], "-o", "out.safetensors").refused(1, "folder")
    octavo("quantize", "--plan", "none.json", "-o", "out").refused(1, "none.json")


def test_another_model_or_run_is_refused(octavo, plan):
    running = shared(octavo, 0, 2)
    running.communicate(timeout=100)
    other = octavo.folder / "other"
    tiny_model.llama(other, shards=2)
    words = ("quantize", "other", "--plan", "plan.json", "-o", "out2")
    octavo(*words).refused(1, "another model")
    octavo.good("plan", "other", "-o", "other.json")
    octavo("quantize", "--plan", "other.json", "-o", "out").refused(1, "other options")


def test_simulation(octavo, plan):
    shown = octavo.good("plan", "plan.json", "--simulate", "1,2,64").out
    assert shown.count("\n") == 5 and "slowest/mean" in shown
    runs = octavo.good("plan", "model", *SHARDED, "--simulate", "1,2", "--json").json["simulated"]
    assert runs[0]["balance"] == 1 and runs[1]["most_bytes"] < runs[0]["most_bytes"]
    octavo("plan", "plan.json", "--simulate", "0").refused(2, "--simulate")
    octavo("plan", "plan.json").refused(2, "--simulate")
    for option in (("--recipe", "mxfp8"), ("--shard-size", "1G"), ("--convert",)):
        octavo("plan", "plan.json", "--simulate", 2, *option).refused(2, option[0], "the plan")
    octavo("plan", "model", "--convert", "--recipe", "mxfp8").refused(2, "--recipe", "--convert")
    octavo("plan", "model", "-o", "plan.txt").refused(2, ".json")
    octavo("plan", "none", "-o", "x.json").refused(1, "none")
    octavo("plan", "model", "--recipe", "mxpf8").refused(2, "mxfp8")


def test_a_plan_of_a_conversion(octavo, model):
    octavo.good("quantize", "model", "-o", "fp8", "--recipe", "fp8-block")
    octavo.good("plan", "fp8", "-o", "c.json", "--convert", "--target", "deepseek")
    octavo.good("convert", "--plan", "c.json", "-o", "a", "--rank", 1, "--world", 2)
    octavo.good("convert", "fp8", "-o", "b", "--target", "deepseek")
    assert contents(octavo.folder / "a") == contents(octavo.folder / "b")
    octavo("convert", "--plan", "c.json", "-o", "x", "--target", "octavo").refused(2, "--target")


def test_a_quantized_model_goes_straight_to_the_target(octavo, model):
    octavo.good("quantize", "model", "-o", "fp8", "--recipe", "fp8-block", "--target", "deepseek")
    said = octavo.good("quantize", "fp8", "-o", "nvfp4", "--recipe", "nvfp4")
    assert "the model is quantized (deepseek" in said.out
    octavo.good("dequantize", "fp8", "-o", "bf16")
    octavo.good("quantize", "bf16", "-o", "by-copy", "--recipe", "nvfp4")
    straight, copy = contents(octavo.folder / "nvfp4"), contents(octavo.folder / "by-copy")
    for name in straight:
        if name.endswith((".safetensors", ".index.json")):
            assert straight[name] == copy[name], name
    octavo.good("plan", "fp8", "-o", "plan.json", "--recipe", "nvfp4")
    octavo.good("quantize", "--plan", "plan.json", "-o", "shared")
    assert contents(octavo.folder / "shared") == straight


def test_open_mpi(octavo, plan, whole):
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun (Debian: apt-get install openmpi-bin)")
    allow = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    words = [octavo.path, "quantize", "--plan", "plan.json", "-o", "out"]
    done = subprocess.run(
        [mpirun, *allow, "--oversubscribe", "-n", "3", *map(str, words)],
        cwd=octavo.folder,
        env=octavo.environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank} of 3" in done.stderr for rank in range(3)), done.stderr
    assert contents(octavo.folder / "out") == whole


def test_torchrun(octavo, plan, whole):
    beside = Path(sys.executable).parent
    torchrun = shutil.which("torchrun", path=f"{beside}:{os.environ['PATH']}")
    if torchrun is None:
        pytest.skip("no torchrun (PyPI: torch)")
    words = [octavo.path, "quantize", "--plan", "plan.json", "-o", "out"]
    done = subprocess.run(
        [torchrun, "--nproc-per-node", "2", "--no-python", *map(str, words)],
        cwd=octavo.folder,
        env=octavo.environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank} of 2" in done.stderr for rank in range(2)), done.stderr
    assert contents(octavo.folder / "out") == whole


def test_progress_and_json_of_a_part(octavo, plan):
    running = [shared(octavo, rank, 2, "--json") for rank in range(2)]
    said = [json.loads(one.communicate(timeout=100)[0]) for one in running]
    assert sorted(one.get("finished_by_another", False) for one in said) == [False, True]


def test_two_runs_in_one_folder_by_mistake(octavo, plan, whole):
    """Of two plans whose processes begin at once, one makes the folder, and every process of the
    other says why it does not."""
    octavo.good("plan", "model", "-o", "other.json", "--recipe", "mxfp8", "--shard-size", "200K")
    octavo.good("quantize", "--plan", "other.json", "-o", "whole2")
    wholes = {"plan.json": whole, "other.json": contents(octavo.folder / "whole2")}
    winners = set()
    for round in range(6):
        out = octavo.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        names = ["plan.json", "other.json"] if round % 2 else ["other.json", "plan.json"]
        running = [
            (
                name,
                started(
                    octavo,
                    *("quantize", "--plan", name, "-o", "out", "--threads", 1),
                    *("--rank", rank, "--world", 3),
                ),
            )
            for rank in range(3)
            for name in names
        ]
        ended = [(name, one.communicate(timeout=100)[1], one.returncode) for name, one in running]
        good = {name for name, _, code in ended if code == 0}
        assert len(good) == 1, ended
        (winner,) = good
        for name, said, code in ended:
            assert code == (0 if name == winner else 1), (name, said)
            if name != winner:
                # A folder that is being made otherwise, or that was by the time it looked.
                assert "another plan" in said or "other options" in said, said
                assert said.count("octavo: [") == 1
        assert contents(out) == wholes[winner]
        assert not (out / "octavo-work").exists()
        winners.add(winner)
    assert winners


def test_a_model_of_another_program_is_not_a_finished_run(octavo, model):
    octavo.good("plan", "model", "-o", "plan.json", *SHARDED)
    work = octavo.folder / "other" / "octavo-work"
    work.mkdir(parents=True)
    (work / "note").write_text("kept")
    (octavo.folder / "other" / "config.json").write_text("{}")
    octavo("quantize", "--plan", "plan.json", "-o", "other").refused(1, "not empty")
    assert (work / "note").read_text() == "kept"


def test_a_plan_does_not_replace_the_models_files(octavo, model):
    before = (model / "config.json").read_bytes()
    octavo("plan", "model", "-o", "model/config.json").refused(2, "in the model's folder")
    assert (model / "config.json").read_bytes() == before


def test_a_plan_replaces_no_file_that_is_no_plan(octavo, model):
    """A model that is one file has its config beside it, and so do others."""
    alone = octavo.folder / "alone"
    alone.mkdir()
    tiny_model.write(alone / "model.safetensors", tiny_model.llama_weights())
    shutil.copy(model / "config.json", alone / "config.json")
    (octavo.folder / "mine.json").write_text('{"mine": 1}')
    (model / "sub").mkdir()
    before = contents(alone)
    one = ("plan", "alone/model.safetensors", "--recipe", "mxfp8", "-o")
    octavo(*one, "alone/config.json").refused(2, "config.json")
    octavo(*one, "mine.json").refused(2, "is there already")
    octavo("plan", "model", "-o", "mine.json").refused(2, "is there already")
    octavo("plan", "model", "-o", "model/sub/plan.json").refused(2, "in the model's folder")
    (alone / "config.json").unlink()
    for name in ("config.json", "model.safetensors.index.json", "hf_quant_config.json"):
        octavo(*one, f"alone/{name}").refused(2, "a file that a model has")
    shutil.copy(model / "config.json", alone / "config.json")
    assert contents(alone) == before
    octavo.good(*one, "alone/plan.json")
    octavo.good(*one, "alone/plan.json")  # a plan may be made again
    assert (octavo.folder / "mine.json").read_text() == '{"mine": 1}'


def test_formats_chosen_by_values_are_for_one_process(octavo, model):
    words = ("plan", "model", "--recipe", "fp8", "--target", "octavo", "--format", "auto")
    octavo(*words, "-o", "plan.json").refused(2, "--format auto", "one process")
    assert not (octavo.folder / "plan.json").exists()
