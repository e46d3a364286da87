"""Evaluation and calibration beside the plain definition: a Llama in NumPy, f64, all at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import octavo as ov
import octavo.ray as octavo_ray
from octavo.ray._evaluate import total_of

load_file = pytest.importorskip(
    "safetensors.numpy", reason="safetensors is not installed"
).load_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cli"))
import tiny_model  # noqa: E402

HEADS, KV_HEADS, WIDTH, INNER, VOCABULARY, LAYERS = 4, 2, 64, 96, 96, 3
HEAD = WIDTH // HEADS


def weights(noise: float = 0.0) -> dict[str, np.ndarray]:
    random, other = np.random.default_rng(1), np.random.default_rng(2)

    def matrix(rows: int, cols: int, scale: float) -> np.ndarray:
        plain = random.standard_normal((rows, cols)) * scale
        return (plain + noise * scale * other.standard_normal((rows, cols))).astype(np.float32)

    tensors = {"model.embed_tokens.weight": matrix(VOCABULARY, WIDTH, 1.0)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        for name, rows in (("q", WIDTH), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
            tensors[f"{at}self_attn.{name}_proj.weight"] = matrix(rows, WIDTH, 0.2)
        tensors[f"{at}self_attn.o_proj.weight"] = matrix(WIDTH, WIDTH, 0.2)
        for name in ("gate", "up"):
            tensors[f"{at}mlp.{name}_proj.weight"] = matrix(INNER, WIDTH, 0.2)
        tensors[f"{at}mlp.down_proj.weight"] = matrix(WIDTH, INNER, 0.2)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{name}.weight"] = matrix(1, WIDTH, 1.0)[0]
    tensors["model.norm.weight"] = matrix(1, WIDTH, 1.0)[0]
    tensors["lm_head.weight"] = matrix(VOCABULARY, WIDTH, 0.5)
    return tensors


class Plain:
    """A Llama as its paper has it. Remembers what went into each Linear."""

    def __init__(self, tensors: dict[str, np.ndarray]):
        self.tensors = {name: array.astype(np.float64) for name, array in tensors.items()}
        self.inputs: dict[str, list[np.ndarray]] = {}

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        self.inputs.setdefault(name, []).append(x)
        return x @ self.tensors[f"{name}.weight"].T

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        root = np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-5)
        return x / root * self.tensors[f"{name}.weight"]

    def heads(self, x: np.ndarray, rotated: bool) -> np.ndarray:
        x = x.reshape(len(x), -1, HEAD)
        if rotated:
            frequencies = 10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)
            angles = np.arange(len(x))[:, None] * frequencies
            cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
            a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
            x = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
        return x

    def attention(self, at: str, x: np.ndarray) -> np.ndarray:
        q = self.heads(self.linear(f"{at}q_proj", x), True)
        k = np.repeat(self.heads(self.linear(f"{at}k_proj", x), True), HEADS // KV_HEADS, 1)
        v = np.repeat(self.heads(self.linear(f"{at}v_proj", x), False), HEADS // KV_HEADS, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD)
        scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        out = np.einsum("hqk,khd->qhd", p, v).reshape(len(x), WIDTH)
        return self.linear(f"{at}o_proj", out)

    def states(self, ids: np.ndarray) -> list[np.ndarray]:
        """Hidden states of a window: of the embedding, and after each layer."""
        x = self.tensors["model.embed_tokens.weight"][ids]
        out = [x]
        for i in range(LAYERS):
            at = f"model.layers.{i}."
            x = x + self.attention(f"{at}self_attn.", self.norm(f"{at}input_layernorm", x))
            y = self.norm(f"{at}post_attention_layernorm", x)
            gate, up = self.linear(f"{at}mlp.gate_proj", y), self.linear(f"{at}mlp.up_proj", y)
            x = x + self.linear(f"{at}mlp.down_proj", gate / (1 + np.exp(-gate)) * up)
            out.append(x)
        return out

    def log_softmax(self, ids: np.ndarray) -> np.ndarray:
        logits = self.norm("model.norm", self.states(ids)[-1]) @ self.tensors["lm_head.weight"].T
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, noise in (("original", 0.0), ("noisy", 0.05)):
        tiny_model.runnable(folder / name, LAYERS, weights(noise))
    return folder


IDS = np.random.default_rng(5).integers(0, VOCABULARY, 700)
WINDOWS = np.split(IDS, range(128, 700, 128))


def test_numbers_are_those_of_the_definition(folders):
    seen = ov.evaluate(folders / "noisy", {"ids": IDS.tolist()}, folders / "original", window=128)
    original, model = Plain(weights()), Plain(weights(0.05))
    losses, kls, agrees, excess, cosines, relative = [], [], [], [], [], []
    for ids in WINDOWS:
        p, q = original.log_softmax(ids)[:-1], model.log_softmax(ids)[:-1]
        at = np.arange(len(ids) - 1), ids[1:]
        losses.append(-q[at])
        excess.append(p[at] - q[at])
        kls.append((np.exp(p) * (p - q)).sum(-1))
        agrees.append(p.argmax(-1) == q.argmax(-1))
        pairs = np.array([original.states(ids), model.states(ids)])
        dots = (pairs[0] * pairs[1]).sum(-1)
        norms = np.linalg.norm(pairs, axis=-1)
        cosines.append(dots / norms[0] / norms[1])
        relative.append((np.linalg.norm(pairs[0] - pairs[1], axis=-1) / norms[0]) ** 2)
    loss, kl, agree, more = (np.concatenate(x) for x in (losses, kls, agrees, excess))
    total = seen.models[1]["total"]
    n = len(loss)
    assert total["scored"] == n == 700 - 6
    # f32 beside f64: a logit differs by 1e-6 or so, either way, and means of 694 tokens by less.
    near = pytest.approx
    assert total["log_loss"]["value"] == near(loss.mean(), rel=1e-6)
    assert total["log_loss"]["standard_error"] == near(loss.std(ddof=1) / n**0.5, rel=1e-6)
    assert seen.perplexity == near(np.exp(loss.mean()), rel=1e-6 * loss.mean())
    assert seen.kl == near(kl.mean(), rel=1e-6)
    assert total["kl"]["standard_error"] == near(kl.std(ddof=1) / n**0.5, rel=1e-5)
    assert total["kl"]["largest"] == near(kl.max(), rel=1e-5)
    assert total["kl"]["median"] == near(np.median(kl), rel=1e-5)
    assert total["kl"]["percentile_99"] == near(np.percentile(kl, 99), rel=1e-5)
    assert seen.agreement == agree.mean()
    assert total["excess_loss"]["value"] == near(more.mean(), abs=2e-6)
    assert kl.mean() > 1e-3
    layers = total["layers"]
    assert len(layers) == LAYERS + 1
    for i, layer in enumerate(layers):
        one = 1 - np.concatenate([cosine[i] for cosine in cosines]).mean()
        assert 1 - layer["cosine"] == near(one, rel=1e-5)
        two = np.sqrt(np.concatenate([error[i] for error in relative]).mean())
        assert layer["relative_error"] == near(two, rel=1e-5)


def test_statistics_are_those_of_the_inputs(folders, tmp_path):
    out = tmp_path / "stats.safetensors"
    seen = ov.calibrate(
        folders / "original", {"ids": IDS.tolist()}, out, window=128, hessians="full:o_proj"
    )
    assert seen.tokens == 700 and len(seen.modules) == 7 * LAYERS and seen.notes == []
    model = Plain(weights())
    for ids in WINDOWS:
        model.states(ids)
    stats = load_file(out)
    for name, pieces in model.inputs.items():
        x = np.concatenate(pieces)
        assert stats[f"{name}.rows"] == [700]
        np.testing.assert_allclose(stats[f"{name}.amax"], np.abs(x).max(0), rtol=1e-5)
        np.testing.assert_allclose(stats[f"{name}.mean_square"], np.square(x).mean(0), rtol=1e-5)
        block = x[:, 16:32]
        np.testing.assert_allclose(
            stats[f"{name}.block_hessian"][1], block.T @ block / 700, rtol=1e-4, atol=1e-6
        )
        assert (f"{name}.hessian" in stats) == name.endswith("o_proj")
        if name.endswith("o_proj"):
            np.testing.assert_allclose(
                stats[f"{name}.hessian"], x.T @ x / 700, rtol=1e-4, atol=1e-6
            )


def test_statistics_of_a_run_that_was_stopped(folders, tmp_path):
    def stopped(done, total, *_):
        if 2 * done > total:
            raise KeyboardInterrupt

    texts, state = {"ids": IDS.tolist()}, tmp_path / "state"
    whole, out = tmp_path / "whole.safetensors", tmp_path / "out.safetensors"
    ov.calibrate(folders / "original", texts, whole, window=128)
    with pytest.raises(KeyboardInterrupt):
        ov.calibrate(folders / "original", texts, out, window=128, resume=state, progress=stopped)
    assert json.loads((state / "state.json").read_text())["next_layer"] > 0 and not out.exists()
    with pytest.raises(ValueError, match="the state of another run: models"):
        ov.calibrate(folders / "noisy", texts, out, window=128, resume=state)
    ov.calibrate(folders / "original", texts, out, window=128, resume=state)
    assert out.read_bytes() == whole.read_bytes()
    assert not state.exists()


def test_results_are_objects(folders):
    calls = []
    seen = ov.evaluate(
        [folders / "original", folders / "noisy"],
        {"a": [1, 2, 3], "b": [4, 5, 6, 7]},
        progress=lambda *call: calls.append(call),
    )
    assert [one["model"] for one in seen.models] == [
        str(folders / "original"),
        str(folders / "noisy"),
    ]
    assert [text["text"] for text in seen.models[0]["texts"]] == ["a", "b"]
    assert seen.tokens == 7 and calls and calls[-1][0] <= calls[-1][1]
    assert json.loads(seen.json())["models"] == seen.models
    assert seen.html().startswith("<!DOCTYPE html>")
    assert "perplexity" in repr(seen) and "models" in dir(seen)
    with pytest.raises(AttributeError, match="no original"):
        _ = seen.kl
    with pytest.raises(AttributeError, match="has no 'recipes'"):
        _ = seen.recipes


def test_mistakes(folders, tmp_path):
    model = folders / "original"
    with pytest.raises(TypeError, match=r"\[evaluate\] got bytes for 'a'; expected a str"):
        ov.evaluate(model, {"a": b"a text"})
    with pytest.raises(TypeError, match=r"\[evaluate\] got texts=7"):
        ov.evaluate(model, 7)
    with pytest.raises(FileNotFoundError):
        ov.evaluate(model, ["missing.txt"])
    with pytest.raises(RuntimeError, match="no tokenizer"):
        ov.evaluate(model, {"a": "a text"})
    with pytest.raises(ValueError, match="two at least"):
        ov.evaluate(model, {"a": [1]})
    with pytest.raises(ValueError, match="has the id 96"):
        ov.evaluate(model, {"a": [1, 96]})
    with pytest.raises(ValueError, match="window"):
        ov.evaluate(model, {"a": [1, 2]}, window=1)
    with pytest.raises(ValueError, match="positions"):
        ov.evaluate(model, {"a": [1, 2]}, window=1000)
    with pytest.raises(ValueError, match="max_memory"):
        ov.evaluate(model, {"a": [1, 2]}, max_memory=1000)
    with pytest.raises(ValueError, match="hessians"):
        ov.calibrate(model, {"a": [1, 2]}, tmp_path / "x.safetensors", hessians="all")
    with pytest.raises(KeyboardInterrupt):

        def interrupted(*_):
            raise KeyboardInterrupt

        ov.evaluate(model, {"a": [1, 2]}, progress=interrupted)


class Handle:
    """An evaluation's handle, with these numbers of the last model."""

    def __init__(self, **estimates: float | None):
        total = {name: {"value": value} for name, value in estimates.items()}
        self.said = json.dumps({"against": "original", "models": [{"total": total}]})

    def json(self) -> str:
        return self.said


def test_what_is_not_known_is_not_zero():
    """JSON has null where logits were not finite."""
    unknown = ov.Evaluation(Handle(perplexity=None, kl=None, agreement=None))
    assert all(np.isnan([unknown.perplexity, unknown.kl, unknown.agreement]))
    zero = ov.Evaluation(Handle(perplexity=1.0, kl=0.0, agreement=0.0))
    assert (zero.perplexity, zero.kl, zero.agreement) == (1.0, 0.0, 0.0)


def test_a_loss_beyond_exp_has_no_perplexity():
    """A broken model loses more than 709 nats a token; its other numbers are still there."""
    loss = {"value": 800.0, "standard_error": 1.0}
    total = total_of([{"tokens": 3, "scored": 2, "log_loss": loss}])
    assert total["perplexity"] == {"value": None, "standard_error": None}
    assert total["log_loss"]["value"] == 800.0


def test_a_cluster_takes_activations():
    with pytest.raises(ValueError, match="activations='int4'"):
        octavo_ray.evaluate("model", {"a": [1, 2]}, activations="int4")
