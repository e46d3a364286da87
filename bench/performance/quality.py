"""Perplexity and KL of quantized models, beside other tools."""

from __future__ import annotations

from bench.quality.bars import bars_of

from .results import Result, section, table

NAMES = {"octavo": "", "llm-compressor": "llm-compressor: ", "modelopt": "ModelOpt: "}


def case(mean: dict) -> str:
    return f"{NAMES[mean['tool']]}{mean['recipe']} `{mean['policy']}`"


def means(data: dict) -> str:
    """Means over fewer runs than others have are comparable with none: only the ratios are."""
    whole = max(mean["runs"] for mean in data["means"])
    head = ["", "KL", "beside `max`", "worst", "perplexity beside the original's", "of"]

    def row(mean: dict) -> list[str]:
        kl = f"{mean['kl']:.3g} +- {100 * mean['kl_error']:.1f} %"
        perplexity = f"{mean['perplexity_beside_original']:.4f}"
        is_whole = mean["runs"] == whole
        return [
            case(mean),
            kl if is_whole else "",
            f"{mean['kl_beside_max']:.3f}",
            f"{mean['worst']:.3f}",
            perplexity if is_whole else "",
            f"{mean['runs']}",
        ]

    return table(head, map(row, data["means"]))


def bars(data: dict) -> str:
    """What cases are held to: the best of the policies that a bar is of."""

    def row(one: dict) -> list[str]:
        if one["value"] is None:
            return [one["bar"], "", f"{one['at_most']:g}", "", "not measured"]
        more = f"worst {one['worst']:.3f}" if "worst" in one else f"+- {one['standard_error']:.3f}"
        runs = f"{more}, {one['runs']} of {one['of_runs']} runs"
        verdict = "" if one["holds"] else "missed"
        return [one["bar"], f"{one['value']:.3f}, {runs}", f"{one['at_most']:g}",
                f"`{one['policy']}`", verdict]  # fmt: skip

    return table(["KL", "mean", "bar", "of", ""], map(row, bars_of(data["rows"], data["means"])))


def each(data: dict) -> str:
    """KL of every model and text: a column for each."""
    rows = data["rows"]
    columns = list(dict.fromkeys((row["model"], row["text"]) for row in rows))
    found: dict[str, dict] = {}
    for row in rows:
        found.setdefault(case(row), {})[(row["model"], row["text"])] = row

    def cell(row: dict | None) -> str:
        return "" if row is None else f"{row['kl']:.3g}; {row['perplexity']:.2f}"

    original = {(row["model"], row["text"]): row["original_perplexity"] for row in rows}
    return table(
        ["KL; perplexity", *(f"{model}, {text}" for model, text in columns)],
        [
            ["the original", *(f"{original[column]:.2f}" for column in columns)],
            *([name, *(cell(by.get(column)) for column in columns)] for name, by in found.items()),
        ],
    )


def missing(data: dict) -> list[str]:
    """Cases, with the models that they are missing for where it is not all of them."""
    models: dict[str, dict[str, None]] = {}
    for one in data["missing"]:
        models.setdefault(one["case"], {})[one["model"]] = None
    every = len({row["model"] for row in data["rows"]})
    return [
        name if len(of) == every else f"{name} ({', '.join(of)})" for name, of in models.items()
    ]


def quality(result: Result) -> str:
    data = result.data
    models = list(dict.fromkeys(row["model"] for row in data["rows"]))
    texts = list(dict.fromkeys(row["text"] for row in data["rows"]))
    parts = [
        "## Quality",
        f"What models still know after a recipe and a scale policy: {' and '.join(models)} on "
        f"{len(texts)} texts ({', '.join(texts)}) of {data['tokens']} tokens each. Calibration "
        f"(`wmse`, `gptq`, `statistics`) saw {data['calibration_tokens']} tokens of a text of no "
        "family of these; other tools the same ones. `mixed` is `--budget` with that many bits a "
        "weight, and stands beside NVFP4 `max`. KL is the geometric mean over models and texts, "
        "with its standard error; the ratios are means and the worst of single runs.",
        means(data),
        "What is held to a bar, the best of its policies; a single run is to be at most 0.95 where "
        "a recipe stands beside itself, at most 1 of mixed plans, which stand beside NVFP4 `max`:",
        bars(data),
        "Each model and text:",
        each(data),
    ]
    if data["missing"]:
        parts.append(f"Not measured, at least on one text: {', '.join(missing(data))}.")
    return section(*parts, result.measured("python -m bench.quality.run"))
