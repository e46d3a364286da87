"""Logits of octavo beside transformers' in f32, on small random models of every family that octavo
runs, on every RoPE scaling, and on every recipe with compressed-tensors."""

import models
import numpy as np
import pytest
import torch
import transformers as tr

octavo = models.package()

# Relative to the largest logit. Both compute in f32 (u = 6e-8) and sum in different orders: a
# product of K <= 96 terms is off by at most (K + 8) u = 6e-6 of the sum of its magnitudes, three
# layers have fifteen in a row. A mistake in a formula changes logits by more than 1e-3.
TOLERANCE = 1e-4
TOKENS = 48

SIZES = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
BASE = {"rope_theta": 1e4}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
GEMMA = {"head_dim": 24, "sliding_window": 9, "query_pre_attn_scalar": 24}


def rope(kind, **more):
    return {"rope_parameters": BASE | {"rope_type": kind} | more}


# name: (config, what differs from SIZES)
FAMILIES = {
    "llama": ("LlamaConfig", {}),
    "llama-bias-tied": (
        "LlamaConfig",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama-linear": ("LlamaConfig", rope("linear", factor=4.0)),
    "llama-dynamic": ("LlamaConfig", {"max_position_embeddings": 32} | rope("dynamic", factor=4.0)),
    "llama-3": (
        "LlamaConfig",
        rope(
            "llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=32,
        ),
    ),
    "llama-yarn": ("LlamaConfig", rope("yarn", factor=4.0, original_max_position_embeddings=32)),
    "mistral-window": ("MistralConfig", {"sliding_window": 7}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-window": (
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "qwen2-moe": ("Qwen2MoeConfig", EXPERTS | {"shared_expert_intermediate_size": 80}),
    "qwen3-moe": (
        "Qwen3MoeConfig",
        EXPERTS | {"head_dim": 32, "norm_topk_prob": True, "mlp_only_layers": [1]},
    ),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "phi3-partial": ("Phi3Config", rope("default", partial_rotary_factor=0.5)),
    "phi3-longrope": (
        "Phi3Config",
        {"original_max_position_embeddings": 24}
        | rope(
            "longrope",
            short_factor=[1.0 + 0.05 * i for i in range(8)],
            long_factor=[2.0 + 0.5 * i for i in range(8)],
        ),
    ),
    "gemma2": ("Gemma2Config", GEMMA),
    "gemma3": (
        "Gemma3TextConfig",
        GEMMA
        | {
            "num_hidden_layers": 7,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "gpt-oss": (
        "GptOssConfig",
        {"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 8},
    ),
}


def make(name, folder):
    """A random model of a family in f32, whose logits show every part: norms are no ones."""
    kind, more = FAMILIES[name]
    torch.manual_seed(0)
    config = getattr(tr, kind)(**(SIZES | more))
    config._attn_implementation = "eager"
    model = tr.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for weight, values in model.named_parameters():
            vector = values.ndim == 1
            spread = 0.3 if vector else 0.5 if "embed" in weight else 0.08
            centre = 1.0 if "norm" in weight and "gemma" not in name else 0.0
            values.copy_(torch.randn_like(values) * spread + centre)
    model.save_pretrained(folder)
    return model


def some_ids(count=TOKENS):
    return np.random.default_rng(0).integers(3, SIZES["vocab_size"], count).tolist()


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def assert_close(got, wanted, tolerance=TOLERANCE):
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("name", FAMILIES)
def test_logits(name, tmp_path):
    model, ids = make(name, tmp_path / "m"), some_ids()
    assert_close(octavo.load_model(tmp_path / "m").logits(ids), logits_of(model, ids))


@pytest.mark.parametrize("name", ["llama", "mistral-window", "qwen3-moe", "gemma3", "gpt-oss"])
def test_greedy_text(name, tmp_path):
    model, ids = make(name, tmp_path / "m"), some_ids(9)
    wanted = model.generate(
        torch.tensor([ids]), max_new_tokens=24, do_sample=False, eos_token_id=None
    )
    got = octavo.load_model(tmp_path / "m").generate(ids, 24, stop_at_eos=False)
    assert list(got) == wanted[0, len(ids) :].tolist()


# Weights are codes; of FP8 and MXFP8 activations are codes, too, and a value that lies between two
# codes may go either way, as scales are multiplied in another order: a step of e4m3 is 2^-3 of a
# value, one in thousands of elements changes, and a logit sums hundreds of them.
RECIPES = {
    "fp8-channel": 1e-2,
    "fp8-block": 1e-2,
    "mxfp8": 1e-2,
    "nvfp4": 1e-2,
    "mxfp4": 1e-2,
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes(recipe, tmp_path):
    models.make("llama", tmp_path / "m")
    models.octavo(
        "quantize", tmp_path / "m", "-o", tmp_path / "q",
        "--recipe", recipe, "--target", "compressed-tensors",
    )  # fmt: skip
    peer = tr.AutoModelForCausalLM.from_pretrained(tmp_path / "q", dtype="auto").eval()
    ids = some_ids()
    wanted = logits_of(peer, ids)
    got = octavo.load_model(tmp_path / "q").logits(ids)
    error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
    print(f"{recipe}: {error:.2e}")
    assert error <= RECIPES[recipe]
