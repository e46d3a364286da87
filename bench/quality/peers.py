"""What other tools make of a model: python peers.py TOOL RECIPE POLICY MODEL OUT --text FILE

Weights alone are quantized, as octavo's recipes nvfp4 and mxfp4 do; lm_head stays. Calibration sees
the same tokens in the same windows. Runs in the environment of `make peers`.
"""

from __future__ import annotations

import argparse
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SCHEMES = {"nvfp4": "NVFP4A16", "mxfp4": "MXFP4A16"}


def windows_of(arguments: argparse.Namespace, tokenizer) -> list[torch.Tensor]:
    ids = tokenizer(arguments.text.read_text(), return_tensors="pt").input_ids[0]
    return list(ids[: arguments.tokens].split(arguments.window))


def by_llm_compressor(arguments: argparse.Namespace, model, tokenizer) -> None:
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier

    words = {"targets": "Linear", "scheme": SCHEMES[arguments.recipe], "ignore": ["lm_head"]}
    more = {}
    if arguments.policy == "gptq":
        rows = [window.tolist() for window in windows_of(arguments, tokenizer)]
        rows = [row for row in rows if len(row) == arguments.window]
        more = {
            "dataset": Dataset.from_dict(
                {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}
            ),
            "num_calibration_samples": len(rows),
            "max_seq_length": arguments.window,
        }
        recipe = GPTQModifier(**words)
    else:
        recipe = QuantizationModifier(**words)
    oneshot(model=model, tokenizer=tokenizer, recipe=recipe, **more)
    model.save_pretrained(arguments.out, save_compressed=True)
    tokenizer.save_pretrained(arguments.out)


def by_modelopt(arguments: argparse.Namespace, model, tokenizer) -> None:
    import copy

    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    # Its recipe with scales that a search of errors chooses, and W4A16, which takes the largest.
    searched = copy.deepcopy(mtq.NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG)
    searched["quant_cfg"].append({"quantizer_name": "*input_quantizer", "enable": False})
    config = searched if arguments.policy == "mse" else mtq.W4A16_NVFP4_CFG

    def forward(model) -> None:
        for window in windows_of(arguments, tokenizer):
            model(window[None])

    mtq.quantize(model, config, forward)
    with torch.inference_mode():
        export_hf_checkpoint(model, export_dir=arguments.out)
    tokenizer.save_pretrained(arguments.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", choices=("llm-compressor", "modelopt"))
    parser.add_argument("recipe", choices=SCHEMES)
    parser.add_argument("policy", choices=("rtn", "max", "mse", "gptq"))
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--window", type=int, required=True)
    arguments = parser.parse_args()
    # The files' bfloat16 is exact in float32, in which a CPU calibrates several times as fast.
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    tools = {"llm-compressor": by_llm_compressor, "modelopt": by_modelopt}
    tools[arguments.tool](arguments, model, tokenizer)


if __name__ == "__main__":
    main()
