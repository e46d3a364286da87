"""A BERT encoder's forward pass in NumPy: sentences in, unit vectors out.

embed(weights, config, tokenizer, sentences) is what sentence-transformers does with a BertModel,
mean pooling and normalization. Sentences of one length go through together, so nothing is padded
and no mask is needed.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np


def erf(x: np.ndarray) -> np.ndarray:
    """Abramowitz and Stegun 7.1.26: off by at most 1.5e-7, about what float32 can hold."""
    t = np.abs(x)
    t *= 0.3275911
    t += 1
    np.divide(1, t, out=t)
    series = np.full_like(t, 1.061405429)  # a term at a time, in place: memory is what is slow here
    for term in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series *= t
        series += term
    series *= t
    np.multiply(x, x, out=t)
    np.negative(t, out=t)
    np.exp(t, out=t)
    series *= t
    np.subtract(1, series, out=series)
    return np.copysign(series, x, out=series)


def gelu(x: np.ndarray) -> np.ndarray:
    y = erf(x * np.float32(1 / math.sqrt(2)))
    y += 1
    y *= x
    y *= 0.5
    return y


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class Bert:
    def __init__(self, weights: dict[str, np.ndarray], config: dict):
        self.weights = weights
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.epsilon = config["layer_norm_eps"]

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        # As one matrix: NumPy would multiply a stack of small ones one by one.
        rows = x.reshape(-1, x.shape[-1])
        y = rows @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]
        return y.reshape(*x.shape[:-1], -1)

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.epsilon)
        return scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def attention(self, name: str, x: np.ndarray) -> np.ndarray:
        batch, length, width = x.shape

        def split(part: str) -> np.ndarray:  # [batch, head, length, width of a head]
            y = self.linear(f"{name}.self.{part}", x)
            return y.reshape(batch, length, self.heads, -1).transpose(0, 2, 1, 3)

        q, k, v = split("query"), split("key"), split("value")
        scores = softmax(q @ k.transpose(0, 1, 3, 2) / math.sqrt(width // self.heads))
        mixed = (scores @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        return self.linear(f"{name}.output.dense", mixed)

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        """Token numbers [batch, length] to hidden states [batch, length, width]."""
        table = self.weights
        x = table["embeddings.word_embeddings.weight"][tokens]
        x = x + table["embeddings.position_embeddings.weight"][: tokens.shape[1]]
        x = x + table["embeddings.token_type_embeddings.weight"][0]
        x = self.norm("embeddings.LayerNorm", x)
        for i in range(self.layers):
            at = f"encoder.layer.{i}"
            x = self.norm(
                f"{at}.attention.output.LayerNorm", x + self.attention(f"{at}.attention", x)
            )
            inner = gelu(self.linear(f"{at}.intermediate.dense", x))
            x = self.norm(f"{at}.output.LayerNorm", x + self.linear(f"{at}.output.dense", inner))
        return x


def embed(weights: dict, config: dict, tokenizer, sentences: list[str]) -> np.ndarray:
    tokenizer.no_padding()
    by_length = defaultdict(list)
    for i, encoding in enumerate(tokenizer.encode_batch(sentences)):
        by_length[len(encoding.ids)].append((i, encoding.ids))
    out = np.empty((len(sentences), config["hidden_size"]), np.float32)
    model = Bert(weights, config)
    for group in by_length.values():
        places, tokens = zip(*group, strict=True)
        out[list(places)] = model(np.array(tokens)).mean(axis=1)
    return out / np.linalg.norm(out, axis=1, keepdims=True)
