"""The table of other implementations of MX in docs/numerics/mx-conformance.md is what
tests/conformance/mx_peers.py prints, of those that are installed with the version it names."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
import sys
from types import ModuleType

import pytest

import octavo as ov

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "numerics" / "mx-conformance.md"
PROGRAM = ROOT / "tests" / "conformance" / "mx_peers.py"
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="not in a source tree")


def mx_peers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mx_peers", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def documented(name: str) -> list[str]:
    found = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {name} |")]
    assert found, f"{PAGE.name} has no row of {name}"
    return found


def test_the_row_of_octavo() -> None:
    assert documented("octavo") == mx_peers().rows("octavo", ov.conform())


PEERS = list(mx_peers().PEERS) if PROGRAM.exists() else []


@pytest.mark.parametrize("name", PEERS)
def test_the_rows_of_a_peer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = mx_peers()
    package, make = module.PEERS[name]
    pytest.importorskip(package)
    named, _, version = name.partition(",")[0].partition(" ")
    if named == package and importlib.metadata.version(package) != version:
        pytest.skip(f"the table is of {package} {version}")
    monkeypatch.syspath_prepend(str(PROGRAM.parent))  # formulas that are beside the program
    assert documented(name) == module.rows(name, ov.conform(**make()))


def test_every_row_is_of_an_implementation_that_is_run() -> None:
    table = PAGE.read_text().partition("| implementation |")[2].splitlines()[2:]
    names = {line.split("|")[1].strip() for line in table if line.startswith("| ")}
    assert names == {"octavo", *PEERS}
