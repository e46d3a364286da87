"""--delete-source-shards: files of the source go when what is made of them is finished."""

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

WORDS = ("--recipe", "nvfp4", "--threads", 1)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def weights(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.safetensors"))


@pytest.fixture
def model(octavo) -> Path:
    """Shards that follow each other: what shares a scale lies together."""
    tensors = tiny_model.llama_weights(layers=12)
    names = list(tensors)
    folder = tiny_model.llama(octavo.folder / "model", tensors)
    (folder / "model.safetensors").unlink()
    where = {}
    for i in range(6):
        part = names[i * len(names) // 6 : (i + 1) * len(names) // 6]
        file = f"model-{i + 1:05}-of-00006.safetensors"
        tiny_model.write(folder / file, {name: tensors[name] for name in part})
        where |= dict.fromkeys(part, file)
    total = sum(array.nbytes for array in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture
def whole(octavo, model) -> dict[str, bytes]:
    octavo.good("quantize", "model", "-o", "whole", *WORDS)
    return contents(octavo.folder / "whole")


def test_weights_are_gone_and_the_rest_is_there(octavo, model, whole):
    octavo.good("quantize", "model", "-o", "out", *WORDS, "--delete-source-shards")
    assert contents(octavo.folder / "out") == whole
    assert not (octavo.folder / "out" / "octavo-source").exists()
    assert weights(model) == []
    assert (model / "config.json").exists() and (model / "tokenizer.json").exists()


def test_killed_in_the_middle(octavo, model, whole):
    """Whatever is left of source and output: the same command with --resume ends with the same
    bytes, and between them all values are there at any time."""
    words = [octavo.path, "quantize", "model", "-o", "out", *map(str, WORDS)]
    words += ["--delete-source-shards", "--resume"]
    out, kills = octavo.folder / "out", 0
    all_weights = weights(model)
    for round in range(40):
        before = len(weights(model))
        running = subprocess.Popen(
            words,
            cwd=octavo.folder,
            env=octavo.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        # Once a shard went, or a little later.
        deadline = time.monotonic() + 60
        while running.poll() is None and len(weights(model)) == before:
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        time.sleep(0.002 * (round % 3))
        running.send_signal(signal.SIGKILL)
        said = running.communicate()[1]
        if running.returncode != -signal.SIGKILL:
            assert running.returncode == 0, said
            break
        kills += 1
        if (out / "config.json").exists():
            break  # killed as it deleted the last ones
        for name in set(all_weights) - set(weights(model)):
            assert (out / "octavo-source" / name).exists()
    assert kills >= 2
    assert contents(out) == whole


def quantized(octavo, model: Path) -> None:
    """Makes the model one of DeepSeek's FP8, in shards as before."""
    octavo.good("quantize", "model", "-o", "fp8", "--recipe", "fp8-block", "--target", "deepseek")
    shutil.rmtree(model)
    (octavo.folder / "fp8").rename(model)


def test_a_quantized_model_goes_on_after_a_kill(octavo, model):
    """Headers that are kept are those of its files, not those of the decoded values."""
    quantized(octavo, model)
    octavo.good("quantize", "model", "-o", "whole", *WORDS)
    words = ["quantize", "model", "-o", "out", *map(str, WORDS), "--delete-source-shards"]
    before = len(weights(model))
    running = subprocess.Popen(
        [octavo.path, *words],
        cwd=octavo.folder,
        env=octavo.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while running.poll() is None and len(weights(model)) == before:
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    running.kill()
    running.wait()
    if not (octavo.folder / "out" / "config.json").exists():  # else it was deleting the last ones
        octavo.good(*words, "--resume")
    assert contents(octavo.folder / "out") == contents(octavo.folder / "whole")


def test_killed_while_the_last_ones_are_deleted(octavo, model, whole):
    """The folder is complete, headers of all are kept, and the first shard is gone: the same
    command deletes the others, but for one that is not what it was."""
    words = ("quantize", "model", "-o", "whole", *WORDS, "--delete-source-shards", "--resume")
    shards = sorted(model.glob("*.safetensors"))
    source = octavo.folder / "whole" / "octavo-source"
    source.mkdir()
    for shard in shards:
        data, times = shard.read_bytes(), shard.stat()
        header = data[: 8 + int.from_bytes(data[:8], "little")]
        (source / shard.name).write_bytes(header + bytes(len(data) - len(header)))
        os.utime(source / shard.name, ns=(times.st_mtime_ns, times.st_mtime_ns))
    shards[0].unlink()
    changed, times = shards[3], shards[3].stat()
    os.utime(changed, ns=(times.st_mtime_ns + 1, times.st_mtime_ns + 1))
    octavo.good(*words)
    assert weights(model) == [changed.name]
    assert contents(octavo.folder / "whole") == whole and source.exists()
    os.utime(changed, ns=(times.st_mtime_ns, times.st_mtime_ns))
    octavo.good(*words)
    assert weights(model) == [] and contents(octavo.folder / "whole") == whole
    assert not source.exists()


def test_refused_where_it_would_lose_more(octavo, model):
    words = ("quantize", "model", "-o", "out", *WORDS, "--delete-source-shards")
    shard = model / "model-00003-of-00006.safetensors"
    octavo("quantize", "model", "-o", "out.safetensors", *WORDS, words[-1]).refused(
        1, "one process"
    )
    octavo(*words, "--compare", "nvfp4,mxfp8").refused(2, "--compare")
    measured = ("--recipe", "fp8", "--format", "auto", "--target", "octavo", words[-1])
    octavo("quantize", "model", "-o", "out", *measured).refused(1, words[-1], "'auto'")
    octavo.good("plan", "model", "-o", "plan.json", *WORDS[:2])
    shared = ("quantize", "--plan", "plan.json", "-o", "out", words[-1])
    octavo(*shared).refused(1, "--delete-source-shards", "one process")
    other = octavo.folder / "other.safetensors"
    other.hardlink_to(shard)
    octavo(*words).refused(1, "hard link")
    other.unlink()
    shutil.move(shard, other)
    shard.symlink_to(other)
    octavo(*words, "--follow-links").refused(1, "link")
    assert other.exists() and len(weights(model)) == 6
    assert not (octavo.folder / "out").exists()


def test_refused_where_no_loader_loads_it(octavo, model):
    """Where servers want the head and its rows otherwise: it can be written, but nothing may be
    deleted for it."""
    words = ("--recipe", "fp8-block", "--target", "deepseek", "--include", ".")
    octavo("quantize", "model", "-o", "out", *words, "--delete-source-shards").refused(
        1, "no loader would load", "--delete-source-shards"
    )
    assert len(weights(model)) == 6 and not (octavo.folder / "out").exists()
    written = octavo("quantize", "model", "-o", "out", *words)
    assert (octavo.folder / "out" / "config.json").exists(), written
    assert written.out.count("does not load: ") == 4


def wrong_config(model: Path, **changes: object) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | changes))


def no_config(model: Path) -> None:
    (model / "config.json").unlink()


def nan_in_a_norm(model: Path) -> None:
    for shard in model.glob("*.safetensors"):
        data = bytearray(shard.read_bytes())
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        if "model.norm.weight" in header:
            begin = 8 + size + header["model.norm.weight"]["data_offsets"][0]
            data[begin : begin + 2] = b"\xc0\x7f"  # bf16
            shard.write_bytes(data)


@pytest.mark.parametrize(
    "spoil",
    [
        no_config,
        lambda model: wrong_config(model, hidden_size=512),
        lambda model: wrong_config(model, num_hidden_layers=14),
        nan_in_a_norm,
    ],
    ids=["no config", "another width", "layers that are missing", "NaN"],
)
def test_what_is_wrong_with_the_model_is_wrong_with_the_result(octavo, model, spoil):
    """Each is written and does not load: nothing of the model may be gone by then."""
    spoil(model)
    words = ("quantize", "model", "-o", "out", *WORDS)
    octavo(*words, "--delete-source-shards").refused(1, "no loader would load")
    assert len(weights(model)) == 6 and not (octavo.folder / "out").exists()


def test_refused_for_comfyui_in_several_files(octavo, model):
    words = ("quantize", "model", "-o", "out", "--recipe", "mxfp8", "--target", "comfyui")
    octavo(*words, "--delete-source-shards").refused(1, "ComfyUI loads one file", "6")
    assert len(weights(model)) == 6


def test_refused_with_limits_and_inside_the_model(octavo, model):
    words = ("quantize", "model", *WORDS, "--delete-source-shards")
    octavo(*words, "-o", "out", "--fail-if", "cosine<0.9").refused(2, "--fail-if", "leave one out")
    octavo(*words, "-o", "model/out").refused(1, "lies in the model's folder")
    assert len(weights(model)) == 6


def test_again_when_all_is_gone(octavo, model, whole):
    """A job that is queued again after it was done, also where it was killed as it removed the
    headers that it kept."""
    words = ("quantize", "model", "-o", "out", *WORDS, "--delete-source-shards", "--resume")
    octavo.good(*words)
    assert weights(model) == []
    kept = octavo.folder / "out" / "octavo-source"
    for again in (words, words[:-2] + words[-1:], words):
        kept.mkdir()
        (kept / "model-00001-of-00006.safetensors").write_bytes(b"")
        assert "is complete" in octavo.good(*again).err
        assert not kept.exists() and contents(octavo.folder / "out") == whole
    octavo("quantize", "model", "-o", "out", "--recipe", "mxfp8", "--resume").refused(
        1, "was made with other options"
    )
    made = next((octavo.folder / "out").glob("*.safetensors"))
    made.write_bytes(made.read_bytes()[:-1] + b"?")
    octavo(*words).refused(1, made.name, "is not what was written")


def killed_after_a_shard(octavo, model: Path, words: list[object]) -> None:
    """Killed when a shard is gone, and held there: the work has an end that it does not reach."""
    before = len(weights(model))
    running = subprocess.Popen(
        [octavo.path, *map(str, words), "--delete-source-shards"],
        cwd=octavo.folder,
        env=octavo.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while len(weights(model)) == before:
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    running.send_signal(signal.SIGSTOP)
    if weights(model):
        running.kill()
    running.send_signal(signal.SIGCONT)
    running.communicate()


def test_an_output_that_changed_is_an_error(octavo, model):
    """The values of a deleted shard are in the output alone: one that was damaged is said."""
    words = ["quantize", "model", "-o", "out", *WORDS]
    killed_after_a_shard(octavo, model, words)
    out = octavo.folder / "out"
    if (out / "config.json").exists():
        pytest.skip("it was done before it could be killed")
    gone = next(name for name in sorted(p.name for p in (out / "octavo-source").iterdir()))
    content = bytearray((out / gone).read_bytes())
    content[-1] ^= 1
    (out / gone).write_bytes(content)
    again = octavo(*words, "--delete-source-shards", "--resume")
    again.refused(1, "was deleted as asked", "--delete-source-shards")


def test_with_statistics_after_a_kill(octavo):
    """What tells whose statistics they are is the headers, which deleted files leave behind."""
    tensors = tiny_model.llama_weights(layers=6)
    model = tiny_model.runnable(octavo.folder / "model", 6, tensors)
    (octavo.folder / "ids.json").write_text(json.dumps(list(range(60)) * 3))
    octavo.good("calibrate", "model", "--ids", "ids.json", "-o", "stats.safetensors")
    names = list(tensors)
    where = {}
    (model / "model.safetensors").unlink()
    for i in range(3):
        part = names[i * len(names) // 3 : (i + 1) * len(names) // 3]
        file = f"model-{i + 1:05}-of-00003.safetensors"
        tiny_model.write(model / file, {name: tensors[name] for name in part})
        where |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": where}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    words = ["--recipe", "nvfp4", "--scale-policy", "wmse", "--statistics", "stats.safetensors"]
    words += ["--threads", 1]
    octavo.good("quantize", "model", "-o", "whole", *words)
    killed_after_a_shard(octavo, model, ["quantize", "model", "-o", "out", *words])
    (octavo.folder / "stats.safetensors").rename(octavo.folder / "moved.safetensors")
    words[words.index("stats.safetensors")] = "moved.safetensors"
    again = ("quantize", "model", "-o", "out", *words, "--delete-source-shards", "--resume")
    octavo.good(*again)
    assert contents(octavo.folder / "out") == contents(octavo.folder / "whole")
    assert weights(model) == []
