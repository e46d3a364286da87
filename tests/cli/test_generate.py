"""octavo generate: tokens of a small model, and input that it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402
from test_terminal import on_terminal  # noqa: E402

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32,
}


@pytest.fixture
def model(octavo):
    folder = tiny_model.llama(octavo.folder / "m")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").unlink()  # an empty one
    return folder


def test_numbers_in_numbers_out(octavo, model):
    result = octavo.good("generate", "m", "--ids", "1,2,3", "--max-tokens", 5)
    ids = [int(one) for one in result.out.strip().split(",")]
    assert len(ids) == 5 and all(0 <= one < 64 for one in ids)
    assert "tokens of prompt" in result.err and "a second" in result.err
    again = octavo.good("generate", "m", "--ids", "1,2,3", "--max-tokens", 5, "--json").json
    assert again["ids"] == ids and again["prompt_tokens"] == 3 and again["ended"] == "length"


def test_a_seed_gives_the_same_text(octavo, model):
    words = ["generate", "m", "--ids", "5", "--max-tokens", 12, "--temperature", 3]
    one, two = (octavo.good(*words, "--seed", 7, "--threads", n).out for n in (1, 3))
    other = octavo.good(*words, "--seed", 8).out
    assert one == two != other


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--ids", "1,x"], 2, "--ids '1,x'"),
        (["--ids", "1,"], 2, "--ids '1,'"),
        ([], 2, "neither --prompt nor --ids"),
        (["--ids", "1", "--prompt", "a"], 2, "both --prompt and --ids"),
        (["--ids", "1", "--cache", "int3"], 2, "'int3'"),
        (["--ids", "64"], 1, "got id 64 at position 0"),
        (["--ids", ",".join("1" * 33)], 1, "at most the 32 positions"),
        (["--prompt", "a"], 1, "no tokenizer.json"),
        (["--ids", "1", "--temperature", "-1"], 1, "a temperature of -1"),
    ],
)
def test_refuses(octavo, model, words, code, message):
    octavo("generate", "m", *words).refused(code, message)


def test_control_characters_are_for_programs_alone(octavo, model):
    """A terminal would obey them: every token of this model clears the screen or rings."""
    tokens = {f"\x1b[2J\x07\x9b\x7f{i}\n": i for i in range(63)}
    tokenizer = {
        "model": {"type": "BPE", "vocab": tokens, "merges": []},
        "added_tokens": [{"id": 63, "content": "go", "special": True}],
    }
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    words = ["generate", "m", "--prompt", "go", "--max-tokens", 8, "--temperature", 9]
    piped = octavo.good(*words).out
    assert "\x1b[2J\x07\x9b\x7f" in piped
    code, seen = on_terminal(octavo, *words)
    assert code == 0 and "\\x1b[2J\\x07\\x9b\\x7f" in seen
    assert not set(seen) & {"\x1b", "\x07", "\x9b", "\x7f"} and "\n" in seen


def test_a_model_it_does_not_know(octavo, model):
    (model / "config.json").write_text(json.dumps(CONFIG | {"model_type": "mamba"}))
    octavo("generate", "m", "--ids", "1").refused(1, "a model of the type 'mamba'")
