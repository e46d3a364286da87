"""octavo.ray on a real cluster: several raylets on this machine (ray.cluster_utils), each a node
with cores of its own. Skipped where there is no ray."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

ray = pytest.importorskip("ray", reason="no ray (PyPI: ray[default])")
from ray.cluster_utils import Cluster  # noqa: E402

import octavo as ov  # noqa: E402
import octavo.ray as octavo_ray  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
import tiny_model  # noqa: E402

NODES = 3


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes = [made.add_node(num_cpus=1) for _ in range(NODES - 1)]
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made, nodes
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model.runnable(tmp_path / "model")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_the_bytes_of_one(cluster, model, tmp_path):
    options = {"recipe": "nvfp4", "shard_bytes": "200K"}
    ov.quantize_checkpoint(model, tmp_path / "one", **options)
    seen: list[tuple[int, int]] = []
    report = octavo_ray.quantize(
        model,
        tmp_path / "out",
        progress=lambda done, total, seconds, name: seen.append((done, total)),
        **options,
    )
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
    assert report.files_written >= 1 and report.tensors and "<html" in report.html()
    assert all(done <= total for done, total in seen)
    again = octavo_ray.quantize(model, tmp_path / "out", progress=False, **options)
    assert again.was_complete


def test_a_plan_and_limits(cluster, model, tmp_path):
    plan = ov.quantize_checkpoint(model, recipe="nvfp4", shard_bytes="300K", dry_run=True)
    (tmp_path / "plan.json").write_text(plan.json())
    with pytest.raises(ov.LimitMissed) as missed:
        octavo_ray.quantize(
            None,
            tmp_path / "out",
            plan=tmp_path / "plan.json",
            workers=5,
            cpus=1,
            fail_if=["cosine<1.1"],
            progress=False,
        )
    assert missed.value.report.tensors
    assert (tmp_path / "out" / "config.json").exists()


def test_errors_reach_the_caller(cluster, model, tmp_path):
    with pytest.raises(ValueError, match="which the plan says"):
        octavo_ray.quantize(model, tmp_path / "out", "nvfp4", plan=tmp_path / "plan.json")
    with pytest.raises(ValueError, match="at most those of a node"):
        octavo_ray.quantize(model, tmp_path / "out", "nvfp4", cpus=64)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(OSError, match="not empty"):
        octavo_ray.quantize(model, tmp_path / "out", "nvfp4", progress=False)


def test_a_node_is_lost_in_the_middle(cluster, tmp_path):
    """A raylet is killed while its task works; Ray starts the task elsewhere, and the bytes are the
    same."""
    made, _ = cluster
    random = np.random.default_rng(1)
    weights = tiny_model.llama_weights(layers=12, width=512)
    weights["model.layers.0.self_attn.q_proj.weight"] = tiny_model.bf16(
        random.standard_normal((512, 512), np.float32)
    )
    model = tiny_model.llama(tmp_path / "model", weights, shards=4)
    options = {"recipe": "nvfp4", "shard_bytes": "500K", "scale_policy": "mse"}
    ov.quantize_checkpoint(model, tmp_path / "one", **options)
    victim = made.add_node(num_cpus=1)
    made.wait_for_nodes()
    out = tmp_path / "out"
    before_the_end: list[bool] = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not list(out.glob("octavo-work/*.done.json")):
            time.sleep(0.005)
        before_the_end.append(not (out / "config.json").exists())
        for processes in victim.all_processes.values():
            for process in processes:
                os.kill(process.process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    report = octavo_ray.quantize(model, out, takeover_after=2.0, progress=False, **options)
    killer.join()
    assert before_the_end == [True]
    assert report.tensors
    assert contents(out) == contents(tmp_path / "one")
    assert not (out / "octavo-work").exists()
    made.remove_node(victim, allow_graceful=False)


def test_a_text_a_task(cluster, model, tmp_path):
    ov.quantize_checkpoint(model, tmp_path / "fp8", "fp8-channel")
    random = np.random.default_rng(2)
    texts = {f"text {i}": random.integers(0, 64, 40 + 30 * i).tolist() for i in range(4)}
    here = ov.evaluate(tmp_path / "fp8", texts, against=model, window=32)
    there = octavo_ray.evaluate(
        tmp_path / "fp8", texts, against=model, window=32, progress=lambda *_: None
    )
    assert there.tokens == here.tokens and there.against == here.against
    for a, b in zip(here.models, there.models, strict=True):
        assert [one["text"] for one in b["texts"]] == list(texts)
        assert a["texts"] == b["texts"]
        for key in ("log_loss", "perplexity", "agreement", "excess_loss"):
            if key not in a["total"]:
                continue
            for number in ("value", "standard_error"):
                # Sums of the same numbers in another order, in double.
                wanted = a["total"][key][number]
                assert b["total"][key][number] == pytest.approx(wanted, rel=1e-9, abs=1e-12), key
    assert there.kl == pytest.approx(here.kl, rel=1e-9)
    assert json.loads(there.json())["models"]
    with pytest.raises(ValueError, match="no texts"):
        octavo_ray.evaluate(model, {})
