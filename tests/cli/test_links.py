"""Links, pipes and permissions of a model's folder on the command line."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402


@pytest.fixture
def model(octavo):
    return tiny_model.llama(octavo.folder / "model")


def cached(folder: Path) -> Path:
    """The model in the layout of huggingface_hub: a snapshot of links to blobs."""
    hub = folder.parent / "models--a--b"
    snapshot = hub / "snapshots" / "0123abcd"
    snapshot.parent.mkdir(parents=True)
    (hub / "blobs").mkdir()
    folder.rename(snapshot)
    for i, file in enumerate(sorted(path for path in snapshot.rglob("*") if path.is_file())):
        blob = hub / "blobs" / f"{i:040x}"
        file.rename(blob)
        file.symlink_to(os.path.relpath(blob, file.parent))
    return snapshot


def test_a_snapshot_of_a_cache(octavo, model):
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text('{"pooling": 1}')
    snapshot = cached(model)
    shown = octavo.good("quantize", snapshot, "-o", "out", "--recipe", "fp8-channel")
    assert "note" not in shown.out
    octavo.good("convert", "out", "-o", "other", "--target", "octavo")
    for out in ("out", "other"):
        pooling = octavo.folder / out / "1_Pooling" / "config.json"
        assert json.loads(pooling.read_text()) == {"pooling": 1}
        assert not pooling.is_symlink()


@pytest.mark.parametrize("in_cache", [False, True])
def test_a_link_that_leaves_is_refused(octavo, model, in_cache):
    secret = octavo.folder / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    if in_cache:
        model = cached(model)
    (model / "vocab.json").symlink_to(secret)
    quantize = ["quantize", model, "-o", "out", "--recipe", "fp8-channel"]
    for words in (quantize, ["quantize", model, "--dry-run"]):
        octavo(*words).refused(1, "vocab.json", str(secret), "--follow-links")
        assert not (octavo.folder / "out").exists()
    octavo.good("inspect", model)  # nothing is copied
    octavo.good("quantize", model, "--dry-run", "--follow-links")
    octavo.good(*quantize, "--follow-links")
    copy = octavo.folder / "out" / "vocab.json"
    assert copy.read_text() == "s" and copy.stat().st_mode & 0o777 == 0o600
    copy.unlink()
    copy.symlink_to(secret)
    for command in (["convert", "--target", "octavo"], ["dequantize"]):
        words = [command[0], "out", "-o", command[0], *command[1:]]
        octavo(*words).refused(1, "vocab.json", "--follow-links")
        octavo.good(*words, "--follow-links")
        assert (octavo.folder / command[0] / "vocab.json").read_text() == "s"


def test_follow_links_is_for_checkpoints(octavo):
    import numpy as np

    octavo.save("x.npy", np.zeros((4, 32), np.float32))
    octavo("quantize", "x.npy", "--recipe", "fp8", "--follow-links").refused(2, "--follow-links")


def test_a_broken_link_is_named_before_the_work(octavo, model):
    (model / "vocab.json").symlink_to("gone")
    octavo("quantize", "model", "-o", "out").refused(1, "vocab.json", "'gone'", "not there")
    assert octavo.files() == {"model"}


def test_a_pipe_is_named_and_left_alone(octavo, model):
    os.mkfifo(model / "vocab.json")
    shown = octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    assert "note: 'vocab.json' is a pipe and is left out" in shown.out
    assert not (octavo.folder / "out" / "vocab.json").exists()
    os.mkfifo(octavo.folder / "out" / "vocab.json")
    shown = octavo.good("convert", "out", "-o", "other", "--target", "octavo")
    assert "note: 'vocab.json' is a pipe and is left out" in shown.out


def test_permissions_are_not_widened(octavo, model):
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        (model / name).chmod(0o600)
    before = os.umask(0)
    try:
        octavo.good("quantize", "model", "-o", "out", "--recipe", "fp8-channel")
    finally:
        os.umask(before)
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        assert (octavo.folder / "out" / name).stat().st_mode & 0o777 == 0o600, name
