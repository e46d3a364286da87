"""What the bindings call of Python is in its stable ABI, which the wheel for Python 3.12 and later
is made with (tools/wheel abi3): the module of `make` is not, and compiles with more."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sysconfig

import pytest

SOURCES = pathlib.Path(__file__).parents[1] / "src"
HEADERS = pathlib.Path(sysconfig.get_path("include"))
STABLE = "#define Py_LIMITED_API 0x030C0000\n"


def is_declared(names: list[str], begin: str, tmp_path: pathlib.Path) -> dict[str, bool]:
    """Of each name: whether Python.h has it, as a function, a variable or a macro."""
    text = begin + "#include <Python.h>\n"
    for name in names:
        text += (
            f"#ifdef {name}\nint macro_{name};\n#else\nauto* const use_{name} = &{name};\n#endif\n"
        )
    file = tmp_path / "names.cc"
    file.write_text(text)
    command = [shutil.which("c++"), "-std=c++20", "-fsyntax-only", f"-I{HEADERS}", str(file)]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    missing = set(
        re.findall(r"error: .(\w+). was not declared|undeclared identifier '(\w+)'", said)
    )
    missing = {one or other for one, other in missing}
    assert missing or "error" not in said, said
    return {name: name not in missing for name in names}


@pytest.fixture
def declared(tmp_path):
    if not SOURCES.is_dir():
        pytest.skip("the tests run without the sources beside them")
    if shutil.which("c++") is None or not (HEADERS / "Python.h").exists():
        pytest.skip("needs a C++ compiler and the headers of Python")
    return lambda names, begin=STABLE: is_declared(names, begin, tmp_path)


def test_what_the_bindings_call_is_in_it(declared):
    text = "\n".join(path.read_text() for path in sorted(SOURCES.glob("*.[ch]*")))
    text = re.sub(r"//.*", "", text)
    names = sorted(set(re.findall(r"(?<![\w:])_?Py[A-Z_]\w*(?=\()", text)))
    assert "Py_IsInitialized" in names
    assert [name for name, there in declared(names).items() if not there] == []


def test_what_is_not_in_it_is_found(declared):
    names = ["PyGILState_Check", "PyGILState_Ensure", "PyTuple_GET_ITEM"]
    assert declared(names, "") == dict.fromkeys(names, True)
    assert declared(names) == {name: name == "PyGILState_Ensure" for name in names}
