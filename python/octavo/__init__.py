"""octavo: floating point of eight bits and fewer.

    >>> import octavo as ov
    >>> codes = ov.encode(x, "e4m3fn")      # codes in x's own library; never a scale
    >>> ov.decode(codes)                    # and the values again
    >>> q = ov.quantize(x, "mxfp8")         # q.codes and q.scales, always both
    >>> ov.dequantize(q)
    >>> ov.gemm(q, ov.quantize(w, "mxfp8"))  # [M, K] x [N, K]^T

Arrays of NumPy, ml_dtypes, torch and of any library with DLPack come in without a copy; results are
arrays of the same library. Errors are ValueError, TypeError, OSError and RuntimeError.
"""

from octavo import _octavo, compat, quantizers, recipe
from octavo._align import Aligned, align_exponents, quantize_aligned
from octavo._attention import AttentionAmax, AttentionChoice, AttentionReport, attention
from octavo._checkpoint import (
    compare_checkpoints,
    convert_checkpoint,
    dequantize_checkpoint,
    dialects,
    inspect,
    quantize_checkpoint,
    verify_checkpoint,
)
from octavo._checkpoint_report import CheckpointReport, Finding, Findings, LimitMissed
from octavo._compare_recipes import RecipeComparison, compare_recipes
from octavo._conform import Conformance, conform
from octavo._convert import cast, decode, encode, fp8_decode, fp8_encode
from octavo._doctor import Backend, backends, doctor
from octavo._evaluate import Calibration, Evaluation, calibrate, evaluate
from octavo._files import load, save
from octavo._formats import finfo, format, formats
from octavo._gemm import gemm, gemm_grouped, pack
from octavo._kv_cache import KVCache
from octavo._layout import from_layout, to_layout
from octavo._model import Model, load_model
from octavo._octavo import Format, PackedWeights, Scaling
from octavo._operation import Counts
from octavo._produce import geglu, gelu, layer_norm, relu, rms_norm, silu, swiglu
from octavo._quantize import (
    amax,
    dequantize,
    fp8_quantize,
    preset,
    preset_names,
    quantize,
    requantize,
    transposed,
)
from octavo._quantized import QuantizedTensor
from octavo._quantized_from import quantized
from octavo._report import GemmError, error, gemm_error
from octavo._scaled import decode_scaled, encode_scaled
from octavo._scaled_mm import scaled_mm
from octavo._sweep import Sweep, choose_format, sweep
from octavo._tokenizer import Tokenizer
from octavo.compat import int32_to_bfloat16, round_to_fp8_represented_as_int8, undo_int8_fp8

__version__ = _octavo.version()

__all__ = [
    "AttentionAmax",
    "AttentionChoice",
    "AttentionReport",
    "Backend",
    "Calibration",
    "CheckpointReport",
    "Counts",
    "Finding",
    "Findings",
    "Aligned",
    "Evaluation",
    "Format",
    "GemmError",
    "KVCache",
    "LimitMissed",
    "Model",
    "PackedWeights",
    "QuantizedTensor",
    "Conformance",
    "RecipeComparison",
    "Scaling",
    "Sweep",
    "Tokenizer",
    "__version__",
    "amax",
    "attention",
    "backends",
    "calibrate",
    "cast",
    "choose_format",
    "compare_checkpoints",
    "compare_recipes",
    "compat",
    "conform",
    "convert_checkpoint",
    "decode",
    "decode_scaled",
    "dequantize",
    "dequantize_checkpoint",
    "dialects",
    "doctor",
    "encode",
    "encode_scaled",
    "error",
    "evaluate",
    "finfo",
    "align_exponents",
    "format",
    "formats",
    "fp8_decode",
    "fp8_encode",
    "fp8_quantize",
    "from_layout",
    "geglu",
    "gelu",
    "gemm",
    "gemm_error",
    "gemm_grouped",
    "inspect",
    "int32_to_bfloat16",
    "layer_norm",
    "load",
    "load_model",
    "pack",
    "preset",
    "preset_names",
    "quantize",
    "quantize_checkpoint",
    "quantize_aligned",
    "quantized",
    "quantizers",
    "recipe",
    "relu",
    "requantize",
    "rms_norm",
    "round_to_fp8_represented_as_int8",
    "save",
    "scaled_mm",
    "sweep",
    "silu",
    "swiglu",
    "to_layout",
    "transposed",
    "undo_int8_fp8",
    "verify_checkpoint",
]
