#!/usr/bin/env python3
"""Writes checkpoint_modelopt/: the weights of a one-layer model, and what ModelOpt's export makes
of them, tensor by tensor, with its config files.

    make peers && .venv-peers/bin/python tests/conformance/generate_checkpoint_modelopt.py

The model's weights are random with a few outliers and a row of zeros. FP8 with one scale per tensor
is exported from an F32 model and from a BF16 model, where ModelOpt rounds quotients to BF16 before
it encodes them. Scales of activations are left out: they come from data, not from weights.
"""

import json
import pathlib
import shutil
import tempfile

import modelopt
import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.export import export_hf_checkpoint
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

OUT = pathlib.Path(__file__).resolve().parent / "checkpoint_modelopt"
SCHEMES = {  # file, named for octavo's recipe: ModelOpt's config, type of the model
    "fp8": ("FP8_DEFAULT_CFG", torch.float32),
    "fp8-bf16": ("FP8_DEFAULT_CFG", torch.bfloat16),
    "fp8-channel": ("FP8_PER_CHANNEL_PER_TOKEN_CFG", torch.bfloat16),
    "mxfp8": ("MXFP8_DEFAULT_CFG", torch.bfloat16),
    "nvfp4": ("W4A16_NVFP4_CFG", torch.bfloat16),
}


def make_model(dtype):
    torch.manual_seed(8)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=16,
        tie_word_embeddings=False,
        architectures=["LlamaForCausalLM"],  # its export looks there
    )
    model = LlamaForCausalLM(config).bfloat16()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "proj" in name:
                weight[3] = 0
                weight[5, 7] *= 9
                weight[7] *= 2.0**-6
    return model.to(dtype)


def main():
    OUT.mkdir(exist_ok=True)
    save_file(make_model(torch.bfloat16).state_dict(), OUT / "source.safetensors", {"format": "pt"})
    ids = torch.arange(16).reshape(1, 16)
    configs = {"modelopt": modelopt.__version__}
    for recipe, (config, dtype) in SCHEMES.items():
        model = make_model(dtype)
        mtq.quantize(model, getattr(mtq, config), forward_loop=lambda m: m(ids))
        folder = pathlib.Path(tempfile.mkdtemp())
        export_hf_checkpoint(model, dtype=dtype, export_dir=folder)
        tensors = load_file(folder / "model.safetensors")
        kept = {k: v for k, v in tensors.items() if "proj" in k and not k.endswith("input_scale")}
        save_file(kept, OUT / f"{recipe}.safetensors")
        configs[recipe] = {
            "quantization_config": json.loads((folder / "config.json").read_text())[
                "quantization_config"
            ],
            "hf_quant_config": json.loads((folder / "hf_quant_config.json").read_text()),
        }
        shutil.rmtree(folder)
    (OUT / "configs.json").write_text(json.dumps(configs, indent=2) + "\n")


if __name__ == "__main__":
    main()
