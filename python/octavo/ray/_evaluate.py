"""octavo.ray.evaluate: a text a task."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any

from octavo import _checkpoint_arguments as checked
from octavo._checkpoint_arguments import Path
from octavo._evaluate import Evaluation, Texts
from octavo._evaluate import evaluate as evaluate_here
from octavo._model import checked_activations
from octavo.ray._tasks import Bar, Board, OnProgress, Teller, ray_of, results
from octavo.ray._tasks import start as start_ray

_OP = "ray.evaluate"
Estimate = dict[str, Any]


class _Told:
    def __init__(self, said: dict[str, Any]):
        self._text = json.dumps(said)

    def json(self) -> str:
        return self._text

    def html(self) -> str:
        raise ValueError(f"[{_OP}] has no page; octavo.evaluate, on one machine, makes one")


def _task(
    models: list[str], name: str, text: Any, board: Any, number: int, options: dict
) -> dict[str, Any]:
    tell = Teller(ray_of(_OP), board, number, "bytes read")
    seen = evaluate_here(models, {name: text}, progress=tell, **options)
    said: dict[str, Any] = json.loads(seen.json())
    return said


def pooled(of: list[tuple[int, Estimate]]) -> Estimate:
    """The mean over the tokens of all texts, and its standard error, from those of each: of a text
    with n tokens the squares around its mean add up to error^2 n (n - 1)."""
    of = [(n, one) for n, one in of if n > 0]
    total = sum(n for n, _ in of)
    if not of or any(one["value"] is None for _, one in of):
        return {"value": None, "standard_error": None}
    mean = math.fsum(n * one["value"] for n, one in of) / total
    squares = math.fsum(
        (one["standard_error"] or 0.0) ** 2 * n * (n - 1) + n * (one["value"] - mean) ** 2
        for n, one in of
    )
    error = math.sqrt(squares / (total - 1) / total) if total > 1 else None
    return {"value": mean, "standard_error": error}


def perplexity_of(loss: float | None) -> float | None:
    """exp(loss); None, as JSON has it, where that is no double: broken models lose 800 nats."""
    try:
        return None if loss is None else math.exp(loss)
    except OverflowError:
        return None


def total_of(texts: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all texts. Medians, percentiles and differences of hidden states are each text's alone."""

    def over(key: str) -> Estimate:
        return pooled([(text["scored"], text[key]) for text in texts])

    out: dict[str, Any] = {key: sum(text[key] for text in texts) for key in ("tokens", "scored")}
    out["log_loss"] = loss = over("log_loss")
    value = perplexity_of(loss["value"])
    error = loss["standard_error"]
    out["perplexity"] = {
        "value": value,
        "standard_error": None if value is None or error is None else value * error,
    }
    if "kl" in texts[0]:
        largest = [text["kl"]["largest"] for text in texts]
        out["kl"] = over("kl") | {"largest": None if None in largest else max(largest)}
        out |= {key: over(key) for key in ("agreement", "excess_loss")}
    return out


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    out = parts[0]
    for i, model in enumerate(out["models"]):
        model["texts"] = [text for part in parts for text in part["models"][i]["texts"]]
        model["total"] = total_of(model["texts"])
    out["tokens"] = sum(part["tokens"] for part in parts)
    out["seconds"] = max(part["seconds"] for part in parts)
    out["notes"] = list(dict.fromkeys(note for part in parts for note in part["notes"]))
    return out


def _named(texts: Texts) -> dict[str, Any]:
    if isinstance(texts, Mapping):
        return dict(texts)
    one = isinstance(texts, (str, bytes, os.PathLike))
    files = [texts] if one else list(texts)  # type: ignore[arg-type]
    names = [checked.path(_OP, "an entry of texts", file) for file in files]  # type: ignore[arg-type]
    return {name: FilePath(name).read_text(encoding="utf-8") for name in names}


def evaluate(
    models: Path | Iterable[Path],
    texts: Texts,
    against: Path | None = None,
    *,
    cpus: int = 1,
    retries: int = 3,
    window: int | None = None,
    tokens: int | None = None,
    activations: str = "float32",
    max_memory: int | str = 4 << 30,
    progress: bool | OnProgress | None = True,
) -> Evaluation:
    """Runs models on texts on a Ray cluster, a text a task of `cpus` cores.

    Models are folders that all nodes see; texts are read here and sent. Arguments and result are
    those of octavo.evaluate, whose numbers these are; the total has no medians and no layers, which
    each text has, and there is no page. A task that is lost with its node is done again, `retries`
    times.
    """
    several = not isinstance(models, (str, bytes)) and isinstance(models, Iterable)
    given: Any = models if several else [models]
    paths = [os.path.abspath(checked.path(_OP, "models", one)) for one in given]
    named = _named(texts)
    if not named:
        raise ValueError(f"[{_OP}] got no texts; expected one at least")
    options = {
        "against": None
        if against is None
        else os.path.abspath(checked.path(_OP, "against", against)),
        "window": window,
        "tokens": tokens,
        "activations": checked_activations(_OP, activations),
        "max_memory": max_memory,
        "threads": checked.count(_OP, "cpus", cpus, 1, 1 << 16),
    }
    retries = checked.count(_OP, "retries", retries, 0, 1000)
    bar = Bar(_OP, progress)
    ray = start_ray(_OP)
    board = ray.remote(Board).options(num_cpus=0, max_restarts=-1).remote()
    # The longest first, so that none is left alone at the end.
    order = sorted(named, key=lambda name: -len(named[name]))
    tasks = {
        name: ray.remote(_task)
        .options(name=f"octavo evaluate {name[-60:]}", num_cpus=cpus, max_retries=retries)
        .remote(paths, name, ray.put(named[name]), board, number, options)
        for number, name in enumerate(order)
    }

    def together(of: dict[int, tuple[int, int, str]]) -> tuple[int, int, str]:
        share = sum(done / total for done, total, _ in of.values() if total > 0)
        ended = sum(done >= total for done, total, _ in of.values())
        return int(1000 * share), 1000 * len(order), f"{ended} of {len(order)} texts"

    parts = results(ray, [tasks[name] for name in named], board, bar, together)
    return Evaluation(_Told(_joined(parts)))
