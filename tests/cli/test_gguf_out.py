"""GGUF files written: read back by the Python package gguf, value by value and key by key."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file

sys.path.insert(0, str(Path(__file__).parent))
import gguf_model  # noqa: E402
import tiny_model  # noqa: E402

LINEARS = 7


def full_config(folder: Path, **more) -> None:
    """What a GGUF file needs of config.json, and tiny_model leaves out."""
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": 64,
    } | more
    (folder / "config.json").write_text(json.dumps(config))


TOKENIZER = {
    "added_tokens": [{"id": 60, "content": "<|end|>", "special": True}],
    "normalizer": None,
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        ],
    },
    "model": {
        "type": "BPE",
        "vocab": {"a": 0, "b": 1, "ab": 2},
        "merges": [["a", "b"]],
    },
}


@pytest.fixture
def model(octavo) -> Path:
    folder = tiny_model.llama(octavo.folder / "model")
    full_config(folder)
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    return folder


def field(reader: gguf.GGUFReader, name: str):
    return reader.fields[name].contents()


def decoded(path: Path) -> dict[str, np.ndarray]:
    """Under llama.cpp's names."""
    out = {}
    for tensor in gguf.GGUFReader(path).tensors:
        shape = tuple(int(size) for size in reversed(tensor.shape))
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        out[tensor.name] = values.astype(np.float32).reshape(shape)
    return out


def in_models_order(values: np.ndarray, heads: int = 4) -> np.ndarray:
    return values.reshape(heads, -1, 2, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)


@pytest.mark.parametrize(
    ("recipe", "kind"), [("mxfp4", Type.MXFP4), ("mxint8", Type.Q8_0)], ids=["mxfp4", "q8_0"]
)
def test_the_file_holds_octavos_own_values(octavo, model, recipe, kind):
    octavo.good("quantize", model, "-o", "m.gguf", "--recipe", recipe, "--target", "gguf")
    more = [] if recipe == "mxfp4" else ["--scale", "f16", "--scale-rule", "f32"]
    octavo.good("quantize", model, "-o", "own", "--recipe", recipe, "--target", "octavo", *more)
    octavo.good("dequantize", "own", "-o", "plain", "--dtype", "f32")
    wanted = load_file(octavo.folder / "plain/model.safetensors")
    found = decoded(octavo.folder / "m.gguf")
    types = {t.name: t.tensor_type for t in gguf.GGUFReader(octavo.folder / "m.gguf").tensors}
    assert len(found) == len(wanted)
    assert sum(one == kind for one in types.values()) == 2 * LINEARS
    assert types["token_embd.weight"] == Type.BF16 and types["output_norm.weight"] == Type.F32
    for layer in range(2):
        for name, theirs in gguf_model.MODEL_NAMES.items():
            if not name.startswith("blk.0."):
                continue
            name = name.replace(".0.", f".{layer}.") + ".weight"
            theirs = theirs.replace(".0.", f".{layer}.") + ".weight"
            values = found[name]
            if "attn_q." in name or "attn_k." in name:
                values = in_models_order(values)
            # Scales of this model are far above f16's subnormals, so that Q8_0 is exact, too.
            np.testing.assert_array_equal(values, wanted[theirs].astype(np.float32), err_msg=name)


def test_the_metadata_are_the_models(octavo, model):
    octavo.good("quantize", model, "-o", "m.gguf", "--recipe", "mxfp4", "--target", "gguf")
    reader = gguf.GGUFReader(octavo.folder / "m.gguf")
    assert field(reader, "general.architecture") == "llama"
    assert field(reader, "llama.block_count") == 2
    assert field(reader, "llama.attention.head_count_kv") == 4
    assert field(reader, "llama.rope.dimension_count") == 64
    assert abs(field(reader, "llama.attention.layer_norm_rms_epsilon") - 1e-5) < 1e-10
    assert field(reader, "tokenizer.ggml.model") == "gpt2"
    assert field(reader, "tokenizer.ggml.pre") == "smollm"
    tokens = field(reader, "tokenizer.ggml.tokens")
    assert len(tokens) == 64 and tokens[:3] == ["a", "b", "ab"] and tokens[60] == "<|end|>"
    assert tokens[3] == "[PAD3]"
    assert field(reader, "tokenizer.ggml.merges") == ["a b"]
    assert field(reader, "tokenizer.ggml.eos_token_id") == 60
    kinds = field(reader, "tokenizer.ggml.token_type")
    assert kinds[0] == 1 and kinds[3] == 5 and kinds[60] == 3


