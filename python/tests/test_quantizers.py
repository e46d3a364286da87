"""Quantizers with state in the caller's arrays, delayed scaling, and scales in other layouts."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import octavo as ov
from octavo import quantizers


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(8).normal(size=shape).astype(np.float32)


def parts(q: ov.QuantizedTensor) -> list[bytes | None]:
    arrays = (q.codes, q.scales, q.tensor_scale, q.columnwise_codes, q.columnwise_scales)
    return [None if array is None else array.tobytes() for array in arrays]


STATELESS = {
    "current": (quantizers.Float8CurrentScalingQuantizer, {}, (0, 0), "f32"),
    "current, power of two": (
        quantizers.Float8CurrentScalingQuantizer,
        {"power_of_two": True, "format": "e5m2"},
        (0, 0),
        "rceil",
    ),
    "block": (quantizers.Float8BlockQuantizer, {}, (128, 128), "rceil"),
    "block of rows": (
        quantizers.Float8BlockQuantizer,
        {"block_dims": 1, "power_of_two": False},
        (1, 128),
        "f32",
    ),
    "mx": (quantizers.MXFP8Quantizer, {}, (1, 32), "rceil"),
    "mx of squares": (quantizers.MXFP8Quantizer, {"two_dimensional": True}, (32, 32), "rceil"),
    "nvfp4": (quantizers.NVFP4Quantizer, {"with_rht": True}, (1, 16), "f32"),
}


@pytest.mark.parametrize("name", STATELESS)
def test_a_quantizer_is_its_scaling(name):
    kind, arguments, tile, rule = STATELESS[name]
    quantizer, x = kind(**arguments), values(64, 160)
    scaling = quantizer.scaling
    assert (scaling.tile, scaling.rule, scaling.arith) == (tile, rule, "te")
    assert scaling.rowwise and scaling.columnwise
    q = quantizer(x)
    assert parts(q) == parts(quantizer.quantize(x)) == parts(ov.quantize(x, scaling))
    assert eval(repr(scaling), {"octavo": ov}) == scaling
    assert parts(pickle.loads(pickle.dumps(q))) == parts(q)
    quantizer.set_usage(columnwise=False)
    assert quantizer(x).columnwise_codes is None
    assert quantizer.quantize(2 * x, out=(q := quantizer(x))) is q
    assert parts(q) == parts(quantizer(2 * x))
    assert type(quantizer).__name__ in repr(quantizer)


def test_shared_amax():
    x, seen = values(8, 32), []

    def reduce_amax(amax: float) -> float:
        seen.append(amax)
        return 4 * amax

    q = quantizers.Float8CurrentScalingQuantizer(reduce_amax=reduce_amax)(x)
    assert seen == [ov.amax(x)]
    assert q.scales == np.float32(1) / (np.float32(448) / np.float32(4 * seen[0]))

    def broken(amax: float) -> float:
        raise KeyError("nobody answers")

    with pytest.raises(KeyError, match="nobody answers"):
        quantizers.Float8CurrentScalingQuantizer(reduce_amax=broken)(x)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("name", STATELESS)
def test_a_copy_is_set_by_itself(name, copied):
    kind, arguments, _, _ = STATELESS[name]
    one = kind(**arguments)
    other = copied(one)
    other.set_usage(columnwise=False)
    assert type(other) is kind and one.scaling.columnwise and not other.scaling.columnwise
    assert parts(other(values(256, 256)))[:3] == parts(one(values(256, 256)))[:3]


def test_state_of_a_copy():
    inv_scale, amax = np.float32([2.0]), np.zeros(1, np.float32)
    one = quantizers.Float8Quantizer(inv_scale, amax)
    shared, own = copy.copy(one), copy.deepcopy(one)
    shared.set_usage(columnwise=False)
    assert one.scaling.columnwise
    shared(np.float32([[3.0]]))
    assert amax[0] == 3.0 and shared.amax is amax
    own(np.float32([[5.0]]))
    assert amax[0] == 3.0 and own.amax[0] == 5.0 and own.inv_scale[0] == 2.0


@pytest.mark.parametrize("result", [None, "much", [1.0]])
def test_a_reduction_gives_a_number(result):
    quantizer = quantizers.Float8CurrentScalingQuantizer(reduce_amax=lambda amax: result)
    with pytest.raises(TypeError, match="reduce_amax returned .*; expected a number"):
        quantizer(values(4, 4))


@pytest.mark.parametrize("result", [-1.0, float("nan")])
def test_a_reduction_gives_a_magnitude(result):
    quantizer = quantizers.Float8CurrentScalingQuantizer(reduce_amax=lambda amax: result)
    with pytest.raises(ValueError, match="reduce_amax gave"):
        quantizer(values(4, 4))


def test_seeds():
    x = values(32, 64)
    quantizer = quantizers.NVFP4Quantizer(stochastic_rounding=True, seed=1)
    one = parts(quantizer(x))
    quantizer.set_seed(2)
    assert quantizer.scaling.seed == 2 and parts(quantizer(x)) != one
    quantizer.set_seed(1)
    assert parts(quantizer(x)) == one
    with pytest.raises(ValueError, match="which is for stochastic rounding"):
        quantizers.NVFP4Quantizer().set_seed(1)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("policy", ["max", "most_recent"])
def test_delayed_scaling(library, policy, torch):
    """Five steps of two tensors, the second of which never runs, beside the rule in float32."""
    f32, length = np.float32, 3
    history, inv_scale, scale = np.zeros((length, 2), f32), np.ones(2, f32), np.ones(2, f32)
    ours = [history, inv_scale, scale]
    state = ours if library == "numpy" else [torch.from_numpy(array) for array in ours]
    quantizers.reset_delayed(state[0], state[1], scale=state[2])
    quantizer = quantizers.Float8Quantizer(state[1][:1], state[0][0, :1], columnwise=False)
    expected, past = f32(1), []
    for step in range(5):
        x = values(16, 32) * f32([3, 100, 0.1, 0.1, 0.1][step])
        q = quantizer(x if library == "numpy" else torch.from_numpy(x))
        codes = np.asarray(q.codes if library == "numpy" else q.codes.view(torch.uint8))
        wanted = ov.encode(x * expected, "e4m3fn").view(np.uint8)
        np.testing.assert_array_equal(codes.view(np.uint8), wanted)
        assert q.scales.item() == f32(1) / expected and history[0, 0] == ov.amax(x)
        quantizers.update_delayed(state[0], state[1], scale=state[2], policy=policy)
        past = [*past, ov.amax(x)][-length:]
        expected = f32(448) / f32(max(past) if policy == "max" else past[-1])
        assert inv_scale.tolist() == [expected, 1] and scale[0] == f32(1) / expected
        assert history[0].tolist() == [0, 0]


def test_the_state_is_kept_and_torch_is_told(torch):
    amax, inv_scale = torch.zeros(1), torch.full((1,), 2.0)
    quantizer = quantizers.Float8Quantizer(inv_scale, amax)
    kept, version = weakref.ref(inv_scale), amax._version
    del inv_scale
    gc.collect()
    assert kept() is not None
    q = quantizer(torch.ones(4, 4))
    assert q.scales == 0.5 and amax == 1 and amax._version > version


def test_errors_of_state(torch):
    one = np.ones(1, np.float32)
    with pytest.raises(ValueError, match="expected one element"):
        quantizers.Float8Quantizer(one, np.ones(2, np.float32))
    with pytest.raises(TypeError, match="amax is float64; expected float32"):
        quantizers.Float8Quantizer(one, np.ones(1))
    with pytest.raises(TypeError, match="out is float, but the input is a NumPy array"):
        quantizers.Float8Quantizer(one, 1.0)
    with pytest.raises(ValueError, match="inv_scale is 0; expected a positive"):
        quantizers.Float8Quantizer(0 * one, one)(one)
    history = np.zeros((4, 1), np.float32)
    for arguments, message in [
        ({"policy": "mean"}, "mean"),
        ({"interval": 2}, "no memory to count calls"),
        ({"margin": 65}, "got margin = 65"),
        ({"policy": "ema", "decay": 1.0}, "got decay = 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            quantizers.update_delayed(history, one, **arguments)
    with pytest.raises(TypeError, match="out is a torch tensor, but the input is a NumPy array"):
        quantizers.update_delayed(history, torch.ones(1))
    with pytest.raises(ValueError, match="neither copy"):
        quantizers.MXFP8Quantizer(columnwise=False).set_usage(rowwise=False)
    with pytest.raises(ValueError, match="MXFP8Quantizer.*make one with make_empty"):
        quantizers.MXFP8Quantizer().quantize(values(4, 64), out=ov.quantize(values(4, 64), "mxfp8"))


def swizzled(grid: np.ndarray) -> np.ndarray:
    """128 x 4 tiles as 32 x 16 bytes: row r of a tile goes to r % 32, at 4 * (r // 32)."""
    rows, cols = -(-grid.shape[0] // 128) * 128, -(-grid.shape[1] // 4) * 4
    padded = np.zeros((rows, cols), np.uint8)
    padded[: grid.shape[0], : grid.shape[1]] = grid
    tiles = padded.reshape(rows // 128, 4, 32, cols // 4, 4)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(rows, cols)


@pytest.mark.parametrize("shape", [(256, 256), (130, 300), (1, 32)])
def test_swizzle(shape, torch):
    scales = ov.quantize(values(*shape), "mxfp8").scales
    moved = ov.to_layout(scales, "swizzled_128x4")
    assert moved.dtype == scales.dtype
    np.testing.assert_array_equal(moved.view(np.uint8), swizzled(scales.view(np.uint8)))
    flat = moved.view(np.uint8).reshape(-1)
    back = ov.from_layout(flat, "swizzled_128x4", scales.shape)
    assert back.dtype == np.uint8 and back.tobytes() == scales.tobytes()
    t = ov.quantize(torch.from_numpy(values(*shape)), "mxfp8").scales
    assert ov.to_layout(t, "swizzled_128x4").dtype == torch.float8_e8m0fnu
    assert ov.to_layout(t.view(torch.uint8), "swizzled_128x4").dtype == torch.uint8


def test_transposed():
    scales = ov.quantize(values(6, 300), "fp8-1x128").scales
    moved = ov.to_layout(scales, "transposed")
    assert moved.shape == (3, 8) and not moved[:, 6:].any()
    np.testing.assert_array_equal(moved[:, :6], scales.T)
    np.testing.assert_array_equal(ov.to_layout(scales, "transposed", pad=1), scales.T)
    np.testing.assert_array_equal(ov.from_layout(moved, "transposed", (6, 3)), scales)
    np.testing.assert_array_equal(ov.to_layout(moved[:, :6].T, "row_major"), scales)


def test_errors_of_layouts():
    scales = np.ones((4, 4), np.float32)
    for call, error, message in [
        (
            lambda: ov.to_layout(scales, "swizzle"),
            ValueError,
            r"\[layout\] got 'swizzle'; expected",
        ),
        (
            lambda: ov.to_layout(scales.astype(int), "transposed"),
            TypeError,
            "dtype int64; expected",
        ),
        (lambda: ov.to_layout(scales, "transposed", pad=-1), ValueError, "got pad = -1"),
        (lambda: ov.from_layout(scales, "transposed", (4, -4)), ValueError, "got a size = -4"),
        (
            lambda: ov.from_layout(scales, (4, 4), "transposed"),
            TypeError,
            "got layout = \\(4, 4\\); expected its name",
        ),
    ]:
        with pytest.raises(error, match=message):
            call()
