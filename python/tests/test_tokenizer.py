"""Tokenizers from Python; tests/conformance holds ids to those of the tokenizers package."""

import json
import pathlib

import pytest

import octavo as ov

VECTORS = pathlib.Path(__file__).parents[2] / "tests/conformance/tokenizers.json"


@pytest.fixture(scope="module")
def vectors():
    return json.loads(VECTORS.read_text())


def test_ids_and_text(vectors):
    kind = vectors["kinds"]["llama2"]
    tokenizer = ov.Tokenizer.from_json(json.dumps(kind["tokenizer"]))
    for text, ids, decoded in zip(vectors["texts"], kind["ids"], kind["decoded"], strict=True):
        assert tokenizer.encode(text) == ids
        assert tokenizer.encode(text, specials=False) == ids[1:-1]
        assert tokenizer.decode(ids) == decoded
    assert (tokenizer.bos, tokenizer.eos) == (1, 2)
    assert tokenizer.token_of(1) == "<s>" and tokenizer.id_of("</s>") == 2
    assert tokenizer.is_special(1) and not tokenizer.is_special(tokenizer.size - 1)
    assert tokenizer.token_of(tokenizer.size) == "" and tokenizer.id_of("no token") is None


def test_files(vectors, tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(vectors["kinds"]["gpt2"]["tokenizer"]))
    assert ov.Tokenizer.from_file(tmp_path).eos is None
    config = {"eos_token": "<|endoftext|>", "add_eos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    for path in (tmp_path, file):
        tokenizer = ov.Tokenizer.from_file(path)
        assert tokenizer.encode("a")[-1] == tokenizer.eos == 0
    with pytest.raises(FileNotFoundError):
        ov.Tokenizer.from_file(tmp_path / "none.json")


def test_bad_input(vectors):
    with pytest.raises(ValueError, match="tokenizer"):
        ov.Tokenizer.from_json("{}")
    with pytest.raises(RuntimeError, match="Unigram"):
        ov.Tokenizer.from_json('{"model": {"type": "Unigram"}}')
    tokenizer = ov.Tokenizer.from_json(json.dumps(vectors["kinds"]["gpt2"]["tokenizer"]))
    assert tokenizer.encode("") == [] and tokenizer.decode([]) == ""
    with pytest.raises(ValueError, match=r"\[Tokenizer.decode\] got a token id = 1099511627776"):
        tokenizer.decode([2**40])
    with pytest.raises(TypeError, match="got a token id of type float; expected an integer"):
        tokenizer.decode([1.5])
