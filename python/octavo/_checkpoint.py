"""Whole checkpoints: quantize, verify, convert, dequantize, compare, inspect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from octavo import _checkpoint_arguments as checked
from octavo import _octavo
from octavo._checkpoint_arguments import OnProgress, Path
from octavo._checkpoint_report import CheckpointReport, Findings, Plan, limits_of, within

_DTYPES = {
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "f16": "float16",
    "float32": "float32",
    "f32": "float32",
}
_MOST_DEVICES = 4096  # devices that verify splits matrices over, as in the command line


def quantize_checkpoint(
    model: Path | None,
    out: Path | None = None,
    recipe: str | None = None,
    target: str = "compressed-tensors",
    *,
    format: str | None = None,
    tile: str | int | None = None,
    scale_rule: str | None = None,
    arith: str | None = None,
    scale_policy: str | None = None,
    scale_format: str | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    recipe_for: Mapping[str, str] | None = None,
    share: bool = True,
    scale_rounding: str = "bf16",
    nonfinite: str = "error",
    shard_bytes: int | str = 0,
    statistics: Path | None = None,
    input_scales: str = "none",
    kv_scales: str = "none",
    budget: float | str | None = None,
    fit: int | str | None = None,
    candidates: Iterable[str] = (),
    threads: int = 0,
    max_memory: int | str = 256 << 20,
    resume: bool = False,
    follow_links: bool = False,
    delete_source: bool = False,
    dry_run: bool = False,
    fail_if: Iterable[str] = (),
    progress: OnProgress | None = None,
    plan: Path | None = None,
    rank: int | None = None,
    world: int | None = None,
    takeover_after: float = 120.0,
) -> CheckpointReport:
    """Quantizes a checkpoint into files that servers load, through at most `max_memory`.

    model: a folder with safetensors files, one of them, or a GGUF file; of a quantized one the
    values are decoded as they are read. out: a folder that is not there yet.
    dry_run: write nothing, and give the plan: tensors with what becomes of each, files, sizes; it
    has the verb "plan" and no metrics. fail_if: limits such as "cosine<0.999"; where a tensor
    misses one, LimitMissed is raised when all is written. delete_source: delete each file of the
    model when what is made of it is finished and was read back. follow_links: read and copy what
    symbolic links out of the model's folder (of a Hugging Face cache: out of the model's folder
    there) lead to, which is refused otherwise.
    format: the element format; "auto" takes for each tensor that one of e4m3fn and e5m2 which has
    less error. tile: the elements that share a scale, as "1x64", or 64: blocks of that size in the
    form of the recipe's; targets hold few of them, "octavo" all.
    recipe: a preset, or "experts-nvfp4" or "attention-fp8", which are several (None: fp8-block, or
    fp8-channel where blocks do not fit the model); target:
    the dialect (naming and layout) of the output. include, exclude:
    regular expressions on names;
    recipe_for: regular expression to preset or "none". progress is called with bytes done, bytes in
    all, seconds and a tensor's name; an exception in it, or Ctrl-C, stops the work, and the same
    call with resume=True goes on. Where there is nothing left to do it returns a report that says
    so (was_complete) and has no metrics; compare_checkpoints measures.
    scale_policy: what scales are chosen by: "max", "mse" (least squared error), "wmse" (weighted by
    statistics), "percentile:99.9", and for nvfp4 "4over6" and "modelopt_sweep".
    statistics: what calibrate wrote of this model, or an imatrix file of llama.cpp. input_scales:
    static scales of activations beside the weights: "none", of "statistics", or "one" (1, as
    ModelOpt ships NVFP4). kv_scales: those of a KV cache in FP8, which config.json then declares.
    budget: choose a recipe for each part of the model by its measured error, within this many bits
    per weight, scales included: 4.5, or "4.5bpw"; fit: the same within so many bytes of the output
    ("24GiB"). candidates: recipes to choose from, "none" (a weight stays as it is) among them; none
    given: those of the target. With statistics errors are those of results. The report's mix has
    what was chosen, the frontier and the errors; recipe is then not given.
    plan: a plan file (the json() of a dry run, or of `octavo plan`): this call is one of several
    processes that divide its files; model may be None, and what a plan says is not said again.
    rank, world: which of how many; None: as Slurm, mpirun or torchrun says. takeover_after: seconds
    after which a process that gives no sign of life is taken over. The report of all but the last
    process says finished_by_another, and has no tensors.
    """
    if scale_rounding not in ("bf16", "none"):
        raise ValueError(
            f"[quantize_checkpoint] got scale_rounding={scale_rounding!r}; "
            "expected 'bf16' or 'none'"
        )
    if nonfinite not in ("error", "clamp"):
        raise ValueError(
            f"[quantize_checkpoint] got nonfinite={nonfinite!r}; expected 'error' or 'clamp'"
        )
    op = "quantize_checkpoint"
    limits = limits_of(op, fail_if)
    options = _octavo.plan_options(
        recipe=checked.word(op, "recipe", recipe),
        target=checked.word(op, "target", target),
        format=checked.word(op, "format", format),
        tile=checked.tile(op, tile),
        scale_rule=checked.word(op, "scale_rule", scale_rule),
        arith=checked.word(op, "arith", arith),
        scale_policy=checked.word(op, "scale_policy", scale_policy),
        scale_format=checked.word(op, "scale_format", scale_format),
        include=checked.names(op, "include", include),
        exclude=checked.names(op, "exclude", exclude),
        recipe_for=checked.recipes(op, recipe_for),
        share=checked.flag(op, "share", share),
        bf16_scales=scale_rounding == "bf16",
        clamp_non_finite=nonfinite == "clamp",
        shard_bytes=checked.size(op, "shard_bytes", shard_bytes),
        statistics="" if statistics is None else checked.path(op, "statistics", statistics),
        model="" if model is None else checked.path(op, "model", model),
        out="" if out is None else checked.path(op, "out", out),
        input_scales=checked.word(op, "input_scales", input_scales),
        kv_scales=checked.word(op, "kv_scales", kv_scales),
    )
    shared = checked.NOT_SHARED
    if plan is not None:
        said = {
            "recipe": recipe is not None,
            "target": target != "compressed-tensors",
            "format": format is not None,
            "tile": tile is not None,
            "scale_rule": scale_rule is not None,
            "arith": arith is not None,
            "scale_policy": scale_policy is not None,
            "scale_format": scale_format is not None,
            "include": bool(include),
            "exclude": bool(exclude),
            "recipe_for": bool(recipe_for),
            "share": not share,
            "scale_rounding": scale_rounding != "bf16",
            "nonfinite": nonfinite != "error",
            "shard_bytes": shard_bytes != 0,
            "statistics": statistics is not None,
            "input_scales": input_scales != "none",
            "kv_scales": kv_scales != "none",
            "budget": budget is not None,
            "fit": fit is not None,
            "candidates": bool(candidates),
            "follow_links": follow_links,
            "dry_run": dry_run,
        }
        for name in [name for name, given in said.items() if given]:
            raise ValueError(f"[{op}] got {name}, which the plan says for all processes; leave it")
        shared = checked.shared(op, plan, rank, world, takeover_after)
    elif rank is not None or world is not None:
        raise ValueError(f"[{op}] got rank or world without a plan; give plan, a file")
    elif model is None:
        raise TypeError(f"[{op}] got no model; say which, or give a plan, which says it")
    source = "" if model is None else checked.path(op, "model", model)
    threads = checked.threads(op, threads)
    memory = checked.size(op, "max_memory", max_memory)
    resume = checked.flag(op, "resume", resume)
    follow_links = checked.flag(op, "follow_links", follow_links)
    progress = checked.called(op, progress)
    dry_run = checked.flag(op, "dry_run", dry_run)
    given = checked.budget(op, budget, fit, candidates)
    if out is None and not dry_run:
        raise TypeError(f"[{op}] got no out; say where it goes, or dry_run=True for the plan alone")
    place = "" if out is None else checked.path(op, "out", out)
    if limits and checked.flag(op, "delete_source", delete_source):
        raise ValueError(
            f"[{op}] got delete_source and fail_if, whose limits are judged when all is gone; "
            "leave one of them out"
        )
    mix = None
    if given is not None:
        if checked.flag(op, "delete_source", delete_source):
            raise ValueError(
                f"[{op}] got delete_source with a budget; a call that goes on would measure all "
                "weights again; leave one of them out"
            )
        mix = _octavo.choose_mix(
            source,
            options,
            bits=given.bits,
            bytes=given.bytes,
            candidates=given.candidates,
            threads=threads,
            max_memory=memory,
            follow_links=follow_links,
            progress=progress,
        )
        options = mix.options
    if dry_run:
        text = _octavo.plan_checkpoint(source, options, follow_links=follow_links)
        return CheckpointReport(Plan(text), None if mix is None else json.loads(mix.json()))
    handle = _octavo.quantize_checkpoint(
        source,
        place,
        options,
        threads=threads,
        max_memory=memory,
        resume=resume,
        follow_links=follow_links,
        delete_source=checked.flag(op, "delete_source", delete_source),
        progress=progress,
        plan=shared.plan,
        rank=shared.rank,
        world=shared.world,
        takeover_after=shared.takeover_after,
        mix=mix,
    )
    return within(op, CheckpointReport(handle), limits)


def verify_checkpoint(
    model: Path,
    loaders: Iterable[str] = (),
    *,
    tensor_parallel: int = 1,
    codes: bool = True,
    against: Path | None = None,
) -> Findings:
    """Problems that loaders ("vllm", "transformers", "sglang", "trtllm", "comfyui", "octavo"; none:
    those that serve models, and the one of whose dialect it is) would have. No server is run; an
    empty list means that there are none. codes: read all codes and check for NaN. against: the
    model that it was made from, whose weights it has to have, rounded. The list also has what
    `octavo verify --json` says of the whole: good (named loaders all load it; without names one
    does, and none loads something else without saying so), dialect, weights, checked, loaders."""
    if isinstance(loaders, str):
        loaders = [loaders]
    op = "verify_checkpoint"
    said = _octavo.verify_checkpoint(
        checked.path(op, "model", model),
        loaders=checked.names(op, "loaders", loaders),
        tensor_parallel=checked.count(op, "tensor_parallel", tensor_parallel, 1, _MOST_DEVICES),
        codes=checked.flag(op, "codes", codes),
        against="" if against is None else checked.path(op, "against", against),
    )
    return Findings(json.loads(said))


def convert_checkpoint(
    model: Path,
    out: Path,
    target: str,
    *,
    threads: int = 0,
    max_memory: int | str = 256 << 20,
    resume: bool = False,
    follow_links: bool = False,
    progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Converts a quantized checkpoint to another dialect; codes and scales do not change."""
    if not target:
        raise ValueError(f"[convert_checkpoint] got no target; expected one of {dialects()}")
    op = "convert_checkpoint"
    return _octavo.convert_checkpoint(
        checked.path(op, "model", model),
        checked.path(op, "out", out),
        to=checked.word(op, "target", target),
        dtype="",
        threads=checked.threads(op, threads),
        max_memory=checked.size(op, "max_memory", max_memory),
        resume=checked.flag(op, "resume", resume),
        follow_links=checked.flag(op, "follow_links", follow_links),
        clamp_non_finite=False,
        progress=checked.called(op, progress),
    )


