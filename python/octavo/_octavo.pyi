"""
The doors from Python into the octavo library. Use the octavo package, not this module.
"""

from collections.abc import Callable, Sequence

import numpy


class Format:
    """
    What the bits of a code mean. Formats are immutable, hashable and compare equal when every code means the same.

        >>> octavo.Format('e4m3fn').max
        448.0
    """

    def __init__(self, name: str) -> None:
        """
        A format by name: e<E>m<M>, then optionally b<bias>, then nothing (IEEE 754 rules), fn, fnuz or fnu; or mxint8, int8, int4.
        """

    @property
    def name(self) -> str:
        """The canonical name; Format(f.name) == f."""

    @property
    def note(self) -> str:
        """
        One line on its use; empty for formats that are not in octavo.formats().
        """

    @property
    def bits(self) -> int:
        """Bits of one code, sign included."""

    @property
    def exponent_bits(self) -> int:
        """Bits of the exponent field."""

    @property
    def mantissa_bits(self) -> int:
        """Bits of the mantissa field; the leading one is not stored."""

    @property
    def bias(self) -> int:
        """What is subtracted from the exponent field."""

    @property
    def max(self) -> float:
        """The largest finite value."""

    @property
    def min(self) -> float:
        """
        The lowest finite value (negative in signed formats), as in numpy.finfo.
        """

    @property
    def smallest_normal(self) -> float:
        """The smallest positive value with full precision."""

    @property
    def tiny(self) -> float:
        """The same as smallest_normal, as in numpy.finfo."""

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive value."""

    @property
    def eps(self) -> float:
        """The distance from 1.0 to the next larger value of this precision."""

    @property
    def is_signed(self) -> bool: ...

    @property
    def has_inf(self) -> bool: ...

    @property
    def has_nan(self) -> bool: ...

    @property
    def has_zero(self) -> bool: ...

    @property
    def has_subnormals(self) -> bool: ...

    @property
    def has_negative_zero(self) -> bool: ...

    @property
    def itemsize(self) -> int:
        """Bytes of one code that is not packed: 1 or 2."""

    @property
    def code_dtype(self) -> str:
        """The integer dtype that holds one code."""

    @property
    def numpy_dtype(self) -> numpy.dtype | None:
        """
        The dtype NumPy (with ml_dtypes, if it is installed) has for this format, or None.
        """

    @property
    def torch_dtype(self) -> object | None:
        """The dtype PyTorch has for this format, or None. Imports torch."""

    def codes(self) -> numpy.ndarray:
        """Every code, in order: 0, 1, ..., 2**bits - 1."""

    def values(self) -> numpy.ndarray:
        """The value of every code, in order, as float64; all exact."""

    def __repr__(self) -> str: ...

    def __str__(self) -> str: ...

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __reduce__(self) -> tuple[type[Format], tuple[str]]: ...

def formats() -> list[Format]:
    """The formats known by a name of their own."""

def array_memory(array_struct: object) -> tuple[int, bool]:
    """
    The address of a NumPy array and whether it may be written, from its __array_struct__.
    """

class View:
    """The caller's memory, as the library sees it. Owns nothing."""

    def __init__(self, address: int, kind: Format | str, shape: Sequence[int], strides: Sequence[int], packed: bool = False, read_only: bool = False, cuda: int = -1) -> None:
        """
        kind: a Format, or a value type by name. Strides are in bytes, one per dimension. cuda: the index of the device; -1 is the CPU.
        """

class Tensor:
    """Memory that the library owns, or that came as a DLPack capsule."""

    @staticmethod
    def empty(kind: Format | str, shape: Sequence[int], packed: bool = False, cuda: int = -1, stream: int = 0) -> Tensor:
        """
        New memory, not initialised. kind: a Format, or a value type by name. cuda: the index of a device, and the stream it will be written on.
        """

    @staticmethod
    def borrow(view: View, owner: object) -> Tensor:
        """The memory of a view, which the owner keeps alive."""

    @staticmethod
    def from_dlpack(capsule: object) -> Tensor:
        """Takes the array in a capsule over."""

    @property
    def address(self) -> int: ...

    @property
    def kind(self) -> Format | str:
        """A Format, or a dtype by name."""

    @property
    def written_on(self) -> int | None:
        """
        On a device: the stream that writes it, if octavo has to order readers after it.
        """

    @written_on.setter
    def written_on(self, stream: int | None) -> None: ...

    @property
    def shape(self) -> list[int]:
        """In elements."""

    @property
    def strides(self) -> list[int]:
        """In bytes."""

    @property
    def cuda(self) -> int:
        """The index of the device; -1 is the CPU."""

    @property
    def nbytes(self) -> int: ...

    @property
    def packed(self) -> bool: ...

    @property
    def read_only(self) -> bool: ...

    def as_bytes(self) -> Tensor:
        """The same memory; __dlpack__ calls codes plain integers."""

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: object | None = None, copy: bool | None = None) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

