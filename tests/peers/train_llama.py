"""Trains a small Llama on texts, and saves it as its authors would: bf16, with its tokenizer.

    python tests/peers/train_llama.py TEXT [TEXT ...] -o FOLDER [--steps 700] [--batch 16]

6.6 million parameters, some ten minutes on two cores. It is for measuring what quantization costs:
weights of SmolLM2's public file lie on the grid of Q4_1, these on none. The seed fixes order and
initial weights; torch's sums may differ between processors, and so may the last bits.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import time

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

WINDOW = 256


def tokenizer_of(texts: list[str], vocabulary: int) -> transformers.PreTrainedTokenizerFast:
    """Byte-level BPE, as Llama 3's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")


def new_model(vocabulary: int) -> transformers.LlamaForCausalLM:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=7,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=WINDOW,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def train(model: transformers.LlamaForCausalLM, ids: torch.Tensor, steps: int, batch: int) -> None:
    """AdamW with warm-up and a cosine; windows are drawn anywhere in the text."""
    generator = torch.Generator().manual_seed(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.95), weight_decay=0.1)
    model.train()
    start = time.monotonic()
    for step in range(steps):
        rate = 3e-3 * min(1.0, (step + 1) / 50) * (0.55 + 0.45 * math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        begins = torch.randint(len(ids) - WINDOW, (batch,), generator=generator)
        rows = torch.stack([ids[begin : begin + WINDOW] for begin in begins.tolist()])
        loss = model(rows, labels=rows).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0 or step + 1 == steps:
            seconds = time.monotonic() - start
            print(f"step {step}: loss {loss.item():.3f}, {seconds:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="+", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--batch", type=int, default=16, help="windows a step")
    parser.add_argument("--vocabulary", type=int, default=4096)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    texts = [path.read_text(errors="replace") for path in arguments.texts]
    tokenizer = tokenizer_of(texts, arguments.vocabulary)
    end = tokenizer.eos_token_id
    ids = torch.tensor([one for text in texts for one in [*tokenizer(text).input_ids, end]])
    model = new_model(len(tokenizer))
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(ids)} tokens")
    train(model, ids, arguments.steps, arguments.batch)
    model.to(torch.bfloat16).save_pretrained(arguments.output)
    tokenizer.save_pretrained(arguments.output)


if __name__ == "__main__":
    main()
