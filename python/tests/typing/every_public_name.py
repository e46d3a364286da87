"""Every public name of octavo and octavo.torch, as a user writes it: read by type checkers, never
run. test_typing.py says that all names are here, and that a misspelt one is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import octavo as ov
import octavo.torch as te

version: str = ov.__version__
x = np.ones((4, 64), np.float32)
t = torch.ones(4, 64)

# Formats.
f: ov.Format = ov.format("e4m3fn")
named: list[ov.Format] = ov.formats()
largest: float = f.max + named[0].eps
limits = ov.finfo("e5m2").max

# Codes.
codes: np.ndarray[Any, Any] = ov.encode(x, "e4m3fn", rounding="up")
codes, counts = ov.encode(x, "e4m3fn", counts=True)
saturated: int = counts.saturated
same: ov.Counts = counts
tensors: torch.Tensor = ov.decode(ov.encode(t, "e4m3fn"), "float16")
values = ov.decode([1, 2], format="e4m3fn")
halves = ov.cast(x, "bfloat16")
small, flushed = ov.cast(x, "e5m2", counts=True)
lost: int = flushed.flushed
eight = ov.fp8_decode(ov.fp8_encode(x))
pair: tuple[Any, Any] = ov.fp8_quantize(x)
scaled_codes = ov.encode_scaled(x, "e5m2", 2.0)
scaled_values = ov.decode_scaled(eight, scale=0.5)
ints = ov.round_to_fp8_represented_as_int8(t, 3)
ov.undo_int8_fp8(ints, 3)
ov.int32_to_bfloat16(np.ones(4, np.int32))
ov.compat.fp8_format(3).name.upper()

# Codes with scales.
scaling: ov.Scaling = ov.preset("mxfp8").replace(columnwise=True)
presets: list[str] = ov.preset_names()
q: ov.QuantizedTensor = ov.quantize(x, scaling)
q2, found = ov.quantize(x, "mxfp8", counts=True, threads=1)
nan: int = found.nan
shape: tuple[int, ...] = q2.shape
again = q.dequantize("float16", threads=2)
again = ov.dequantize(q)
other: ov.QuantizedTensor = ov.requantize(q, "nvfp4")
taken: tuple[int, int] = ov.requantize(q, "nvfp4", counts=True)[0].tile
back: ov.QuantizedTensor = ov.transposed(q)
outside: ov.QuantizedTensor = ov.quantized(q.codes, q.scales, "mxfp8")
amax: float = ov.amax(x)
aligned: ov.Aligned = ov.align_exponents(q)
changed = ov.quantize_aligned(x).changed
swizzled = ov.to_layout(q.scales, "swizzled_128x4")
grid = ov.from_layout(swizzled, "swizzled_128x4", (4, 2))
metrics: dict[str, Any] = ov.error(x, q, rows=True)
of_least_error: ov.Scaling = ov.choose_format(x, "fp8")
swept: ov.Sweep = ov.sweep(x, {"recipe": ["mxfp8", "mxfp4"]})
conformance: ov.Conformance = ov.conform()
ov.save("w.safetensors", {"w": q})
loaded: ov.QuantizedTensor = ov.load("w.safetensors")["w"]

# Norms and activations: values, or codes with scales.
plain = ov.layer_norm(x, eps=1e-6)
normed: ov.QuantizedTensor = ov.layer_norm(x, quantize="mxfp8")
rows: int = ov.rms_norm(x, quantize=scaling).nbytes
active: ov.QuantizedTensor = ov.gelu(x, approximate="tanh", quantize="mxfp8")
for made in (
    ov.relu(x, quantize="mxfp8"),
    ov.silu(x, quantize="mxfp8"),
    ov.swiglu(x, quantize="mxfp8"),
    ov.geglu(x, quantize="mxfp8"),
):
    rows += made.nbytes
plain = ov.relu(ov.silu(ov.swiglu(ov.geglu(ov.gelu(ov.rms_norm(x))))))

# Products.
y = ov.gemm(q, q, activation="relu")
wide: torch.Tensor = ov.gemm(t, q, out="float16")
product: ov.QuantizedTensor = ov.gemm(q, q, out=scaling)
y, moved = ov.gemm(q, q, return_aligned=True)
moved += ov.gemm(q, q, out=scaling, return_aligned=True)[0].nbytes
packed: ov.PackedWeights = ov.pack(q)
y = ov.gemm(q, packed)
y = ov.gemm_grouped(q, q, [4])
y, moved = ov.gemm_grouped(q, q, [4], return_aligned=True)
distance: ov.GemmError = ov.gemm_error(x, x, q, q)
off: float = distance.total.relative_l2
y = ov.scaled_mm(t, t, t, 0, t, 0)

# Attention.
out = ov.attention(x, x, x, causal=True)
out, lse = ov.attention(x, x, x, return_lse=True)
out, report = ov.attention(x, x, x, return_report=True)
out, lse, full = ov.attention(x, x, x, return_lse=True, return_report=True)
chosen: ov.AttentionReport = full
out, sizes = ov.attention(x, x, x, return_amax=True)
largest_of: ov.AttentionAmax = sizes
of_scores: float = largest_of.s
choice: ov.AttentionChoice = report.choices[0]
share: float = report.share(choice.precision)
cache = ov.KVCache(1, 2, 32, scaling="mxfp8")
cache.append(x, x)
keys: ov.QuantizedTensor = cache.keys()
bytes_of: int = cache.values().nbytes + cache.capacity
out = cache.attend(x)

# Checkpoints.
quantized: ov.CheckpointReport = ov.quantize_checkpoint("model", "out", recipe="mxfp8")
page: str = quantized.html() + quantized.title
worse: list[str] = ov.compare_checkpoints("model", "out").worst
side_by_side: ov.RecipeComparison = ov.compare_recipes("model", ["fp8-channel", "nvfp4"])
findings: ov.Findings = ov.verify_checkpoint("out")
first: ov.Finding = findings[0]
good: bool = findings.good and first.severity == "warning"
summary: dict[str, Any] = ov.inspect("model")
summary = ov.convert_checkpoint("out", "other", target="compressed-tensors")
summary = ov.dequantize_checkpoint("out", "values")
targets: list[str] = ov.dialects()
try:
    pass
except ov.LimitMissed as missed:
    title: str = missed.report.title

# This machine.
backend: ov.Backend = ov.backends()[0]
usable: bool = backend.usable
machine: dict[str, Any] = ov.doctor()

# Quantizers and recipes.
mx: ov.QuantizedTensor = ov.quantizers.MXFP8Quantizer(columnwise=False)(x)
nv: int = ov.quantizers.NVFP4Quantizer(with_rht=True).quantize(x, counts=True)[1].flushed
recipe: ov.recipe.Recipe = ov.recipe.MXFP8BlockScaling(margin=0)

# Training.
layer = te.Linear(64, 64, bias=False, device="cpu")
layer.reset_parameters()
with te.autocast(recipe=te.MXFP8BlockScaling()), te.quantized_model_init(enabled=False):
    z: torch.Tensor = layer(t)
attend = te.DotProductAttention(2, 32, attn_mask_type="no_mask")
z = te.scaled_dot_product_attention(t, t, t, precision="f32")
z = te.checkpoint(torch.relu, t)
default: te.recipe.Recipe = te.get_default_recipe()
for recipe in (
    te.DelayedScaling(fp8_format=te.Format.HYBRID),
    te.Float8CurrentScaling(),
    te.Float8BlockScaling(),
    te.NVFP4BlockScaling(),
    te.CustomRecipe(lambda role: te.MXFP8Quantizer("e4m3fn")),
):
    recurs: bool = recipe.delayed()
quantizer: te.Quantizer = te.MXFP8Quantizer(te.DType.kFloat8E4M3)
tensor: te.QuantizedTensor = quantizer(t)
z = tensor.dequantize(dtype=torch.float16)
for quantizer in (
    te.Float8Quantizer(torch.ones(1), torch.zeros(1), te.DType.kFloat8E4M3),
    te.Float8CurrentScalingQuantizer(te.DType.kFloat8E4M3),
    te.Float8BlockQuantizer(te.DType.kFloat8E4M3),
    te.NVFP4Quantizer(),
):
    tensor = quantizer.copy().quantize(t)
kinds: list[type[te.QuantizedTensor]] = [
    te.Float8Tensor,
    te.Float8BlockwiseQTensor,
    te.MXFP8Tensor,
    te.NVFP4Tensor,
]
has: bool = (
    te.is_fp8_available()
    and te.is_mxfp8_available()
    and te.is_nvfp4_available()
    and te.is_bf16_available()
    and te.is_fp8_block_scaling_available()
)
why: str = te.is_fp8_available(return_reason=True)[1]
on: list[bool] = [
    te.is_fp8_enabled(),
    te.is_fp8_calibration(),
    te.with_fp8_parameters(),
    te.with_high_precision_init_val(),
]
set_here: list[object] = [te.get_default_fp8_recipe(), te.get_fp8_recipe(), te.get_fp8_group()]
most: float = te.get_fp8_max(te.get_fp8_recipe())
kind: te.DType = te.get_fp8_te_dtype(te.get_fp8_recipe(), fprop_tensor=False)
te.FP8GlobalStateManager.is_fp8_enabled()
te.fp8_autocast(enabled=False)
te.fp8_model_init(enabled=False)

# Models.
tokenizer: ov.Tokenizer = ov.Tokenizer.from_file("model")
ids: list[int] = tokenizer.encode("Hello", specials=False)
words: str = tokenizer.decode(ids) + tokenizer.token_of(ids[0])
end: int | None = tokenizer.eos
model: ov.Model = ov.load_model("model", threads=1)
said = model.generate("Hello", max_tokens=4)
seen: ov.Evaluation = ov.evaluate(["model"], {"a": "text"}, window=64)
lost_there: float = seen.perplexity
counted: ov.Calibration = ov.calibrate("model", {"a": [1, 2]}, "statistics.safetensors")