class ConformReport:
    def json(self) -> str: ...

    def text(self) -> str: ...

def conform(answer: Callable) -> ConformReport: ...

def octavo_conforms() -> ConformReport: ...

def encode(source: View, target: View, *, rounding: str | None = None, overflow: str | None = None, nan: str | None = None, profile: str | None = None, seed: int = 0, first_index: int = 0, stochastic_bits: int = 16, threads: int = 0, count: bool = False, stream: int = 0) -> tuple[int, int, int] | None:
    """
    Values, or codes of another format, to codes. With count: (saturated, flushed, nan).
    """

def decode(source: View, target: View, *, threads: int = 0, stream: int = 0) -> None:
    """Codes to values."""

def encode_scaled(source: View, target: View, inv_scale: float | View, *, rounding: str | None = None, overflow: str | None = None, nan: str | None = None, profile: str | None = None, seed: int = 0, first_index: int = 0, stochastic_bits: int = 16, threads: int = 0, count: bool = False, stream: int = 0) -> tuple[int, int, int] | None:
    """
    Values times a number, or a view of numbers of their shape, to codes. With count: (saturated, flushed, nan).
    """

def encode_dynamic(source: View, target: View, rule: str, inv_scale: View, *, rounding: str | None = None, overflow: str | None = None, nan: str | None = None, profile: str | None = None, seed: int = 0, first_index: int = 0, stochastic_bits: int = 16, threads: int = 0, count: bool = False, stream: int = 0) -> tuple[int, int, int] | None:
    """The same with a factor from the amax, which is written to inv_scale."""

def decode_scaled(source: View, target: View, factor: float | View, *, divide: bool, threads: int = 0, stream: int = 0) -> None:
    """
    Codes times a number, or a view of numbers of their shape, or divided, to values.
    """

def roundings() -> list[str]:
    """The names that rounding= takes."""

def overflows() -> list[str]:
    """The names that overflow= takes."""

def nan_inputs() -> list[str]:
    """The names that nan= takes."""

def profiles() -> list[str]:
    """The names that profile= takes."""