def dequantize_checkpoint(
    model: Path,
    out: Path,
    dtype: str = "bfloat16",
    *,
    nonfinite: str = "error",
    threads: int = 0,
    max_memory: int | str = 256 << 20,
    resume: bool = False,
    follow_links: bool = False,
    progress: OnProgress | None = None,
) -> dict[str, Any]:
    """A quantized checkpoint as ordinary numbers: bfloat16, float16 or float32. A value beyond the
    type is an error that names its tensor, or with nonfinite="clamp" the type's largest value."""
    if nonfinite not in ("error", "clamp"):
        raise ValueError(
            f"[dequantize_checkpoint] got nonfinite={nonfinite!r}; expected 'error' or 'clamp'"
        )
    if checked.word("dequantize_checkpoint", "dtype", dtype) not in _DTYPES:
        raise ValueError(
            f"[dequantize_checkpoint] got dtype={dtype!r}; expected bfloat16, float16 or float32"
        )
    op = "dequantize_checkpoint"
    return _octavo.convert_checkpoint(
        checked.path(op, "model", model),
        checked.path(op, "out", out),
        to="",
        dtype=_DTYPES[dtype],
        threads=checked.threads(op, threads),
        max_memory=checked.size(op, "max_memory", max_memory),
        resume=checked.flag(op, "resume", resume),
        follow_links=checked.flag(op, "follow_links", follow_links),
        clamp_non_finite=nonfinite == "clamp",
        progress=checked.called(op, progress),
    )


