"""Logits of octavo beside transformers' in f32, on small random models of every family that octavo
runs, on every RoPE scaling, and on every recipe with compressed-tensors."""

import json

import models
import numpy as np
import pytest
import torch
import transformers as tr
from safetensors.torch import save_file

octavo = models.package()

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


def make(name, folder, **other):
    """A random model of a family in f32, whose logits show every part: norms are no ones."""
    kind, more = FAMILIES[name]
    torch.manual_seed(0)
    config = getattr(tr, kind)(**(SIZES | more | other))
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


def assert_close(name, got, wanted):
    assert got.shape == wanted.shape
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    print(f"{name}: {error:.2e}")
    assert error <= models.TOLERANCE


@pytest.mark.parametrize("name", FAMILIES)
def test_logits(name, tmp_path):
    model, ids = make(name, tmp_path / "m"), some_ids()
    assert_close(name, octavo.load_model(tmp_path / "m").logits(ids), logits_of(model, ids))


@pytest.mark.parametrize("name", ["llama", "mistral-window", "qwen3-moe", "gemma3", "gpt-oss"])
def test_greedy_text(name, tmp_path):
    model, ids = make(name, tmp_path / "m"), some_ids(9)
    wanted = model.generate(
        torch.tensor([ids]), max_new_tokens=24, do_sample=False, eos_token_id=None
    )
    got = octavo.load_model(tmp_path / "m").generate(ids, 24, stop_at_eos=False)
    assert list(got) == wanted[0, len(ids) :].tolist()


def published(stack):
    """[experts, in, out] to blocks and scales as OpenAI publishes them: MXFP4 by nearest code."""
    rows = stack.transpose(1, 2).reshape(stack.shape[0], stack.shape[2], -1, 32)
    exponent = torch.floor(torch.log2(rows.abs().amax(-1))) - 2
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    scaled = rows / torch.exp2(exponent)[..., None]
    codes = (scaled.abs()[..., None] - magnitudes).abs().argmin(-1) + 8 * (scaled < 0)
    return (codes[..., ::2] + 16 * codes[..., 1::2]).byte(), (exponent + 127).byte()


def test_gpt_oss_as_it_is_published(tmp_path):
    """Experts in MXFP4 blocks: transformers decodes them, octavo multiplies codes."""
    model, folder, ids = make("gpt-oss", tmp_path / "values"), tmp_path / "m", some_ids()
    tensors = {}
    for name, values in model.state_dict().items():
        if name.endswith(("gate_up_proj", "down_proj")):
            tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = published(values)
        else:
            tensors[name] = values
    folder.mkdir()
    save_file({name: values.contiguous() for name, values in tensors.items()},
              folder / "model.safetensors", metadata={"format": "pt"})  # fmt: skip
    config = json.loads((tmp_path / "values" / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": []}
    (folder / "config.json").write_text(json.dumps(config))
    decoded = tr.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=tr.Mxfp4Config(dequantize=True)
    ).float()
    wanted = logits_of(decoded.eval(), ids)
    assert np.abs(wanted - logits_of(model, ids)).max() > 1e-2  # the codes are in use
    assert_close("gpt-oss, published", octavo.load_model(folder).logits(ids), wanted)


# Between the 1024 tokens that octavo computes at a time and the length of the prompt.
LONG = {"llama-dynamic": {}, "phi3-longrope": {"original_max_position_embeddings": 1050}}


@pytest.mark.parametrize("name", LONG)
def test_greedy_text_after_a_long_prompt(name, tmp_path):
    """RoPE frequencies are those of the prompt's length, not of the part that is computed."""
    positions = 1050 if name == "llama-dynamic" else 2048
    model = make(name, tmp_path / "m", max_position_embeddings=positions, **LONG[name])
    ids = some_ids(1100)
    wanted = model.generate(
        torch.tensor([ids]), max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    got = octavo.load_model(tmp_path / "m").generate(ids, 12, stop_at_eos=False)
    assert list(got) == wanted[0, len(ids) :].tolist()


@pytest.mark.parametrize("recipe", models.RECIPES)
def test_recipes(recipe, tmp_path):
    """Prompts of three tokens: where inputs are quantized, most of them have no input that lies so
    near to the middle of two codes that the last bits decide. A step of e4m3 is 2^-4 of a value or
    more, inputs differ by some 2^-20 of themselves, and each prompt has 7680 of them: one of eight
    prompts has such an input, or fewer."""
    models.make("llama", tmp_path / "m", dtype=torch.float32)  # or the peer decodes to bf16
    ids = np.random.default_rng(0).integers(0, models.SIZES["vocab_size"], (16, 3)).tolist()
    got, wanted, weights_only = models.logits_of_recipe(
        octavo, tmp_path / "m", tmp_path / "r", recipe, ids
    )
    errors = [
        np.abs(one - other).max() / np.abs(other).max()
        for one, other in zip(got, wanted, strict=True)
    ]
    print(f"{recipe}: {np.median(errors):.2e}, at most {max(errors):.2e}")
    if weights_only is None:
        assert max(errors) <= models.tolerance_of(recipe, 2)
        return
    # The peer's scale of a token in int8 is amax / 127.5, that of servers and octavo amax / 127.
    assert recipe == "int8-channel" or np.median(errors) <= models.TOLERANCE
    models.check_quantized_inputs(got, wanted, weights_only)
