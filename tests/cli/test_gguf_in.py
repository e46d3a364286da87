"""GGUF files read: every type beside the Python package gguf, and what commands make of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from safetensors import safe_open
from safetensors.numpy import load_file

sys.path.insert(0, str(Path(__file__).parent))
import gguf_model  # noqa: E402

TYPES = [Type.F32, Type.F16, Type.BF16, *gguf_model.HALVES]


def bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


@pytest.mark.parametrize("kind", TYPES, ids=[kind.name for kind in TYPES])
def test_every_type_is_decoded_as_the_package_decodes_it(octavo, kind):
    wanted = gguf_model.write_model(octavo.folder / "m.gguf", kind, seed=int(kind))
    octavo.good("dequantize", "m.gguf", "-o", "out", "--dtype", "f32")
    found = load_file(octavo.folder / "out/model.safetensors")
    assert set(found) == set(wanted)
    for name, values in wanted.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(bits(found[name]), bits(values), err_msg=name)


@pytest.mark.parametrize("kind", [Type.Q4_K, Type.Q8_0, Type.F32])
def test_convert_rounds_to_bf16_once(octavo, kind):
    wanted = gguf_model.write_model(octavo.folder / "m.gguf", kind, narrow=True)
    octavo.good("convert", "m.gguf", "-o", "out")
    with safe_open(octavo.folder / "out/model.safetensors", "pt") as file:
        for name, values in wanted.items():
            rounded = values.astype(ml_dtypes.bfloat16).astype(np.float32)
            found = file.get_tensor(name)
            assert str(found.dtype) == "torch.bfloat16"
            np.testing.assert_array_equal(bits(found.float().numpy()), bits(rounded))


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_other_architectures_keep_their_rows(octavo, architecture):
    wanted = gguf_model.write_model(octavo.folder / "m.gguf", Type.Q8_0, architecture)
    octavo.good("dequantize", "m.gguf", "-o", "out", "--dtype", "f32")
    found = load_file(octavo.folder / "out/model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    np.testing.assert_array_equal(bits(found[name]), bits(wanted[name]))
    config = json.loads((octavo.folder / "out/config.json").read_text())
    assert config["model_type"] == architecture
    assert config["head_dim"] == gguf_model.HIDDEN // gguf_model.HEADS


def test_the_config_is_the_models(octavo):
    gguf_model.write_model(octavo.folder / "m.gguf", Type.Q4_1)
    octavo.good("convert", "m.gguf", "-o", "out")
    config = json.loads((octavo.folder / "out/config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["hidden_size"] == 256 and config["intermediate_size"] == 512
    assert config["num_attention_heads"] == 4 and config["num_key_value_heads"] == 2
    assert config["rms_norm_eps"] == 1e-5 and config["rope_theta"] == 100000
    assert config["vocab_size"] == 64 and config["tie_word_embeddings"] is True
    assert config["bos_token_id"] == 0 and config["eos_token_id"] == 1
    assert config["dtype"] == "bfloat16"


def merges_of(folder: Path) -> list[str]:
    """Pairs, of tokens without a space."""
    pairs = json.loads((folder / "tokenizer.json").read_text())["model"]["merges"]
    return [" ".join(pair) for pair in pairs]


def test_a_byte_level_tokenizer_is_written(octavo):
    gguf_model.write_model(octavo.folder / "m.gguf", Type.Q8_0)
    octavo.good("convert", "m.gguf", "-o", "out")
    tokenizer = json.loads((octavo.folder / "out/tokenizer.json").read_text())
    assert len(tokenizer["model"]["vocab"]) == 64
    assert tokenizer["model"]["vocab"]["the"] == 30
    assert merges_of(octavo.folder / "out") == ["t h", "th e", "\u0120 a", "a n"]
    parts = tokenizer["pre_tokenizer"]["pretokenizers"]
    assert [part["type"] for part in parts] == ["Digits", "ByteLevel"]
    special = [token for token in tokenizer["added_tokens"] if token["special"]]
    assert [token["content"] for token in special] == ["<|bos|>", "<|eos|>"]
    words = json.loads((octavo.folder / "out/tokenizer_config.json").read_text())
    assert words["bos_token"] == "<|bos|>" and words["chat_template"] == "{{ messages }}"


def test_merges_of_pieces_are_in_the_order_of_scores(octavo):
    gguf_model.write_model(
        octavo.folder / "m.gguf", Type.Q8_0, tokenizer=gguf_model.add_sentence_piece
    )
    octavo.good("convert", "m.gguf", "-o", "out")
    # A token is merged from each pair of tokens that it is made of; the highest score comes first.
    assert merges_of(octavo.folder / "out") == [
        "\u2581 t",
        "h e",
        "\u2581 the",
        "\u2581t he",
        "t h",
        "t he",
        "th e",
        "a n",
        "\u2581 a",
    ]


def test_a_tokenizer_that_octavo_does_not_know_is_left_out_with_a_note(octavo):
    def strange(writer):
        gguf_model.add_byte_level(writer)
        writer.add_tokenizer_pre("strange")

    gguf_model.write_model(octavo.folder / "m.gguf", Type.Q8_0, tokenizer=strange)
    done = octavo.good("convert", "m.gguf", "-o", "out")
    assert "no tokenizer.json is made" in done.out and "strange" in done.out
    assert not (octavo.folder / "out/tokenizer.json").exists()


def test_inspect_shows_types_of_the_file(octavo):
    gguf_model.write_model(octavo.folder / "m.gguf", Type.Q4_K, narrow=True)
    seen = octavo.good("inspect", "m.gguf", "--json", "--stats").json
    by_name = {tensor["name"]: tensor for tensor in seen["tensors"]}
    q = by_name["model.layers.0.self_attn.q_proj.weight"]
    assert q["type"] == "Q4_K" and q["bytes"] == 256 * 144 and q["shape"] == [256, 256]
    assert by_name["model.norm.weight"]["type"] == "F32"
    assert seen["dialect"] == "gguf" and q["quantized"]
    assert "8 quantized weights (gguf)" in octavo.good("inspect", "m.gguf").out
    assert seen["bytes"] < (octavo.folder / "m.gguf").stat().st_size


def stored_bytes(tensor) -> bytes:
    return bytes(tensor.contiguous().untyped_storage())


def test_quantize_takes_the_exact_values(octavo):
    """From the GGUF file, and from the same numbers as a safetensors file: the same codes."""
    gguf_model.write_model(octavo.folder / "m.gguf", Type.Q5_K, narrow=True)
    octavo.good("quantize", "m.gguf", "-o", "a", "--recipe", "mxfp8")
    octavo.good("dequantize", "m.gguf", "-o", "plain", "--dtype", "f32")
    octavo.good("quantize", "plain", "-o", "b", "--recipe", "mxfp8")
    with (
        safe_open(octavo.folder / "a/model.safetensors", "pt") as a,
        safe_open(octavo.folder / "b/model.safetensors", "pt") as b,
    ):
        names = set(a.keys())
        assert names == set(b.keys())
        quantized = [name for name in names if name.endswith("_scale")]
        assert len(quantized) == 7
        for scale in quantized:
            name = scale.removesuffix("_scale")
            for part in (name, scale):
                assert stored_bytes(a.get_tensor(part)) == stored_bytes(b.get_tensor(part)), part
        # What is not quantized has the type that the config says.
        assert str(a.get_tensor("model.norm.weight").dtype) == "torch.bfloat16"
    assert (octavo.folder / "a/tokenizer.json").exists()


def test_compare_sees_an_ordinary_checkpoint_and_verify_refuses(octavo):
    gguf_model.write_model(octavo.folder / "m.gguf", Type.Q6_K, narrow=True)
    octavo.good("quantize", "m.gguf", "-o", "out", "--recipe", "fp8-channel")
    seen = octavo.good("compare", "m.gguf", "out", "--json").json
    assert len(seen["tensors"]) == len(gguf_model.SHAPES)
    octavo("verify", "m.gguf").refused(1, "GGUF", "octavo compare")


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_and_threads_change_nothing(octavo, threads):
    gguf_model.write_model(octavo.folder / "m.gguf", Type.Q3_K, narrow=True)
    octavo.good("convert", "m.gguf", "-o", "a")
    octavo.good("convert", "m.gguf", "-o", "b", "--threads", threads, "--max-memory", "16M")
    one = (octavo.folder / "a/model.safetensors").read_bytes()
    assert one == (octavo.folder / "b/model.safetensors").read_bytes()


def test_a_finished_folder_is_left_alone(octavo):
    gguf_model.write_model(octavo.folder / "m.gguf", Type.Q8_0, narrow=True)
    octavo.good("convert", "m.gguf", "-o", "out")
    (octavo.folder / "out/tokenizer.json").unlink()
    done = octavo.good("convert", "m.gguf", "-o", "out", "--resume", "--json").json
    assert done["was_complete"] and done["written_again"] == ["tokenizer.json"]
    assert (octavo.folder / "out/tokenizer.json").exists()


def test_refusals(octavo):
    gguf_model.write_model(octavo.folder / "m.gguf", Type.Q8_0, narrow=True)
    data = (octavo.folder / "m.gguf").read_bytes()
    (octavo.folder / "cut.gguf").write_bytes(data[: len(data) // 2])
    octavo("inspect", "cut.gguf").refused(1, "get the whole file")
    (octavo.folder / "text.gguf").write_text("no model")
    octavo("inspect", "text.gguf").refused(1, "no GGUF file")
    octavo("convert", "m.gguf", "-o", "o", "--target", "modelopt").refused(1, "GGUF file")
    octavo("convert", ".", "-o", "o").refused(2, "got no --target")
