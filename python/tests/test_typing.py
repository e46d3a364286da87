"""What type checkers say of a file that uses every public name: nothing; and of a misspelt name,
that there is none. mypy and basedpyright, each where it is installed."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import pathlib
import shutil
import site
import subprocess
import sys

import pytest

import octavo as ov

SNIPPET = pathlib.Path(__file__).with_name("typing") / "every_public_name.py"
PACKAGE = pathlib.Path(ov.__file__).parent.parent

# Names of results that a user may misspell, as they stand in the file.
TYPOS = {
    "counts.saturated": "counts.saturation",
    "q2.shape": "q2.shapes",
    "q.dequantize(": "q.dequantise(",
    "report.share(": "report.shares(",
    "cache.keys()": "cache.key()",
    "quantized.html()": "quantized.as_html()",
    "missed.report.title": "missed.report.titel",
    "backend.usable": "backend.useable",
    "rms_norm(x, quantize=scaling).nbytes": "rms_norm(x, quantize=scaling).n_bytes",
    "tensor.dequantize(dtype=": "tensor.dequantise(dtype=",
    "causal=True": "casual=True",
    "distance.total.relative_l2": "distance.total.relative_l1",
    "te.MXFP8BlockScaling()": "te.MXFP8BlockScale()",
    "tensors: torch.Tensor =": "tensors: int =",
}


def mypy(file, cwd):
    pytest.importorskip("mypy", reason="mypy is not installed; it is optional")
    pytest.importorskip("torch", reason="torch is not installed; it is optional")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(file)]
    # mypy finds installed packages by itself and refuses to be told of their folder.
    installed = PACKAGE in map(pathlib.Path, site.getsitepackages())
    path = {} if installed else {"MYPYPATH": str(PACKAGE)}
    return subprocess.run(command, cwd=cwd, env=os.environ | path, capture_output=True, text=True)


def basedpyright(file, cwd):
    if importlib.util.find_spec("basedpyright") is None and not shutil.which("basedpyright"):
        pytest.skip("basedpyright is not installed; it is optional")
    pytest.importorskip("torch", reason="torch is not installed; it is optional")
    how = {
        "typeCheckingMode": "standard",
        "extraPaths": [str(PACKAGE)],
        "include": [pathlib.Path(file).name],
    }
    (cwd / "pyrightconfig.json").write_text(json.dumps(how))
    command = [shutil.which("basedpyright") or "basedpyright", "--pythonpath", sys.executable]
    if importlib.util.find_spec("basedpyright") is not None:
        command[:1] = [sys.executable, "-m", "basedpyright"]
    return subprocess.run(
        [*command, "--project", str(cwd)], cwd=cwd, capture_output=True, text=True
    )


CHECKERS = {"mypy": mypy, "basedpyright": basedpyright}


@pytest.mark.parametrize("checker", CHECKERS)
def test_every_public_name_has_its_type(checker, tmp_path):
    file = shutil.copy(SNIPPET, tmp_path)
    found = CHECKERS[checker](file, tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_misspelt_name_is_found(checker, tmp_path):
    """All of them in one file: each line with one has an error."""
    lines = SNIPPET.read_text().splitlines()
    wrong = set()
    for name, typo in TYPOS.items():
        at = next(i for i, line in enumerate(lines) if name in line)
        lines[at] = lines[at].replace(name, typo, 1)
        wrong.add(at + 1)
    file = tmp_path / SNIPPET.name
    file.write_text("\n".join(lines))
    found = CHECKERS[checker](file, tmp_path)
    assert found.returncode == 1, found.stdout + found.stderr
    missed = {line for line in wrong if f"{SNIPPET.name}:{line}:" not in found.stdout}
    assert not missed, found.stdout


def test_the_file_has_every_public_name():
    te = pytest.importorskip("octavo.torch", reason="torch is not installed; it is optional")
    used = {
        (node.value.id, node.attr)
        for node in ast.walk(ast.parse(SNIPPET.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert {name for name in ov.__all__ if ("ov", name) not in used} == set()
    assert {name for name in te.__all__ if ("te", name) not in used} == set()
