"""Models on texts: perplexity, distance from an original, statistics to calibrate by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from octavo import _checkpoint_arguments as checked
from octavo import _octavo
from octavo._checkpoint_arguments import OnProgress, Path
from octavo._model import checked_activations

# Paths of text files, or texts (or ids of their tokens) by a name.
Texts = Path | Iterable[Path] | Mapping[str, str | Sequence[int]]

_MOST = 1 << 30


class Evaluation:
    """How well models predict texts, side by side.

    models: a dict for each, the original first, with model, is_original, total and texts; total has
    perplexity and log_loss (each a value and its standard_error), tokens and scored, and against an
    original kl, agreement, excess_loss and layers (cosine and relative_error of hidden states: of
    the embedding, then after each layer). title, against, window, tokens, seconds and notes are of
    the whole.
    """

    def __init__(self, handle: Any):
        self._handle = handle
        self._data: dict[str, Any] = json.loads(handle.json())

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._data:
            return self._data[name]
        if name in ("kl", "agreement"):  # a property that raised it
            raise AttributeError(f"no original, so no {name}: evaluate with against=")
        raise AttributeError(f"Evaluation has no {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._data]

    def __repr__(self) -> str:
        models = ", ".join(
            f"{one['model']}: perplexity {_number(one['total']['perplexity']['value'])}"
            for one in self.models
        )
        return f"Evaluation({self.tokens} tokens; {models})"

    @property
    def perplexity(self) -> float:
        """Of the last model on all texts: the only one, where one was given."""
        return _mean(self._last()["perplexity"])

    @property
    def kl(self) -> float:
        """The mean KL(original || model) of the last model, in nats a token."""
        return _mean(self._against()["kl"])

    @property
    def agreement(self) -> float:
        """How often the last model's most likely token is the original's, 0 to 1."""
        return _mean(self._against()["agreement"])

    def _last(self) -> dict[str, Any]:
        total: dict[str, Any] = self.models[-1]["total"]
        return total

    def _against(self) -> dict[str, Any]:
        if not self.against:
            raise AttributeError("there was no original; evaluate with against=")
        return self._last()

    def json(self) -> str:
        """All of it, as text."""
        text: str = self._handle.json()
        return text

    def html(self) -> str:
        """A page that needs nothing else: a table, and where along the layers models go apart."""
        text: str = self._handle.html()
        return text


class Calibration:
    """What calibrate has seen: tokens, modules (names of the Linears), and notes."""

    def __init__(self, handle: Any, path: str):
        self.path = path
        self.tokens: int = handle.tokens
        self.modules: list[str] = handle.modules
        self.notes: list[str] = handle.notes

    def __repr__(self) -> str:
        return f"Calibration({self.path!r}: {self.tokens} tokens, {len(self.modules)} modules)"


def _mean(estimate: Mapping[str, float | None]) -> float:
    """NaN where there is none, as of a model whose logits are not finite: JSON has null for it."""
    value = estimate["value"]
    return float("nan") if value is None else float(value)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _texts(op: str, texts: Texts) -> dict[str, Any]:
    files: list[str] = []
    contents: list[tuple[str, str]] = []
    ids: list[tuple[str, list[int]]] = []
    if isinstance(texts, Mapping):
        for name, one in texts.items():
            if not isinstance(name, str):
                raise TypeError(f"[{op}] got {name!r} in texts; expected a str for a name")
            if isinstance(one, str):
                contents.append((name, one))
            elif isinstance(one, (bytes, bytearray)):  # whose items would pass for ids
                raise TypeError(
                    f"[{op}] got {type(one).__name__} for {name!r}; expected a str (decode it), or "
                    "ids of tokens"
                )
            else:
                ids.append(
                    (name, [checked.count(op, f"an id in {name!r}", i, 0, 2**31 - 1) for i in one])
                )
    elif isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        files.append(checked.path(op, "texts", texts))  # type: ignore[arg-type]
    else:
        files = [checked.path(op, "an entry of texts", one) for one in texts]
    return {"files": files, "contents": contents, "ids": ids}


def _limit(op: str, what: str, given: int | None) -> int:
    return 0 if given is None else checked.count(op, what, given, 2, _MOST)


def evaluate(
    models: Path | Iterable[Path],
    texts: Texts,
    against: Path | None = None,
    *,
    window: int | None = None,
    tokens: int | None = None,
    activations: str = "float32",
    max_memory: int | str = 4 << 30,
    temporary: Path | None = None,
    resume: Path | None = None,
    threads: int = 0,
    progress: OnProgress | None = None,
) -> Evaluation:
    """Runs models on texts layer by layer, with one layer's weights in memory at a time.

    models: a path, or several to be held beside each other. texts: paths of UTF-8 files, or a dict
    of name to text, or of name to the ids of its tokens. against: the original. window: tokens that
    see each other; by default 2048, or what the model can take. tokens: only the first of each
    text. activations: what enters products and attention of all models, the original too, as in
    load_model. resume: a folder for the state after each layer. No number depends on threads and
    max_memory.
    """
    op = "evaluate"
    several = not isinstance(models, (str, bytes)) and isinstance(models, Iterable)
    return Evaluation(
        _octavo.evaluate(
            [checked.path(op, "models", one) for one in (models if several else [models])],  # type: ignore[arg-type,union-attr]
            against="" if against is None else checked.path(op, "against", against),
            **_texts(op, texts),
            window=_limit(op, "window", window),
            tokens=_limit(op, "tokens", tokens),
            activations=checked_activations(op, activations),
            max_memory=checked.size(op, "max_memory", max_memory),
            temporary="" if temporary is None else checked.path(op, "temporary", temporary),
            resume="" if resume is None else checked.path(op, "resume", resume),
            threads=checked.threads(op, threads),
            progress=checked.called(op, progress),
        )
    )


def calibrate(
    model: Path,
    texts: Texts,
    out: Path,
    *,
    hessians: str = "block16",
    window: int | None = None,
    tokens: int | None = None,
    max_memory: int | str = 4 << 30,
    temporary: Path | None = None,
    resume: Path | None = None,
    threads: int = 0,
    progress: OnProgress | None = None,
) -> Calibration:
    """Writes statistics of a model's activations to a safetensors file.

    Of every Linear's input amax, E[x^2] and E[x x^T] of 16 neighbouring channels; amax of K and V;
    tokens seen by each expert. hessians: "block16", "none", or "full:EXPRESSION": that of all
    channels, too, of modules whose name the expression is found in. Other arguments are those of
    evaluate; the state in `resume` goes when the file is written. load reads the file, whose form
    docs/numerics/statistics.md has.
    """
    op = "calibrate"
    full = hessians[5:] if isinstance(hessians, str) and hessians.startswith("full:") else ""
    if hessians not in ("block16", "none") and not full:
        raise ValueError(
            f"[{op}] got hessians={hessians!r}; expected 'block16', 'none' or 'full:EXPRESSION'"
        )
    path = checked.path(op, "out", out)
    return Calibration(
        _octavo.calibrate(
            checked.path(op, "model", model),
            out=path,
            **_texts(op, texts),
            window=_limit(op, "window", window),
            tokens=_limit(op, "tokens", tokens),
            block_hessians=hessians != "none",
            full_hessians=checked.word(op, "hessians", full),
            max_memory=checked.size(op, "max_memory", max_memory),
            temporary="" if temporary is None else checked.path(op, "temporary", temporary),
            resume="" if resume is None else checked.path(op, "resume", resume),
            threads=checked.threads(op, threads),
            progress=checked.called(op, progress),
        ),
        path,
    )
