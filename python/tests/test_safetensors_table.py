"""The tables that octavo's safetensors room is held against still say what safetensors says.

octavo's own verdicts and bytes are compared with the same tables by safetensors_peer_test (C++).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "conformance"


def table(name):
    return [line.split("\t") for line in (FOLDER / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def safetensors():
    module = pytest.importorskip("safetensors")
    if not module.__version__.startswith("0.8."):
        pytest.skip(f"the tables are of safetensors 0.8, here is {module.__version__}")
    return module


def test_verdicts(safetensors):
    rows = table("safetensors.tsv")
    assert len(rows) >= 240
    for name, theirs, _, _, content in rows:
        try:
            safetensors.deserialize(bytes.fromhex(content))
            verdict = "accept"
        except safetensors.SafetensorError:
            verdict = "reject"
        assert verdict == theirs, name


def test_written_files(safetensors):
    for name, tensors, _, content in table("safetensors_written.tsv"):
        read = dict(safetensors.deserialize(bytes.fromhex(content)))
        planned = [item.split("|") for item in tensors.split(" ") if item]
        assert set(read) == {bytes.fromhex(tensor).decode() for tensor, _, _ in planned}, name


def test_generator_writes_these_tables(safetensors, tmp_path, monkeypatch):
    path = FOLDER / "generate_safetensors.py"
    spec = importlib.util.spec_from_file_location("generate_safetensors", path)
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    monkeypatch.setattr(generate, "HERE", tmp_path)
    generate.write_verdicts()
    generate.write_written()
    for name in ("safetensors.tsv", "safetensors_written.tsv"):
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text(), name