def test_llama3_frequencies_become_a_tensor_and_come_back(octavo, model):
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    full_config(model, rope_scaling=scaling, rope_theta=500000.0)
    octavo.good("quantize", model, "-o", "m.gguf", "--recipe", "mxfp4", "--target", "gguf")
    factors = decoded(octavo.folder / "m.gguf")["rope_freqs.weight"]
    assert factors.shape == (32,) and factors[0] == 1 and factors[-1] == 32
    octavo.good("convert", "m.gguf", "-o", "back")
    config = json.loads((octavo.folder / "back/config.json").read_text())
    assert config["rope_scaling"] == scaling


@pytest.mark.parametrize("kind", [Type.Q4_K, Type.F16])
def test_from_gguf_to_gguf(octavo, kind):
    gguf_model.write_model(octavo.folder / "a.gguf", kind, narrow=True)
    octavo.good("quantize", "a.gguf", "-o", "b.gguf", "--recipe", "mxint8", "--target", "gguf")
    before, after = (gguf.GGUFReader(octavo.folder / name) for name in ("a.gguf", "b.gguf"))
    for name in ("tokenizer.ggml.tokens", "llama.context_length", "tokenizer.chat_template"):
        assert field(before, name) == field(after, name)
    ours, theirs = decoded(octavo.folder / "b.gguf"), decoded(octavo.folder / "a.gguf")
    for name, values in theirs.items():
        # Half a step of Q8_0: 1/254 of the largest value; norms are exact, embeddings rounded to
        # the eight bits of bf16.
        limit = np.abs(values).max() / 200
        assert np.abs(ours[name] - values).max() <= limit, name


def test_codes_of_a_folder_are_packed_without_loss(octavo, model):
    octavo.good("quantize", model, "-o", "ct", "--recipe", "mxfp4")
    octavo.good("convert", "ct", "-o", "m.gguf", "--target", "gguf")
    octavo.good("quantize", model, "-o", "again.gguf", "--recipe", "mxfp4", "--target", "gguf")
    ours, again = decoded(octavo.folder / "m.gguf"), decoded(octavo.folder / "again.gguf")
    assert set(ours) == set(again)
    for name in ours:
        np.testing.assert_array_equal(ours[name], again[name], err_msg=name)


def test_refusals(octavo, model):
    quantize = ["quantize", model, "--recipe", "mxfp4"]
    octavo(*quantize, "-o", "out", "--target", "gguf").refused(1, "ends in .gguf")
    octavo(*quantize, "-o", "m.gguf").refused(1, "choose target gguf")
    done = octavo("quantize", model, "-o", "m.gguf", "--recipe", "mxfp8", "--target", "gguf")
    done.refused(1, "mxfp4 (MXFP4) and mxint8 (Q8_0)")
    full_config(model, model_type="gpt_neox")
    octavo(*quantize, "-o", "m.gguf", "--target", "gguf").refused(1, "'gpt_neox'")
    full_config(model, model_type="llama", vocab_size=63)
    octavo(*quantize, "-o", "m.gguf", "--target", "gguf").refused(1, "vocab_size")
    full_config(model, num_attention_heads=3)
    octavo(*quantize, "-o", "m.gguf", "--target", "gguf").refused(1, "3 heads")
    assert "m.gguf" not in octavo.files()


def test_a_tokenizer_that_llama_cpp_has_no_name_for_is_refused(octavo, model):
    strange = TOKENIZER | {"pre_tokenizer": {"type": "Whitespace"}}
    (model / "tokenizer.json").write_text(json.dumps(strange))
    done = octavo("quantize", model, "-o", "m.gguf", "--recipe", "mxfp4", "--target", "gguf")
    done.refused(1, "Whitespace", "take tokenizer.json away")
    (model / "tokenizer.json").unlink()
    done = octavo.good("quantize", model, "-o", "m.gguf", "--recipe", "mxfp4", "--target", "gguf")
    assert "has no tokenizer" in done.out