class Scaling:
    """
    How a tensor is quantized. Immutable, hashable; equal when all of it is equal, and its repr evaluates to it.

    format: of the codes: a name, an octavo.Format, or a dtype of ml_dtypes or torch.
    tile: the rectangle that shares one scale: (rows, columns) with 0 for a whole extent, or 'tensor', 'row', 'column', '1x32'.
    scale: how scales are stored: 'e8m0', 'f32', 'bf16', 'f16', 'e4m3+f32' (NVFP4: e4m3 and one f32 for the tensor); 'pow2' is f32 with the rule rceil.
    rule: amax to scale: 'f32' (the quotient), 'rceil', 'floor', 'ceil', 'even'; by itself rceil for e8m0, else f32.
    policy: what scales are chosen by: 'max', 'percentile:99.9', 'mse' (least squared error), 'wmse' (weighted, see quantize), and for nvfp4 '4over6' and 'modelopt_sweep'.
    margin: scales are multiplied by 2**margin. min_amax: a smaller amax counts as this.
    arith: whose order of operations: 'octavo', 'divide', 'te', 'torchao', 'modelopt', 'torchao_inference', 'modelopt_qtensor'.
    non_finite: 'poison' (the tile of a NaN or Inf becomes NaN) or 'saturate'.
    rounding, overflow, nan, seed, stochastic_bits: as in octavo.encode. nan_code: which NaN is written: 'signed_ones', 'positive_ones' (CUDA), 'signed_quiet'.
    axis: the dimension that tiles run along. rowwise, columnwise: which copies are made.
    hadamard: copies that are transformed before, 16 values at a time: 'none', 'rowwise', 'columnwise', 'both'; bit i of hadamard_signs flips the sign of value i.
    packed: codes of fewer than eight bits as a stream of bits, two FP4 codes to a byte.
    scale_order: how scales lie in memory: 'row_major', or 'col_major' (the last dimension slowest), as GEMMs with tiles of 1 x 128 read them.
    """

    def __init__(self, format: object = 'e4m3fn', tile: str | tuple[int, int] = (1, 32), *, scale: str = 'e8m0', rule: str | None = None, policy: str = 'max', margin: int = 0, min_amax: float = 0.0, arith: str = 'octavo', non_finite: str = 'poison', rounding: str = 'nearest_even', overflow: str = 'saturate', nan: str = 'error', nan_code: str = 'signed_ones', seed: int = 0, stochastic_bits: int = 16, axis: int = -1, rowwise: bool = True, columnwise: bool = False, hadamard: str = 'none', hadamard_signs: int = 0, packed: bool = True, scale_order: str = 'row_major') -> None: ...

    @property
    def format(self) -> Format: ...

    @property
    def tile(self) -> tuple[int, int]:
        """(rows, columns); 0 is the whole extent."""

    @property
    def scale(self) -> str: ...

    @property
    def rule(self) -> str: ...

    @property
    def policy(self) -> str: ...

    @property
    def margin(self) -> int: ...

    @property
    def min_amax(self) -> float: ...

    @property
    def arith(self) -> str: ...

    @property
    def non_finite(self) -> str: ...

    @property
    def rounding(self) -> str: ...

    @property
    def overflow(self) -> str: ...

    @property
    def nan(self) -> str: ...

    @property
    def nan_code(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def stochastic_bits(self) -> int: ...

    @property
    def axis(self) -> int: ...

    @property
    def rowwise(self) -> bool: ...

    @property
    def columnwise(self) -> bool: ...

    @property
    def hadamard(self) -> str: ...

    @property
    def hadamard_signs(self) -> int: ...

    @property
    def packed(self) -> bool: ...

    @property
    def scale_order(self) -> str: ...

    def replace(self, **changes: object) -> Scaling:
        """The same with changes. A new scale without a rule takes its own."""

    def __repr__(self) -> str: ...

    def __str__(self) -> str: ...

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __getstate__(self) -> dict: ...

    def __setstate__(self, arg: dict, /) -> None: ...

def preset(name: str) -> Scaling:
    """
    A Scaling by name, with a colon and an element format where there is a choice.
    """

def preset_names() -> list[str]:
    """The names that preset takes."""

class QuantizedTensor:
    """Codes and their scales, in memory of the library's."""

    @staticmethod
    def empty(shape: Sequence[int], source: str, scaling: Scaling, allocate: object | None = None, cuda: int = -1) -> QuantizedTensor:
        """
        Memory for a quantization, not initialised; allocate(bytes), if given, makes it and returns (address, owner).
        """

    @staticmethod
    def of(shape: Sequence[int], scaling: Scaling, codes: Tensor, scales: Tensor, tensor_scale: Tensor | None = None, stream: int = 0, validate: bool = True) -> QuantizedTensor:
        """
        External codes and scales, checked; validate: check scales for negative values, too.
        """

    @property
    def cuda(self) -> int:
        """The index of the device that it is on; -1 is the CPU."""

    def to_host(self, stream: int = 0) -> QuantizedTensor:
        """A copy on the CPU; waits for the device."""

    def transposed(self) -> QuantizedTensor:
        """The columnwise copy as a tensor of its own; nothing is copied."""

    def with_usage(self, rowwise: bool, columnwise: bool) -> QuantizedTensor:
        """The same memory with these copies only; they must be there."""

    def with_source(self, source: str) -> QuantizedTensor:
        """The same memory, of values of another type."""

    @property
    def shape(self) -> list[int]:
        """Of what was quantized."""

    @property
    def source(self) -> str:
        """The type of what was quantized, by name."""

    @property
    def scaling(self) -> Scaling: ...

    @property
    def nbytes(self) -> int:
        """All copies together."""

    @property
    def codes(self) -> Tensor | None: ...

    @property
    def scales(self) -> Tensor | None: ...

    @property
    def tensor_scale(self) -> Tensor | None: ...

    @property
    def columnwise_codes(self) -> Tensor | None: ...

    @property
    def columnwise_scales(self) -> Tensor | None: ...

    @property
    def columnwise_tensor_scale(self) -> Tensor | None: ...

def quantize_into(values: View, out: QuantizedTensor, *, threads: int = 0, count: bool = False, stream: int = 0, column_weights: View | None = None) -> tuple[int, int, int] | None:
    """Values to codes with scales; with count, (saturated, flushed, nan)."""

def requantize_into(source: QuantizedTensor, out: QuantizedTensor, *, threads: int = 0, count: bool = False, stream: int = 0) -> tuple[int, int, int] | None:
    """A quantization as another one."""

def dequantize(source: QuantizedTensor, target: View, *, threads: int = 0, stream: int = 0) -> None:
    """Codes times scales, into a view of values."""

def fp8_quantize(values: View, scaling: Scaling, *, threads: int = 0, stream: int = 0) -> tuple[Tensor, Tensor]:
    """Codes in the order of the values' strides, and one scale."""

def amax(values: View, *, threads: int = 0, stream: int = 0) -> float:
    """The largest magnitude; NaN if there is a NaN. Waits for a device."""

def aligned_scaling(mx: Scaling, to: str) -> Scaling:
    """The Scaling of aligned codes and scales; to is rows or blocks."""

def align_exponents_into(mx: QuantizedTensor, out: QuantizedTensor, *, threads: int = 0, count: bool = False, stream: int = 0) -> int | None:
    """MX with aligned exponents; with count, how many elements changed."""

def quantize_aligned_into(values: View, mx: Scaling, out: QuantizedTensor, *, threads: int = 0, count: bool = False, stream: int = 0) -> int | None:
    """
    Values to MX with aligned exponents; with count, how many elements alignment changed.
    """

class Produced:
    """What a norm or an activation will make."""

    @property
    def shape(self) -> list[int]:
        """Of what comes out."""

def layer_norm(x: View, weight: View | None, bias: View | None, epsilon: float, zero_centred: bool) -> Produced:
    """LayerNorm over the last dimension."""

def rms_norm(x: View, weight: View | None, epsilon: float, zero_centred: bool) -> Produced:
    """RMSNorm over the last dimension."""

def activation(x: View, name: str, gated: bool) -> Produced:
    """
    gelu, gelu_tanh, relu or silu; gated: of the first half, times the second.
    """

def produce(values: Produced, target: View, *, threads: int = 0, stream: int = 0) -> None:
    """What is made, into a view of values."""

def quantize_produced_into(values: Produced, out: QuantizedTensor, *, threads: int = 0, stream: int = 0) -> None:
    """What is made, as codes with scales."""

class PackedWeights:
    """Weights packed once for this CPU's matrix instructions (octavo.pack)."""

    @property
    def shape(self) -> tuple:
        """(N, K)"""

    @property
    def scaling(self) -> Scaling | None:
        """How they are quantized; None: they are values."""

    @property
    def backend(self) -> str:
        """Whose microkernels read them."""

    @property
    def in_panels(self) -> bool:
        """
        Are they in the order of packed panels? Else they are rows: on CPUs without matrix instructions, and of types that those do not multiply.
        """

    @property
    def nbytes(self) -> int:
        """Of memory, scales included."""

    def __reduce__(self) -> tuple: ...

    def __array__(self, *args, **kwargs) -> object: ...

    def __repr__(self) -> str: ...

def pack(weights: View | QuantizedTensor, *, threads: int = 0) -> PackedWeights:
    """A copy in packed panels."""

def gemm_shape(a: View | QuantizedTensor, b: View | QuantizedTensor | PackedWeights) -> list[int]:
    """Of the product, checked."""

def gemm(a: View | QuantizedTensor, b: View | QuantizedTensor | PackedWeights, target: View, bias: View | None, activation: str | None, residual: View | None, accumulator: str, promote_every: int, *, threads: int = 0, stream: int = 0, count_aligned: bool = False, oblivious: bool = False) -> int:
    """
    activation(A B^T + bias) + residual, into a view of values. Returns how many elements alignment changed, if that is asked for.
    """

def gemm_grouped(a: View | QuantizedTensor, b: View | QuantizedTensor, rows: Sequence[int], target: View, bias: View | None, activation: str | None, residual: View | None, accumulator: str, promote_every: int, *, threads: int = 0, stream: int = 0, count_aligned: bool = False) -> int:
    """
    Rows of A by the matrix that their group has in B, into a view of values.
    """

def gemm_quantized_into(a: View | QuantizedTensor, b: View | QuantizedTensor | PackedWeights, out: QuantizedTensor, bias: View | None, activation: str | None, residual: View | None, accumulator: str, promote_every: int, *, threads: int = 0, stream: int = 0, count_aligned: bool = False, oblivious: bool = False) -> int:
    """The same as codes with scales, into memory of `out`."""

def attention_shape(q: View | QuantizedTensor, k: View | QuantizedTensor, v: View | QuantizedTensor) -> list[int]:
    """Of the result, checked."""

def attention(q: View | QuantizedTensor, k: View | QuantizedTensor, v: View | QuantizedTensor, target: View, precision: str, rtol: float, atol: float, causal: bool, bottom_right: bool, left: int, right: int, query_lengths: Sequence[int], key_lengths: Sequence[int], softmax_scale: float | None, log_sum_exp: View | None, bias: View | None = None, *, soft_cap: float = 0.0, sinks: View | None = None, threads: int = 0, stream: int = 0, dropout: float = 0.0, seed: int = 0, block_table: tuple[int, int, int, int] | None = None, device_key_lengths: int = 0, certified: bool = False, bound: View | None = None, probabilistic_bound: View | None = None, find_amaxes: bool = False, oblivious: bool = False) -> tuple[list[tuple[int, int, int, int, str, float, float, float, str]], int, tuple[float, float, float]]:
    """
    softmax(scale Q K^T) V into a view of values; what 'auto' chose, and rows done again; the largest S, P and O.
    """

def attention_backward(q: View | QuantizedTensor, k: View | QuantizedTensor, v: View | QuantizedTensor, d_out: View, d_q: View, d_k: View, d_v: View, precision: str, causal: bool, bottom_right: bool, left: int, right: int, query_lengths: Sequence[int], key_lengths: Sequence[int], softmax_scale: float | None, bias: View | None = None, out: View | None = None, log_sum_exp: View | None = None, *, soft_cap: float = 0.0, sinks: View | None = None, d_sinks: View | None = None, threads: int = 0, stream: int = 0, dropout: float = 0.0, seed: int = 0) -> None:
    """Gradients into views of the shapes of Q, K and V, and of the sinks."""

class KvCache:
    def __init__(self, batches: int, kv_heads: int, head_size: int, value_size: int, k: Scaling, v: Scaling, capacity: int, cuda: int = -1, page_tokens: int = 0) -> None: ...

    def append(self, k: View, v: View, counts: Sequence[int], stream: int = 0) -> None: ...

    def reserve(self, tokens: int, stream: int = 0) -> None: ...

    def attend(self, q: View | QuantizedTensor, target: View, precision: str, rtol: float, atol: float, left: int, softmax_scale: float | None, *, soft_cap: float = 0.0, sinks: View | None = None, oblivious: bool = False, threads: int = 0, stream: int = 0) -> None: ...

    def append_codes(self, k: QuantizedTensor, v: QuantizedTensor, counts: Sequence[int]) -> None:
        """Tokens that are codes with the scalings of this cache."""

    def copy(self) -> KvCache:
        """With memory of its own."""

    def keys(self) -> QuantizedTensor:
        """A copy of the keys there are."""

    def values(self) -> QuantizedTensor:
        """A copy of the values there are."""

    def clear(self, stream: int = 0) -> None: ...

    def truncate(self, batch: int, length: int, stream: int = 0) -> None: ...

    @property
    def lengths(self) -> list[int]: ...

    @property
    def capacity(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def value_size(self) -> int: ...

def to_layout(scales: Tensor, layout: str, pad: int = 0) -> Tensor:
    """A row-major grid of scales in another order."""

def from_layout(scales: Tensor, layout: str, grid: Sequence[int]) -> Tensor:
    """Back to a row-major grid."""

def reset_delayed(history: View, inv_scale: View, scale: View | None, calls: View | None, *, stream: int = 0) -> None:
    """As before the first step."""

def update_delayed(history: View, inv_scale: View, scale: View | None, calls: View | None, *, format: Format, policy: str, margin: int, decay: float, interval: int, stream: int = 0) -> None:
    """The end of a step."""

class Quantizer:
    """A configuration that becomes a Scaling."""

    @property
    def name(self) -> str: ...

    @property
    def scaling(self) -> Scaling: ...

    def set_usage(self, rowwise: bool | None, columnwise: bool | None) -> None:
        """Which copies are made from now on."""

    def copy(self) -> Quantizer:
        """Another one that is set the same way; state is shared."""

    def calibrate(self, values: View, stream: int = 0) -> None:
        """Takes note of values and quantizes nothing."""

    def quantize_into(self, values: View, out: QuantizedTensor, *, threads: int = 0, count: bool = False, stream: int = 0) -> tuple[int, int, int] | None: ...

class Float8Quantizer(Quantizer):
    def __init__(self, inv_scale: View, amax: View, format: Format, rowwise: bool, columnwise: bool) -> None: ...

class Float8CurrentScalingQuantizer(Quantizer):
    def __init__(self, format: Format, rowwise: bool, columnwise: bool, power_of_two: bool, min_amax: float, reduce_amax: Callable[[float], float] | None) -> None: ...

class Float8BlockQuantizer(Quantizer):
    def __init__(self, format: Format, rowwise: bool, columnwise: bool, power_of_two: bool, min_amax: float, block_dims: int) -> None: ...

class MXFP8Quantizer(Quantizer):
    def __init__(self, format: Format, rowwise: bool, columnwise: bool, two_dimensional: bool) -> None: ...

class NVFP4Quantizer(Quantizer):
    def __init__(self, rowwise: bool, columnwise: bool, with_rht: bool, rht_signs: int, two_dimensional: bool, stochastic_rounding: bool, seed: int) -> None: ...

    def set_seed(self, seed: int) -> None: ...

def te_hadamard_signs() -> int:
    """The signs of Transformer Engine's Hadamard transform."""

class Recipe:
    """A recipe, checked."""

    def __init__(self, name: str, fields: dict) -> None:
        """The fields of the class of octavo.recipe."""

    @property
    def name(self) -> str:
        """Of the class."""

    @property
    def fp8_dpa(self) -> bool: ...

    @property
    def fp8_mha(self) -> bool: ...

    def __eq__(self, other: object, /) -> bool: ...

    def __str__(self) -> str: ...

def recipe_predicates(name: str) -> list[str]:
    """What recipes of the class of this name are: the predicates that hold."""

def default_recipe() -> Recipe:
    """What autocast uses where none is given."""

class Autocast:
    """A scope of this thread; entered when made."""

    def __init__(self, recipe: Recipe, enabled: bool, calibrating: bool, reduce: Callable[[Sequence[float]], Sequence[float]] | None) -> None:
        """reduce: from this process's amaxes to those of the group."""

    def leave(self, failed: bool) -> None: ...

    def leave_later(self) -> None:
        """Where leave fails: it ends with the scopes inside of it."""

def current_autocast() -> tuple[bool, bool, Recipe | None]:
    """(enabled, calibrating, recipe) of this thread."""

class QuantizedModelInit:
    """A scope of this thread; entered when made."""

    def __init__(self, recipe: Recipe, enabled: bool, preserve_high_precision_init_val: bool) -> None: ...

    def leave(self) -> None: ...

    def leave_later(self) -> None: ...

def current_model_init() -> tuple[bool, bool, Recipe | None]:
    """(enabled, preserve_high_precision_init_val, recipe) of this thread."""

class QuantizerSet:
    """The quantizers of a module and a direction."""

    def __len__(self) -> int: ...

    def at(self, slot: int) -> Quantizer: ...

    @property
    def amax_history(self) -> Tensor | None:
        """[length, slots]; None without state."""

    @property
    def last_amax(self) -> Tensor | None:
        """[slots]: the last amax of each tensor."""

    @property
    def calls(self) -> Tensor | None:
        """[1]: steps since the last new scale; None where each step makes one."""

    @property
    def inv_scale(self) -> Tensor | None:
        """[slots]: what values are multiplied by."""

    def restore(self, amax_history: View | None, inv_scale: View | None, calls: View | None = None, stream: int = 0) -> None:
        """State that was saved; what is None stays."""

class ModuleQuantizers:
    """What a module keeps of recipes."""

    def __init__(self, module_type: str, name: str, allocate: object | None, warn: object, cuda: int = -1, seed: int = 0, attends: bool = False) -> None:
        """
        attends: with slots for the tensors of attention. allocate(bytes), if given, makes memory for state and returns (address, owner).
        """

    def use(self, recipe: Recipe, stream: int = 0) -> bool:
        """
        Quantizers for a recipe; True where they are new. stream: on which state is made.
        """

    def at(self, key: str) -> QuantizerSet | None:
        """By scaling_fwd or scaling_bwd; None before the first recipe."""

    def first_weight(self, recipe: Recipe, values: View, stream: int = 0, allocate: object | None = None) -> QuantizedTensor:
        """The codes of a weight's first values."""

    def switched_weight(self, recipe: Recipe, codes: QuantizedTensor, dtype: str, stream: int = 0, allocate: object | None = None) -> QuantizedTensor:
        """The codes of a weight for another recipe."""

    def warn_unused_state(self, recipe: Recipe) -> None:
        """State of delayed scaling was loaded, and this recipe has none."""

    def next_weight(self, values: View, stream: int = 0, allocate: object | None = None) -> QuantizedTensor:
        """The codes of its later ones."""

class ForwardScales:
    """
    What a forward under delayed scaling multiplied by: it fills them in, or uses them where they are.
    """

    def __init__(self) -> None: ...

    @property
    def again(self) -> bool:
        """The forward is done again, and notes no amax."""

    @again.setter
    def again(self, arg: bool, /) -> None: ...

class WeightCache:
    """A weight's codes between micro-batches."""

    def __init__(self) -> None: ...

class LinearSaved:
    """What a backward of Linear needs."""

    @property
    def x_nbytes(self) -> int:
        """Of x, as it is kept."""

    def take_parts(self) -> list[tuple[str, Tensor]]:
        """All memory that backward reads, by name; it has none then."""

    def with_parts(self, places: Sequence[tuple[int, Sequence[int], object]]) -> LinearSaved:
        """
        With that memory, by address, strides in bytes and owner, in the order of take_parts.
        """

def linear_forward(x: Tensor, weight: Tensor | QuantizedTensor, made_with: Recipe | None, bias: Tensor | None, *, needs: tuple[bool, bool, bool], training: bool, is_first_microbatch: bool | None, quantizers: ModuleQuantizers, cache: WeightCache, accumulator: str = 'native', scales: ForwardScales | None = None, allocate: object | None = None, stream: int = 0) -> tuple[Tensor, LinearSaved]:
    """
    y = x w^T + bias in the autocast scope of this thread. made_with: the recipe of a weight that is codes. needs: which of dx, dw and db backward is asked for. training: delayed scaling records amaxes and is updated. accumulator: of products of codes. scales: of a forward that may be recomputed.
    """

def linear_backward(dy: Tensor, saved: LinearSaved) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """(dx, dw, db)."""

class AttentionPass:
    """A forward of attention under a recipe."""

    @property
    def out(self) -> Tensor:
        """Values."""

    @property
    def inputs(self) -> list[QuantizedTensor]:
        """Q, K and V where they were multiplied as codes, else empty."""

    @property
    def gives_codes(self) -> bool:
        """Whether the recipe wants the output as codes."""

    def output_codes(self, values: View) -> QuantizedTensor:
        """The output as codes, of its values as they are to lie."""

def attention_forward(q: View, k: View, v: View, quantizers: ModuleQuantizers, *, training: bool, precision: str, fp8_precision: str, causal: bool, bottom_right: bool, left: int, right: int, query_lengths: Sequence[int], key_lengths: Sequence[int], softmax_scale: float | None, bias: View | None, scales: ForwardScales | None = None, allocate: object | None = None, stream: int = 0, log_sum_exp: View | None = None, dropout: float = 0.0, seed: int = 0) -> AttentionPass:
    """Attention in the autocast scope of this thread."""

def error(values: View, q: QuantizedTensor, *, rows: bool, tiles: bool, histograms: bool, columnwise: bool, threads: int) -> dict: ...

def array_error(before: View, after: View) -> dict: ...

def choose_format(values: View, scaling: Scaling, *, threads: int) -> Scaling: ...

def gemm_error(a: View, b: View, a_used: View | QuantizedTensor, b_used: View | QuantizedTensor, result: View, *, threads: int) -> tuple[int, int, tuple[float, float, float], tuple[float, float, float], tuple[float, float, float]]:
    """
    (elements, not finite, quantization, accumulation, total); the last three are (relative_l2, max_abs, cosine).
    """

def save_quantized(path: str, names: Sequence[str], tensors: Sequence[QuantizedTensor]) -> None: ...

def load_quantized(path: str) -> dict: ...

class CheckpointReport:
    def json(self) -> str: ...

    def html(self) -> str: ...

    def missed(self, limits: Sequence[str]) -> list[tuple[str, str]]: ...

class RecipeComparison:
    def json(self) -> str: ...

    def html(self) -> str: ...

class SweepResult:
    def json(self) -> str: ...

    def html(self) -> str: ...

class QuantizePlanOptions:
    pass

class MixChoice:
    @property
    def options(self) -> QuantizePlanOptions: ...

    def json(self) -> str: ...

def choose_mix(source: str, options: QuantizePlanOptions, *, bits: float, bytes: int, candidates: Sequence[str], threads: int, max_memory: int, follow_links: bool, progress: object | None) -> MixChoice: ...

def parse_bits_per_weight(text: str) -> float: ...

def mixed_recipe_names() -> list[str]: ...

def plan_options(*, recipe: str, target: str, format: str, tile: str, scale_rule: str, arith: str, scale_policy: str, scale_format: str, include: Sequence[str], exclude: Sequence[str], recipe_for: Sequence[tuple[str, str]], share: bool, bf16_scales: bool, clamp_non_finite: bool, shard_bytes: int, statistics: str = '', model: str = '', out: str = '', input_scales: str = 'none', kv_scales: str = 'none') -> QuantizePlanOptions: ...

def plan_checkpoint(source: str, options: QuantizePlanOptions, *, follow_links: bool) -> str: ...

def check_limit(limit: str) -> None: ...

def quantize_checkpoint(source: str, out: str, options: QuantizePlanOptions, *, threads: int, max_memory: int, resume: bool, follow_links: bool, delete_source: bool = False, progress: object | None, plan: str = '', rank: int = -1, world: int = -1, takeover_after: float = 120.0, mix: MixChoice | None = None) -> CheckpointReport: ...

def convert_checkpoint(source: str, out: str, *, to: str, dtype: str, threads: int, max_memory: int, resume: bool, follow_links: bool, clamp_non_finite: bool, progress: object | None) -> dict: ...

def compare_checkpoints(a: str, b: str, *, threads: int, progress: object | None) -> CheckpointReport: ...

def compare_recipes(source: str, recipes: Sequence[str], options: QuantizePlanOptions, *, threads: int, max_memory: int, progress: object | None) -> RecipeComparison: ...

def sweep_checkpoint(source: str, axes: Sequence[tuple[str, Sequence[str]]], options: QuantizePlanOptions, *, threads: int, max_memory: int, progress: object | None) -> SweepResult: ...

def sweep_array(values: View, axes: Sequence[tuple[str, Sequence[str]]], options: QuantizePlanOptions, *, title: str, threads: int) -> SweepResult: ...

def sweep_options() -> list[str]: ...

def verify_checkpoint(path: str, *, loaders: Sequence[str], tensor_parallel: int, codes: bool, against: str) -> str: ...

def inspect_checkpoint(path: str, *, statistics: bool) -> str: ...

def most_threads() -> int: ...

def most_world() -> int: ...

def dialect_names() -> list[str]: ...

def loader_names() -> list[str]: ...

class Tokenizer:
    @staticmethod
    def from_json(tokenizer_json: str, tokenizer_config_json: str) -> Tokenizer: ...

    def encode(self, text: str, specials: bool) -> list[int]: ...

    def decode(self, ids: Sequence[int], skip_specials: bool) -> str: ...

    def id_of(self, token: str) -> int | None: ...

    def token_of(self, id: int) -> str: ...

    def is_special(self, id: int) -> bool: ...

    @property
    def size(self) -> int: ...

    @property
    def bos(self) -> int | None: ...

    @property
    def eos(self) -> int | None: ...

class Decoder:
    def __init__(self, path: str, weights: str | None, activations: str, threads: int) -> None: ...

    def logits(self, ids: Sequence[int], threads: int) -> Tensor: ...

    def generate(self, prompt: Sequence[int], max_tokens: int, temperature: float, top_k: int, top_p: float, seed: int, stop_at_eos: bool, cache: str | None, threads: int, on_token: Callable | None) -> tuple[list[int], bool, float, float]: ...

    def tokenizer(self) -> Tokenizer: ...

    def text_file(self, name: str) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def fingerprint(self) -> int: ...

    @property
    def config(self) -> dict: ...

class ModelEvaluation:
    def json(self) -> str: ...

    def html(self) -> str: ...

def evaluate(models: Sequence[str], *, against: str, files: Sequence[str], contents: Sequence[tuple[str, str]], ids: Sequence[tuple[str, Sequence[int]]], window: int, tokens: int, activations: str, max_memory: int, temporary: str, resume: str, threads: int, progress: object | None) -> ModelEvaluation: ...

class ModelStatistics:
    @property
    def tokens(self) -> int: ...

    @property
    def notes(self) -> list[str]: ...

    @property
    def modules(self) -> list[str]: ...

def calibrate(model: str, *, out: str, files: Sequence[str], contents: Sequence[tuple[str, str]], ids: Sequence[tuple[str, Sequence[int]]], window: int, tokens: int, block_hessians: bool, full_hessians: str, max_memory: int, temporary: str, resume: str, threads: int, progress: object | None) -> ModelStatistics: ...

def version() -> str:
    """The version of the library."""

def backends() -> list[tuple[str, bool, str, str]]:
    """Every backend, fastest first: (name, usable, reason, description)."""

def chosen_backend() -> str:
    """The backend that runs CPU work now."""

def cuda_summary() -> str:
    """What there is of CUDA, in one line."""

def check_cuda(index: int) -> None:
    """Raises RuntimeError that says why a CUDA device cannot be used."""

class KernelClock:
    """While one is there, calls of the CPU backend are timed; one at a time."""

    def __init__(self) -> None: ...

    @property
    def seconds(self) -> float:
        """Of the calls that have ended."""

    @property
    def calls(self) -> int: ...

def cpu_name() -> str:
    """The CPU, for display."""

def cpu_features() -> list[str]:
    """The CPU features octavo knows and this CPU reports."""

def available_threads() -> int:
    """Threads a call uses when it does not say."""

def product_threads() -> tuple[int, str]:
    """Threads a product uses when it does not say, and why."""

def usable_cpus() -> tuple[int, int, int, int]:
    """Sockets, NUMA nodes, cores and logical CPUs that this process may use."""

def max_threads() -> int:
    """The most threads that a call may ask for."""
