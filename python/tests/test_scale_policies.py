"""Scale policies beside brute force in float64, which shares no code with octavo."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
# Values of the codes 0 to 126 of E4M3, and of E4M3's magnitudes below.
E4M3 = np.array(
    [
        (m / 8 if e == 0 else 1 + m / 8) * 2.0 ** (max(e, 1) - 7)
        for e in range(16)
        for m in range(8)
    ][:127]
)
# What sums in float32 may lose: 16 or 32 squares, each with a relative error of 2^-24, in at most
# six additions; and u, with two roundings of 2^-24 of up to 8, beside errors of about a quarter.
CLOSE = 1 + 1e-5


def nearest(u: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The value nearest to each magnitude; which of two in a tie does not matter to an error."""
    return grid[np.abs(u[..., None] - grid).argmin(axis=-1)]


def squared_error(blocks: np.ndarray, scale: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Of each block under its own scale, in float64."""
    x = np.abs(blocks.astype(np.float64))
    back = nearest(x / scale[:, None], grid) * scale[:, None]
    return ((x - back) ** 2).sum(axis=1)


def values(kind: str, shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if kind == "heavy":
        x = rng.standard_t(5, shape)
    if kind == "laplace":
        x = rng.laplace(size=shape)
    if kind == "channels":
        x = x * rng.lognormal(0, 0.6, shape[-1])
    if kind == "rows":  # 30 binades apart
        x = x * 2.0 ** rng.integers(-15, 16, (shape[0], 1))
    return x.astype(np.float32)


KINDS = ["normal", "heavy", "laplace", "channels", "rows"]


def nvfp4_blocks(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Blocks, codes of their scales by policy mse and of their amaxes, and the tensor's scale."""
    best = ov.quantize(x, ov.preset("nvfp4").replace(policy="mse"))
    tensor = np.float32(best.tensor_scale)
    assert tensor == np.abs(x).max() / np.float32(6 * 256)  # room for larger scales, up to 448
    blocks = x.reshape(-1, 16)
    wanted = np.abs(blocks).max(axis=1) / np.float32(6) / tensor
    own = np.maximum(np.abs(E4M3 - wanted[:, None].astype(np.float64)).argmin(axis=1), 1)
    chosen = np.asarray(best.scales).view(np.uint8).reshape(-1).astype(int)
    return blocks, chosen, own, float(tensor)


@pytest.mark.parametrize("kind", KINDS)
def test_nvfp4_takes_the_least_error_of_nine_codes(kind):
    blocks, chosen, own, tensor = nvfp4_blocks(values(kind, (64, 1024)))
    tried = np.clip(own[:, None] + np.arange(-2, 7), 1, 126)
    errors = np.stack([squared_error(blocks, E4M3[c] * tensor, E2M1) for c in tried.T], axis=1)
    assert (np.abs(chosen[:, None] - tried) == 0).any(axis=1).all()
    got = squared_error(blocks, E4M3[chosen] * tensor, E2M1)
    assert (got <= errors.min(axis=1) * CLOSE).all()


@pytest.mark.parametrize("kind", ["normal", "heavy", "laplace", "channels"])
def test_nine_codes_are_as_good_as_all(kind):
    blocks, chosen, _, tensor = nvfp4_blocks(values(kind, (16, 512)))
    got = squared_error(blocks, E4M3[chosen] * tensor, E2M1)
    every = np.stack(
        [squared_error(blocks, np.full(len(blocks), v * tensor), E2M1) for v in E4M3[1:]], axis=1
    )
    assert (got <= every.min(axis=1) * CLOSE).all()


@pytest.mark.parametrize(
    ("kind", "at_most"), [("normal", 0.75), ("heavy", 0.81), ("laplace", 0.81), ("channels", 0.85)]
)
def test_nvfp4_error_is_lower(kind, at_most):
    """Sixteen values of these distributions lose 17 to 27 % of their mean squared error."""
    x = values(kind, (256, 4096))
    best = ov.error(x, ov.quantize(x, ov.preset("nvfp4").replace(policy="mse")))["mse"]
    assert best < at_most * ov.error(x, ov.quantize(x, "nvfp4"))["mse"]


@pytest.mark.parametrize("rule", ["rceil", "floor", "ceil", "even"])
@pytest.mark.parametrize("kind", KINDS)
def test_mxfp4_takes_the_better_of_two_powers(kind, rule):
    x = values(kind, (64, 1024), 2)
    q = ov.quantize(x, ov.preset("mxfp4").replace(policy="mse", rule=rule))
    blocks = x.reshape(-1, 32)
    exponent = np.asarray(q.scales).view(np.uint8).reshape(-1).astype(int) - 127
    floor = np.floor(np.log2(np.abs(blocks).max(axis=1).astype(np.float64))).astype(int) - 2
    assert np.isin(exponent - floor, [0, 1]).all()
    errors = np.stack([squared_error(blocks, 2.0 ** (floor + i), E2M1) for i in (0, 1)], axis=1)
    got = squared_error(blocks, 2.0**exponent, E2M1)
    assert (got <= errors.min(axis=1) * CLOSE).all()
    # One power below is never better.
    below = squared_error(blocks, 2.0 ** (floor - 1), E2M1)
    assert (got <= below * CLOSE).all()


@pytest.mark.parametrize("tile", [(1, 128), (128, 128), "tensor"])
def test_fp8_takes_the_least_error_of_quotients(tile):
    x = values("heavy", (128, 256), 3)
    plain = ov.Scaling(tile=tile, scale="f32")
    q = ov.quantize(x, plain.replace(policy="mse"))
    rows, cols = (128, 256) if tile == "tensor" else tile
    blocks = x.reshape(128 // rows, rows, 256 // cols, cols).swapaxes(1, 2).reshape(-1, rows * cols)
    amax = np.abs(blocks).max(axis=1).astype(np.float64)
    errors = np.stack(
        [squared_error(blocks, amax * k / 16 / 448, E4M3) for k in range(6, 28)], axis=1
    )
    got = squared_error(blocks, np.asarray(q.scales).reshape(-1).astype(np.float64), E4M3)
    assert (got <= errors.min(axis=1) * CLOSE).all()


def test_a_tile_of_exact_values_has_no_error():
    rng = np.random.default_rng(4)
    grid = E2M1[rng.integers(0, 8, (64, 256))] * rng.choice([-1, 1], (64, 256))
    x = (grid * E4M3[rng.integers(60, 120, (64, 16))].repeat(16, axis=1)).astype(np.float32)
    for largest in (6, 4, 3):  # codes from zero to six above that of the amax
        cut = np.where(np.abs(grid) <= largest, x, 0).astype(np.float32)
        cut[0, :16], cut[0, 0] = 0, 1536  # the tensor's scale is one
        q = ov.quantize(cut, ov.preset("nvfp4").replace(policy="mse"))
        assert q.tensor_scale == 1
        mse = ((ov.dequantize(q) - cut) ** 2).mean(axis=1)
        assert (mse <= (cut**2).mean(axis=1) * 1e-12).all()


def test_four_over_six_is_the_better_of_two():
    x = values("normal", (64, 1024), 5)
    q = ov.quantize(x, ov.preset("nvfp4").replace(policy="4over6"))
    tensor = float(q.tensor_scale)
    blocks = x.reshape(-1, 16)
    amax = np.abs(blocks).max(axis=1).astype(np.float64)
    codes = [
        np.abs(E4M3 - (amax * part / 6 / tensor)[:, None]).argmin(axis=1) for part in (1.0, 1.5)
    ]
    chosen = np.asarray(q.scales).view(np.uint8).reshape(-1).astype(int)
    assert ((chosen == codes[0]) | (chosen == codes[1])).all()
    errors = [squared_error(blocks, E4M3[c] * tensor, E2M1) for c in codes]
    got = squared_error(blocks, E4M3[chosen] * tensor, E2M1)
    assert (got <= np.minimum(*errors) * CLOSE).all()
    assert 0.2 < (chosen == codes[1]).mean() < 0.8  # either is the better one often


def test_weights_of_columns():
    x = values("normal", (64, 512), 6)
    weights = (2.0 ** (np.arange(512) * 37 % 13 - 6)).astype(np.float32)
    for name in ("nvfp4", "mxfp4", "fp8-1x128"):
        plain, weighted = (ov.preset(name).replace(policy=policy) for policy in ("mse", "wmse"))

        def lost(q, by):
            return ((ov.dequantize(q) - x).astype(np.float64) ** 2 * by).sum()

        best = ov.quantize(x, weighted, column_weights=weights)
        assert lost(best, weights) < lost(ov.quantize(x, plain), weights)
        same = ov.quantize(x, weighted, column_weights=np.ones(512, np.float32))
        np.testing.assert_array_equal(same.codes, ov.quantize(x, plain).codes)
    with pytest.raises(ValueError, match="got 0 column_weights for policy wmse"):
        ov.quantize(x, weighted)
    with pytest.raises(ValueError, match=r"column_weights\[3\] is nan"):
        ov.quantize(x, weighted, column_weights=np.where(np.arange(512) == 3, np.nan, weights))


@pytest.mark.parametrize("given", [np.float64, np.int32, np.float16, np.complex64, bool, list])
def test_weights_of_columns_are_float32(given):
    """Four bytes of an int32 are no float32, and a list becomes an array that nobody holds."""
    weighted = ov.preset("nvfp4").replace(policy="wmse")
    weights = [1.0] * 64 if given is list else np.ones(64, given)
    with pytest.raises(TypeError, match="expected float32"):
        ov.quantize(np.ones((4, 64), np.float32), weighted, column_weights=weights)


class Made:
    """Something that makes an array when it is asked for one, and does not keep it."""

    def __array__(self, dtype=None, copy=None):
        return (np.arange(512) % 7).astype(np.float32)


def test_weights_of_columns_live_through_the_call(torch):
    x, weighted = values("normal", (256, 512), 6), ov.preset("nvfp4").replace(policy="wmse")
    weights = (np.arange(512) % 7).astype(np.float32)
    want = ov.quantize(x, weighted, column_weights=weights).codes
    for _ in range(20):
        made = ov.quantize(x, weighted, column_weights=Made())
        assert (made.codes == want).all()
    # Negated where torch reads it, in new memory.
    negated = torch.complex(torch.zeros(512), -torch.from_numpy(weights)).conj().imag
    assert negated.is_neg()
    made = ov.quantize(torch.from_numpy(x), weighted, column_weights=negated)
    assert (made.codes.view(torch.uint8).numpy() == want.view(np.uint8)).all()


def test_weights_of_columns_have_their_shape():
    x, weighted = np.ones((4, 64), np.float32), ov.preset("nvfp4").replace(policy="wmse")
    for weights in (np.ones((2, 64), np.float32), np.ones(128, np.float32)[::2]):
        with pytest.raises(ValueError, match="contiguous vector of float32"):
            ov.quantize(x, weighted, column_weights=weights)


EDGES = {
    "zeros": np.zeros(64, np.float32),
    "one value": np.eye(1, 64, dtype=np.float32)[0],
    "subnormal": np.arange(64, dtype=np.float32) * np.float32(2.0**-149),
    "huge": np.full(64, np.finfo(np.float32).max) * np.linspace(-1, 1, 64, dtype=np.float32),
    "far apart": 2.0 ** np.linspace(-120, 120, 64).astype(np.float32),
    "nan": np.where(np.arange(64) == 40, np.nan, 1).astype(np.float32),
    "inf": np.where(np.arange(64) == 3, -np.inf, 1).astype(np.float32),
}


@pytest.mark.parametrize("policy", ["mse", "percentile:90", "percentile:50"])
@pytest.mark.parametrize("preset", ["nvfp4", "mxfp4", "mxfp8", "fp8", "fp8-1x128"])
@pytest.mark.parametrize("edge", EDGES)
def test_edges(edge, preset, policy, monkeypatch):
    x = EDGES[edge].reshape(2, 32)
    scaling = ov.preset(preset).replace(policy=policy)
    q = ov.quantize(x, scaling)
    back = ov.dequantize(q)
    with np.errstate(invalid="ignore"):
        poisoned = np.isnan(ov.dequantize(ov.quantize(x, preset)))
    assert (np.isnan(back) == poisoned).all()
    if edge == "zeros":
        assert (back == 0).all()
    monkeypatch.setenv("OCTAVO_BACKEND", "reference")
    wanted = ov.quantize(x, scaling)
    assert q.codes.tobytes() == wanted.codes.tobytes()
    assert q.scales.tobytes() == wanted.scales.tobytes()


# 55 % of 100 values are 55, and not the 56 that p / 100 * n is just above.
@pytest.mark.parametrize("percent", [1, 7, 50, 55, 90, 99, 99.9, 100])
@pytest.mark.parametrize("cols", [1, 7, 16, 32, 100, 128, 300])
def test_percentile_is_the_nearest_rank(cols, percent):
    x = values("heavy", (9, 640), 5)
    scaling = ov.Scaling(tile=(1, cols), scale="f32", policy=f"percentile:{percent}")
    got = np.asarray(ov.quantize(x, scaling).scales).reshape(9, -1)
    for tile in range(got.shape[1]):
        part = np.sort(np.abs(x[:, tile * cols : (tile + 1) * cols]), axis=1)
        n = part.shape[1]
        rank = max(1, -(-round(percent * 10) * n // 1000))  # the ceiling, in integers
        ranked = np.where(part[:, rank - 1] > 0, part[:, rank - 1], part[:, -1])
        assert (got[:, tile] == (ranked / np.float32(448)).astype(np.float32)).all()


def strided(base: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "transposed": base.transpose(2, 1, 0),
        "sliced": base[1:4, ::2, 3:60],
        "backwards": base[::-1, :, ::-1],
        "permuted": base.transpose(1, 0, 2),
        "broadcast": np.broadcast_to(base[0], (3, *base.shape[1:])),
    }


@pytest.mark.parametrize("policy", ["mse", "percentile:90", "percentile:99.9"])
@pytest.mark.parametrize("preset", ["fp8", "fp8-channel", "nvfp4", "mxfp4"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_strides_do_not_matter(preset, policy, dtype):
    base = values("channels", (5, 12, 64), 6).astype(dtype)
    scaling = ov.preset(preset).replace(policy=policy)
    for name, view in strided(base).items():
        q, dense = ov.quantize(view, scaling), ov.quantize(np.ascontiguousarray(view), scaling)
        assert q.codes.tobytes() == dense.codes.tobytes(), name
        assert q.scales.tobytes() == dense.scales.tobytes(), name
