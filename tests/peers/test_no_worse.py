"""octavo beside llm-compressor's model_free_ptq: same model, same scheme."""

import models
import pytest
import torch

SCHEMES = [  # octavo's recipe, llm-compressor's scheme, octavo's options
    ("fp8-channel", "FP8_DYNAMIC", []),
    ("fp8-block", "FP8_BLOCK", []),
    ("mxfp8", "MXFP8", []),
    ("mxfp4", "MXFP4A16", []),
    ("nvfp4", "NVFP4A16", []),
]
LEFT_ALONE = ["lm_head", "re:.*embed_tokens", "re:.*mlp.gate$"]


def weight_error(source, plain):
    """Over all weights that were quantized, relative."""
    from safetensors.torch import load_file

    before = load_file(source / "model.safetensors")
    after = load_file(plain / "model.safetensors")
    error = value = 0.0
    for name, weight in before.items():
        if "proj" in name:
            error += (weight.double() - after[name].double()).square().sum().item()
            value += weight.double().square().sum().item()
    return (error / value) ** 0.5


def test_the_rule_of_mxfp4_is_the_better_one(model, tmp_path):
    """`even`, which checkpoints get, beside `rceil`, which arrays get."""
    errors = {}
    for rule in ("even", "rceil"):
        folder = tmp_path / rule
        folder.mkdir()
        words = ["--recipe", "mxfp4", *([] if rule == "even" else ["--scale-rule", rule])]
        models.octavo("quantize", model, "-o", folder / "q", *words)
        models.octavo("dequantize", folder / "q", "-o", folder / "p", "--dtype", "f32")
        errors[rule] = weight_error(model, folder / "p")
    print(f"{model.name} mxfp4: even {errors['even']:.6f}, rceil {errors['rceil']:.6f}")
    assert errors["even"] < errors["rceil"]


@pytest.mark.parametrize(("recipe", "scheme", "more"), SCHEMES)
def test_weights_are_no_further_from_the_source(model, recipe, scheme, more, tmp_path):
    from llmcompressor import model_free_ptq

    words = ["--recipe", recipe, "--target", "compressed-tensors", *more]
    # transformers loads experts of NVFP4 wrong, without an error: of theirs, too.
    silent = model.name == "moe" and recipe == "nvfp4"
    models.octavo("quantize", model, "-o", tmp_path / "q", *words, codes=(1,) if silent else (0,))
    model_free_ptq(
        str(model), str(tmp_path / "theirs"), scheme=scheme, ignore=LEFT_ALONE, device="cpu",
        max_workers=1,
    )  # fmt: skip
    # Both decoded by octavo, which reads llm-compressor's files too; to f32, so that no rounding is
    # added to either.
    models.octavo("dequantize", tmp_path / "q", "-o", tmp_path / "p", "--dtype", "f32")
    models.octavo("dequantize", tmp_path / "theirs", "-o", tmp_path / "t", "--dtype", "f32")
    ours, theirs = weight_error(model, tmp_path / "p"), weight_error(model, tmp_path / "t")
    print(f"{model.name} {recipe}: {ours:.6f}, llm-compressor {theirs:.6f}")
    assert torch.isfinite(torch.tensor(theirs))
    assert ours <= theirs
