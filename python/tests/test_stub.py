"""The committed stub is what nanobind generates, and every public function is annotated."""

from __future__ import annotations

import ast
import inspect
import pathlib
import typing

import pytest

import octavo as ov
from octavo import _octavo, compat, quantizers, recipe

REGENERATE = "python -m nanobind.stubgen -m octavo._octavo -o python/octavo/_octavo.pyi"


def test_stub_matches_the_module():
    stubgen = pytest.importorskip(
        "nanobind.stubgen", reason="nanobind, which generates the stub, is not installed"
    )
    generator = stubgen.StubGen(_octavo)
    generator.put(_octavo)
    committed = pathlib.Path(ov.__file__).with_name("_octavo.pyi").read_text()
    # By meaning: another nanobind may lay lines out differently.
    assert ast.dump(ast.parse(generator.get())) == ast.dump(ast.parse(committed)), (
        f"out of date; run: {REGENERATE}"
    )


def test_stub_is_valid_and_complete():
    tree = ast.parse(pathlib.Path(ov.__file__).with_name("_octavo.pyi").read_text())
    names = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert names == {name for name in dir(_octavo) if not name.startswith("_")}


def test_package_says_that_it_is_typed():
    assert pathlib.Path(ov.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize("module", [ov, compat, quantizers, recipe])
def test_public_functions_are_annotated(module):
    for name in module.__all__:
        function = getattr(module, name)
        if not inspect.isfunction(function):
            continue
        signature = inspect.signature(function)
        assert function.__doc__, name
        assert typing.get_type_hints(function).keys() == {*signature.parameters, "return"}, name


def test_names_in_docstrings_are_the_library_s():
    """encode lists its choices; they must be those the library knows."""
    text = ov.encode.__doc__
    for name in (
        _octavo.roundings() + _octavo.overflows() + _octavo.nan_inputs() + _octavo.profiles()
    ):
        assert f'"{name}"' in text, name
