"""Ids and decoded text are those of the `tokenizers` package, on a megabyte of mixed Unicode."""

import json
import os
import pathlib
import subprocess

import pytest
import tokenizer_families
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where octavo is installed: not in the environment of the peers.
PYTHON = os.environ.get("OCTAVO_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
WORKER = """
import json, pathlib, sys
import octavo as ov
folder = pathlib.Path(sys.argv[1])
text = (folder / "text").read_bytes().decode()
for path in sorted(folder.glob("*.json")):
    tokenizer = ov.Tokenizer.from_file(path)
    ids = tokenizer.encode(text)
    plain = tokenizer.encode(text[:2000], specials=False)
    decoded = [tokenizer.decode(ids, skip_specials=skip) for skip in (False, True)]
    (folder / (path.stem + ".out")).write_text(json.dumps([ids, plain, decoded]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizers")
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*/*.md"), ROOT / "LICENSE"]
    corpus = [page.read_text() for page in pages]
    corpus.append(
        "日本語のテキスト。中文文本，测试一下。한국어 Ελληνικά Привет مرحبا ไทยภาษา " * 50
    )
    text = tokenizer_families.mixed_text(1_000_000, (ROOT / "LICENSE").read_text().split(" "))
    (out / "text").write_bytes(text.encode())
    for name, file in tokenizer_families.families(corpus, 4000).items():
        (out / f"{name}.json").write_text(file)
    subprocess.run([PYTHON, "-c", WORKER, str(out)], check=True)
    return out


@pytest.mark.parametrize("name", sorted(tokenizer_families.families(["a b"], 300)))
def test_ids_and_text_are_those_of_tokenizers(name, folder):
    tokenizer = Tokenizer.from_file(str(folder / f"{name}.json"))
    text = (folder / "text").read_bytes().decode()
    ids, plain, decoded = json.loads((folder / f"{name}.out").read_text())
    wanted = tokenizer.encode(text)
    assert len(wanted.ids) > 50_000
    for i, (ours, theirs) in enumerate(zip(ids, wanted.ids, strict=False)):
        begin, end = wanted.offsets[i]
        assert ours == theirs, f"id {i}: {ascii(text[max(0, begin - 20) : end + 20])}"
    assert ids == wanted.ids
    assert plain == tokenizer.encode(text[:2000], add_special_tokens=False).ids
    for skip in (False, True):
        assert decoded[skip] == tokenizer.decode(wanted.ids, skip_special_tokens=skip)
