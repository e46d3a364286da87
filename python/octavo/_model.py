"""Models that run: decoders from checkpoints, their logits and the text they write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from octavo import _octavo
from octavo._arrays import NUMPY
from octavo._operation import MOST_THREADS, integer

_MOST_TOKENS: Final = 2**31 - 1
_CACHES: Final = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "fp8": None,
}


class Generated(list[int]):
    """Token ids, and how they came.

    at_eos: did the model end the text? Else max_tokens or the model's positions did.
    prompt_seconds, seconds: for the prompt, and for the tokens after it.
    """

    def __init__(
        self, ids: Iterable[int], at_eos: bool, prompt_seconds: float, seconds: float
    ) -> None:
        super().__init__(ids)
        self.at_eos = at_eos
        self.prompt_seconds = prompt_seconds
        self.seconds = seconds


class Model:
    """A decoder in memory, made by octavo.load_model.

    >>> model = octavo.load_model("model/")
    >>> model.config["layers"]
    30
    >>> model.logits([1, 450, 4996])            # float32, [tokens, vocabulary]
    >>> model.generate([1, 450, 4996], max_tokens=8)
    >>> model.generate("Once upon a time", max_tokens=8)
    """

    def __init__(self, handle: _octavo.Decoder) -> None:
        self._handle = handle
        self._tokenizer: _octavo.Tokenizer | None = None

    def __repr__(self) -> str:
        config = self.config
        return f"<octavo.Model {config['family']}, {config['layers']} layers, {self.nbytes} bytes>"

    @property
    def config(self) -> dict[str, Any]:
        """Sizes and choices of the model, from its config.json."""
        return self._handle.config

    @property
    def nbytes(self) -> int:
        """Of its weights in memory."""
        return self._handle.nbytes

    def logits(self, ids: Iterable[int], *, threads: int = 0) -> np.ndarray:
        """Logits after each of these tokens, float32, [tokens, vocabulary]."""
        op = "Model.logits"
        tensor = self._handle.logits(
            _ids(ids, op), threads=integer(threads, "threads", MOST_THREADS, op)
        )
        return NUMPY.take(tensor)

    def generate(
        self,
        prompt: Iterable[int] | str,
        max_tokens: int = 128,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop_at_eos: bool = True,
        cache: str = "float32",
        threads: int = 0,
        on_token: Callable[[int], bool | None] | None = None,
    ) -> Generated | str:
        """What follows the prompt: token ids after token ids, text after text.

        temperature: 0 takes the most likely token each time (greedy); else tokens are drawn by
            their probability, logits divided by it, of the top_k most likely (0: of all) and the
            fewest that have the probability top_p together. A seed gives the same text again.
        cache: what keys and values are kept as: "float32", "bfloat16", "float16" or "fp8".
        on_token: called with each id as it comes; False ends the text.
        """
        op = "Model.generate"
        if cache not in _CACHES:
            raise ValueError(f"[{op}] got cache={cache!r}; expected one of {', '.join(_CACHES)}")
        tokenizer = None
        if isinstance(prompt, str):
            tokenizer = self._tokens()
            ids = tokenizer.encode(prompt, True)
        else:
            ids = _ids(prompt, op)
        generated = Generated(
            *self._handle.generate(
                ids,
                max_tokens=integer(max_tokens, "max_tokens", _MOST_TOKENS, op),
                temperature=float(temperature),
                top_k=integer(top_k, "top_k", _MOST_TOKENS, op),
                top_p=float(top_p),
                seed=integer(seed, "seed", 2**64 - 1, op),
                stop_at_eos=bool(stop_at_eos),
                cache=_CACHES[cache],
                threads=integer(threads, "threads", MOST_THREADS, op),
                on_token=on_token,
            )
        )
        return generated if tokenizer is None else tokenizer.decode(list(generated), True)

    def _tokens(self) -> _octavo.Tokenizer:
        if self._tokenizer is None:
            self._tokenizer = self._handle.tokenizer()
        return self._tokenizer


def load_model(
    path: str | os.PathLike[str],
    *,
    weights: str | None = None,
    activations: str = "float32",
    threads: int = 0,
) -> Model:
    """A decoder from a folder with config.json and safetensors files, or a GGUF file.

    weights: the type that unquantized weights have in memory, "float32", "bfloat16" or "float16";
        None: as they are in the files. Codes stay codes.
    activations: "float32", or "bfloat16" to round what enters products and attention, as servers
        of bfloat16 checkpoints compute; faster where the CPU multiplies bfloat16. Inputs that the
        checkpoint says are quantized stay so.
    """
    op = "load_model"
    handle = _octavo.Decoder(
        os.fspath(path),
        weights=weights,
        activations=checked_activations(op, activations),
        threads=integer(threads, "threads", MOST_THREADS, op),
    )
    return Model(handle)


def checked_activations(op: str, name: str) -> str:
    if name not in ("float32", "bfloat16"):
        raise ValueError(f"[{op}] got activations={name!r}; expected 'float32' or 'bfloat16'")
    return name


def _ids(ids: Iterable[int], op: str) -> list[int]:
    if isinstance(ids, str):
        raise TypeError(f"[{op}] got a text; expected token ids (generate takes text, too)")
    if isinstance(ids, (bytes, bytearray, memoryview)):  # whose items would pass for ids
        raise TypeError(
            f"[{op}] got {type(ids).__name__}; expected token ids, or for generate a str: decode it"
        )
    return [integer(one, "a token id", _MOST_TOKENS, op) for one in ids]