def compare_checkpoints(
    a: Path,
    b: Path,
    *,
    threads: int = 0,
    fail_if: Iterable[str] = (),
    progress: OnProgress | None = None,
) -> CheckpointReport:
    """Error of checkpoint b against a, tensor by tensor; either may be quantized. fail_if: limits
    such as "cosine<0.999"; LimitMissed is raised where a tensor misses one."""
    op = "compare_checkpoints"
    limits = limits_of(op, fail_if)
    handle = _octavo.compare_checkpoints(
        checked.path(op, "a", a),
        checked.path(op, "b", b),
        threads=checked.threads(op, threads),
        progress=checked.called(op, progress),
    )
    return within(op, CheckpointReport(handle), limits)


def inspect(model: Path, *, stats: bool = False) -> dict[str, Any]:
    """What is in a checkpoint, as `octavo inspect --json` has it: path, files, bytes, quantized,
    dialect, problem (None, or why weights could not be told) and tensors, each with name, shape,
    type, bytes, quantized, stored_as and, with stats=True (which reads everything), statistics.
    Codes and scales of a weight are one entry."""
    op = "inspect"
    return json.loads(
        _octavo.inspect_checkpoint(
            checked.path(op, "model", model), statistics=checked.flag(op, "stats", stats)
        )
    )


def dialects() -> list[str]:
    """The dialects that a checkpoint can be written in (the values of target)."""
    return _octavo.dialect_names()
