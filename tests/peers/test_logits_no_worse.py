"""Logits against bf16: octavo beside llm-compressor's model_free_ptq, over several models.

One model's logits say little: where weights have the same error, which of two roundings hits the
logits harder is chance. So errors are means over eight models, weights alone (activations as they
are), and octavo's may exceed the other's by no more than the standard error of the mean difference.
"""

import statistics

import models
import pytest
from test_no_worse import LEFT_ALONE, SCHEMES

SEEDS = range(8)


@pytest.mark.parametrize(("recipe", "scheme", "more"), SCHEMES)
def test_mean_logit_error(recipe, scheme, more, tmp_path):
    from llmcompressor import model_free_ptq

    ours, theirs = [], []
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        source = models.make("llama", folder / "m", seed)
        words = ["--recipe", recipe, "--target", "compressed-tensors", *more]
        models.octavo("quantize", source, "-o", folder / "q", *words)
        model_free_ptq(
            str(source), str(folder / "t"), scheme=scheme, ignore=LEFT_ALONE, device="cpu",
            max_workers=1,
        )  # fmt: skip
        wanted = models.logits(source)
        for name, errors in (("q", ours), ("t", theirs)):
            alone = models.without_activations(folder / name, folder / f"{name}-alone")
            errors.append(models.relative(models.logits(alone), wanted))
    mean, other = statistics.mean(ours), statistics.mean(theirs)
    spread = statistics.stdev(a - b for a, b in zip(ours, theirs, strict=True)) / len(ours) ** 0.5
    print(f"{recipe}: logits {mean:.5f}, llm-compressor {other:.5f}, standard error {spread:.5f}")
    assert mean <= other + spread
