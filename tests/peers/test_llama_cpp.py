"""GGUF files in llama.cpp: it loads them, and computes what the dequantized model computes."""

import json

import models
import pytest
import torch
import transformers
import xllamacpp

TOP = 20


def byte_level_tokenizer(folder, size):
    """Every byte a token, one merge, and names for the rest of the vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]
    tokens = letters + ["th"] + [f"<extra{i}>" for i in range(size - 257)]
    end = {
        "id": size - 1,
        "content": tokens[-1],
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    cut = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    tokenizer = {
        "added_tokens": [end],
        "normalizer": None,
        "pre_tokenizer": cut | {"trim_offsets": True},
        "decoder": cut | {"trim_offsets": True},
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": ["t h"],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": tokens[-1]}))


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf") / request.param
    torch.manual_seed(3)
    if request.param == "llama":
        kind = transformers.LlamaForCausalLM(transformers.LlamaConfig(**models.SIZES))
    else:
        kind = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**models.SIZES, head_dim=64))
    # Attention of small random weights is nearly uniform, whatever the order of Q's rows.
    for name, weight in kind.named_parameters():
        if ".self_attn." in name:
            weight.data *= 2 if "norm" in name else 4
    kind.bfloat16().save_pretrained(folder)
    byte_level_tokenizer(folder, models.SIZES["vocab_size"])
    return folder


def complete(path, prompt):
    """llama.cpp's answer of one token, with the most probable ones."""
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup = 128, 1, False
    params.cpuparams.n_threads = 2
    params.verbosity = -1
    server = xllamacpp.Server(params)
    request = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": TOP}
    return server.handle_completions(request)


def log_probabilities(folder, ids):
    kind = transformers.AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].float(), -1)


@pytest.mark.parametrize("recipe", ["mxfp4", "mxint8"])
def test_probabilities_are_those_of_the_dequantized_model(model, recipe, tmp_path):
    file, plain = tmp_path / "model.gguf", tmp_path / "plain"
    models.octavo("quantize", model, "-o", file, "--recipe", recipe, "--target", "gguf")
    models.octavo("dequantize", file, "-o", plain, "--dtype", "f32")
    draw = torch.Generator().manual_seed(1)
    ids = [int(i) for i in torch.randint(0, 1000, (24,), generator=draw)]
    ours = log_probabilities(plain, ids)
    theirs = complete(file, ids)["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    assert len(theirs) == TOP
    # llama.cpp rounds activations to Q8_0 (half a step of 1/127 of a block's largest, about 2^-8)
    # before each of the fifteen products on the way, and the logits of the top are near 1: a few
    # times 2^-8, 0.014 when this was written. With the rows of Q as the model has them it was 0.85.
    for token in theirs:
        assert abs(token["logprob"] - ours[token["id"]].item()) < 0.05


def test_text_is_cut_as_the_tokenizer_does(model, tmp_path):
    file, plain = tmp_path / "model.gguf", tmp_path / "plain"
    models.octavo("quantize", model, "-o", file, "--recipe", "mxfp4", "--target", "gguf")
    models.octavo("convert", file, "-o", plain)
    text = "then 123 other things"
    fast = transformers.PreTrainedTokenizerFast
    wanted = fast(tokenizer_file=str(model / "tokenizer.json"))(text)["input_ids"]
    assert complete(file, text)["usage"]["prompt_tokens"] == len(wanted)
    back = fast(tokenizer_file=str(plain / "tokenizer.json"))
    assert back(text)["input_ids"] == wanted
    assert back.decode(wanted) == text
