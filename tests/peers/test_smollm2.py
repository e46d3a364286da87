"""`octavo.load_model` beside transformers on SmolLM2-135M: logits, greedy text, recipes."""

import os

import models
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

octavo = models.package()
TOKENS = 256


@pytest.fixture(scope="module")
def ids(smol):
    text = models.TEXT.read_text()
    return AutoTokenizer.from_pretrained(smol)(text).input_ids[:TOKENS]


def peer_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def largest_error(got, wanted):
    return np.abs(got - wanted).max() / np.abs(wanted).max()


def test_logits(smol, ids):
    error = largest_error(octavo.load_model(smol).logits(ids), models.logits_in_f32(smol, [ids])[0])
    print(f"logits of {len(ids)} tokens: {error:.2e}")
    assert error <= models.TOLERANCE


def test_logits_of_a_prompt_in_parts(smol):
    """More tokens than octavo computes at a time: the next ones are the peer's."""
    text = models.TEXT.read_text()
    ids = AutoTokenizer.from_pretrained(smol)(text).input_ids[:1500]
    wanted = models.logits_in_f32(smol, [ids])[0][-1].argmax()
    assert octavo.load_model(smol).generate(ids, 1, stop_at_eos=False) == [wanted]


def test_greedy_text(smol):
    tokenizer = AutoTokenizer.from_pretrained(smol)
    prompt = "The licenses for most software are designed to"
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    wanted = peer_of(smol).generate(ids, max_new_tokens=64, do_sample=False, eos_token_id=None)
    wanted = wanted[0, ids.shape[1] :].tolist()
    model = octavo.load_model(smol)
    assert list(model.generate(ids[0].tolist(), 64, stop_at_eos=False)) == wanted
    assert model.generate(prompt, 64, stop_at_eos=False) == tokenizer.decode(wanted)


# Rows of 576 columns are no whole number of blocks of 128.
RECIPES = [recipe for recipe in models.RECIPES if recipe != "fp8-block"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes(recipe, smol, ids, tmp_path):
    source = tmp_path / "float32"
    models.octavo("dequantize", os.environ["OCTAVO_SMOLLM2"], "-o", source, "--dtype", "f32")
    more = ["--tile", "32"] if recipe == "int4" else []
    logits = models.logits_of_recipe(octavo, source, tmp_path / "r", recipe, [ids], more)
    got, wanted, weights_only = logits
    print(f"{recipe}: {largest_error(got[0], wanted[0]):.2e}")
    if weights_only is None:
        assert largest_error(got[0], wanted[0]) <= models.tolerance_of(recipe, 30)
    else:
        models.check_quantized_inputs(got, wanted, weights_only)
