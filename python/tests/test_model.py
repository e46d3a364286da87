"""octavo.load_model: the same logits for all tokens at once and one by one, and bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest

import octavo as ov

safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")

CONFIG = {
    "model_type": "llama",
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 24,
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    random = np.random.default_rng(0)

    def matrix(rows, cols):
        return (random.standard_normal((rows, cols)) * 0.2).astype(np.float32)

    tensors = {"model.embed_tokens.weight": matrix(48, 32), "model.norm.weight": np.ones(32, "f4")}
    for layer in range(2):
        at = f"model.layers.{layer}."
        for name, rows in (("q", 32), ("k", 16), ("v", 16), ("o", 32)):
            tensors[f"{at}self_attn.{name}_proj.weight"] = matrix(rows, 32)
        tensors[f"{at}mlp.gate_proj.weight"] = matrix(64, 32)
        tensors[f"{at}mlp.up_proj.weight"] = matrix(64, 32)
        tensors[f"{at}mlp.down_proj.weight"] = matrix(32, 64)
        tensors[f"{at}input_layernorm.weight"] = np.ones(32, "f4")
        tensors[f"{at}post_attention_layernorm.weight"] = np.ones(32, "f4")
    safetensors.save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


def test_greedy_text_is_what_logits_say(folder):
    model = ov.load_model(folder)
    assert model.config["layers"] == 2 and model.config["tied_head"]
    ids = [3, 1, 4, 1, 5]
    logits = model.logits(ids)
    assert logits.shape == (5, 48) and logits.dtype == np.float32
    text = model.generate(ids, 4)
    assert text[0] == int(logits[-1].argmax()) and not text.at_eos
    so_far = [*ids, *text[:3]]
    assert text[3] == int(model.logits(so_far)[-1].argmax())


def test_tokens_are_heard_and_can_be_stopped(folder):
    heard = []
    text = ov.load_model(folder).generate(
        [1], 10, on_token=lambda one: heard.append(one) or len(heard) < 3
    )
    assert heard == list(text) and len(heard) == 3


def test_seeds(folder):
    model = ov.load_model(folder)
    one, two, other = (model.generate([2], 12, temperature=3.0, seed=s) for s in (1, 1, 2))
    assert one == two != other


def test_activations_of_bfloat16(folder):
    ids = list(range(1, 20))
    exact, rounded = (
        ov.load_model(folder, activations=one).logits(ids) for one in ("float32", "bfloat16")
    )
    off = np.abs(exact - rounded).max() / np.abs(exact).max()
    assert 0 < off < 15 * 2.0**-9  # fifteen roundings of 2^-9 in a line: decoder_test.cc
    with pytest.raises(ValueError, match="'float32' or 'bfloat16'"):
        ov.load_model(folder, activations="int8")


def test_types_of_weights_in_memory(folder):
    whole, half = ov.load_model(folder), ov.load_model(folder, weights="bfloat16")
    assert half.nbytes * 2 == whole.nbytes
    # Rounded weights are off by 2^-9 of themselves.
    np.testing.assert_allclose(half.logits([1, 2]), whole.logits([1, 2]), atol=0.1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.logits([]), ValueError, "got no tokens"),
        (lambda m: m.logits([48]), ValueError, "got id 48"),
        (lambda m: m.logits([-1]), ValueError, "a token id = -1"),
        (lambda m: m.logits("text"), TypeError, "got a text"),
        (lambda m: m.logits([1.5]), TypeError, "expected an integer"),
        (lambda m: m.logits(b"text"), TypeError, "got bytes; expected token ids"),
        (lambda m: m.generate(b"text"), TypeError, "got bytes; expected token ids, or"),
        (lambda m: m.generate([1] * 25), ValueError, "24 positions"),
        (lambda m: m.generate([1], temperature=-1), ValueError, "temperature"),
        (lambda m: m.generate([1], cache="int3"), ValueError, "int3"),
        (lambda m: m.generate("text"), ValueError, "no tokenizer.json"),
    ],
)
def test_refuses(folder, call, error, message):
    with pytest.raises(error, match=message):
        call(ov.load_model(folder))


def test_no_model(tmp_path):
    with pytest.raises(OSError):
        ov.load_model(tmp_path / "none")
