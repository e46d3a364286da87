"""The tensors that `octavo verify` expects of a model type are those that transformers saves:
nothing that it saves is a finding, and every tensor left out is one."""

import json

import models
import pytest
import test_model_families
import transformers as hf
from safetensors.torch import load_file, save_file

octavo = models.package()

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
}
EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SHARED = {"shared_expert_intermediate_size": 48}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
KINDS = {
    "llama": hf.LlamaConfig(**SIZES),
    "llama, tied": hf.LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama with biases": hf.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "mistral": hf.MistralConfig(**SIZES),
    "qwen2": hf.Qwen2Config(**SIZES),
    "qwen3": hf.Qwen3Config(**SIZES, head_dim=32),
    "qwen3 with biases": hf.Qwen3Config(**SIZES, attention_bias=True),
    "qwen2_moe": hf.Qwen2MoeConfig(**SIZES, **EXPERTS, **SHARED, mlp_only_layers=[0]),
    "qwen3_moe": hf.Qwen3MoeConfig(**SIZES, **EXPERTS, head_dim=32),
    "mixtral": hf.MixtralConfig(**SIZES, num_local_experts=3),
    "deepseek_v2": hf.DeepseekV2Config(**(SIZES | LATENT)),
    "deepseek_v2, lite": hf.DeepseekV2Config(**(SIZES | LATENT | {"q_lora_rank": None})),
    "deepseek_v3": hf.DeepseekV3Config(**(SIZES | LATENT)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_what_is_asked_for(kind, tmp_path):
    model = hf.AutoModelForCausalLM.from_config(KINDS[kind]).bfloat16()
    model.save_pretrained(tmp_path)
    assert models.verdict(tmp_path) == []
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for left_out in tensors:
        save_file({k: v for k, v in tensors.items() if k != left_out}, file, {"format": "pt"})
        said = {
            line["tensor"] for line in models.verdict(tmp_path) if line["rule"] == "architecture"
        }
        assert said == {left_out}
    save_file(tensors, file, {"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": 128}))
    assert any(line["rule"] == "shapes" for line in models.verdict(tmp_path))


# Of arrays alone: no loader has weights of it.
NOT_OF_CHECKPOINTS = {"mxint8"}
RECIPES = [name for name in octavo.preset_names() if name not in NOT_OF_CHECKPOINTS]
IMPLAUSIBLE = {"plausible", "magnitude", "second-level"}


def implausible(folder, recipe, tmp_path):
    """The rules of magnitudes that a quantized folder breaks."""
    words = [folder, "-o", tmp_path / "q", "--recipe", recipe]
    models.octavo("quantize", *words, "--target", "octavo")
    config = tmp_path / "q" / "config.json"
    said = json.loads(config.read_text())
    del said["octavo"]["sums"]  # with which the file is trusted
    config.write_text(json.dumps(said))
    return {one["rule"] for one in models.verdict(tmp_path / "q")} & IMPLAUSIBLE


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("kind", KINDS)
def test_magnitudes_of_every_kind_are_plausible(kind, recipe, tmp_path):
    hf.AutoModelForCausalLM.from_config(KINDS[kind]).bfloat16().save_pretrained(tmp_path / "model")
    assert not implausible(tmp_path / "model", recipe, tmp_path)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("family", test_model_families.FAMILIES)
def test_magnitudes_of_every_family_are_plausible(family, recipe, tmp_path):
    """Those that octavo runs: weights are larger there than new models have them, and biases and
    norms are no zeros and ones."""
    test_model_families.make(family, tmp_path / "model")
    assert not implausible(tmp_path / "model", recipe, tmp_path)
