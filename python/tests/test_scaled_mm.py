"""scaled_mm and compat._scaled_mm: torch's own results where torch has them on a CPU, products in
float64 elsewhere."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # pytest's importlib mode does not
torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")
from exact_product import HALF_ULP, bound, unpacked_fp4  # noqa: E402

import octavo as ov  # noqa: E402
from octavo import _scaled_mm as inside  # noqa: E402
from octavo._arrays.torch_scales import by_shape  # noqa: E402
from octavo.compat import _scaled_mm  # noqa: E402

E4M3, E5M2, FP4 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float4_e2m1fn_x2
SHAPES = [(1, 1, 1), (5, 7, 33), (16, 48, 64), (33, 130, 257)]
ONE = torch.tensor(1.0)


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng((seed, *shape)).normal(0, 2, shape)).float()


def integers(*shape, seed=0):
    """Small enough that every sum is exact in float32, in any order."""
    values = np.random.default_rng((seed, *shape)).integers(-4, 5, shape)
    return torch.from_numpy(values).float()


def positive(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng((seed, *shape)).uniform(0.5, 2, shape)).float()


def wide(tensor) -> np.ndarray:
    return tensor.float().double().numpy()


def name_of(dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check(got, a, b, bias=None) -> None:
    """got is a b^T + bias of matrices in float64, as a float32 accumulator may have it."""
    exact, magnitude = a @ b.T, np.abs(a) @ np.abs(b.T)
    if bias is not None:
        exact, magnitude = exact + bias, magnitude + np.abs(bias)
    assert isinstance(got, torch.Tensor) and got.shape == exact.shape
    room = bound(exact, magnitude, a.shape[1] + 1, name_of(got.dtype))
    assert (np.abs(wide(got) - exact) <= room).all()


def spread(scales, rows, cols, shape) -> np.ndarray:
    full = np.repeat(np.repeat(wide(scales), rows, axis=0), cols, axis=1)
    return full[: shape[0], : shape[1]]


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rowwise", [False, True])
@pytest.mark.parametrize("formats", [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2)])
def test_beside_torch(formats, rowwise, out):
    for m, n, k in SHAPES:
        a, b = normal(m, k).to(formats[0]), normal(n, k, seed=1).to(formats[1])
        scale_a = positive(m, 1) if rowwise else torch.tensor(0.5)
        scale_b = positive(1, n, seed=1) if rowwise else torch.tensor(3.0)
        for bias in (None, normal(n, seed=2).to(out)):
            arguments = (a, b.t(), scale_a, scale_b, bias, None, out)
            theirs, ours = torch._scaled_mm(*arguments), _scaled_mm(*arguments)
            assert ours.dtype == theirs.dtype == out
            left, right = wide(a) * wide(scale_a), wide(b) * wide(scale_b.reshape(-1, 1))
            plain = None if bias is None else wide(bias)
            check(ours, left, right, plain)
            # Both are within the bound of the exact product; torch rounds to `out` before it adds
            # the bias on some CPUs, which is one half unit more.
            exact = left @ right.T + (0 if plain is None else plain)
            magnitude = np.abs(left) @ np.abs(right.T) + (0 if plain is None else np.abs(plain))
            room = 2 * bound(exact, magnitude, k + 1, name_of(out))
            room += 2 * magnitude * HALF_ULP[name_of(out)] * (bias is not None)
            assert (np.abs(wide(ours) - wide(theirs)) <= room).all()


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16, torch.float16, E4M3, E5M2, None])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_the_bits_of_torch_where_sums_are_exact(out, scale):
    a, b = integers(16, 64).to(E4M3), integers(32, 64, seed=1).to(E4M3)
    scales = torch.tensor(scale), torch.tensor(1.0)
    theirs = torch._scaled_mm(a, b.t(), *scales, out_dtype=out)
    ours = _scaled_mm(a, b.t(), *scales, out_dtype=out)
    assert ours.dtype == theirs.dtype
    assert torch.equal(ours.float(), theirs.float())
    named = ov.scaled_mm(
        a, b.t(), scales[0], "TensorWise", scales[1], "TensorWise", output_dtype=out
    )
    assert torch.equal(named.float(), theirs.float())


@pytest.mark.parametrize("out", [E4M3, E5M2])
def test_results_of_eight_bits(out):
    a, b = integers(16, 64).to(E4M3), integers(32, 64, seed=1).to(E4M3)
    results = [1.0, 2.0, 0.0625]  # powers of two, so that nothing else rounds
    if torch.tensor(1e9).to(E4M3).item() == 448:  # torch before 2.12 made NaN of it
        results.append(2.0**-20)  # beyond the range
    for result in results:
        arguments = (a, b.t(), ONE, ONE, None, torch.tensor(result), out)
        theirs, ours = torch._scaled_mm(*arguments), _scaled_mm(*arguments)
        assert ours.dtype == out
        same = ours.view(torch.uint8) == theirs.view(torch.uint8)
        # oneDNN, which torch takes on CPUs with AMX, makes NaN of what is beyond the range.
        beyond = theirs.float().isnan() & (ours.float().abs() == torch.finfo(out).max)
        assert (same | beyond).all(), result
    # A scale of the result is for results of eight bits, in torch too.
    plain = _scaled_mm(a, b.t(), ONE, ONE, None, torch.tensor(2.0), torch.float32)
    assert torch.equal(plain, a.float() @ b.float().t())


def test_beside_torch_nn_functional():
    functional = torch.nn.functional
    if not hasattr(functional, "scaled_mm"):
        pytest.skip("this torch has no torch.nn.functional.scaled_mm")
    kinds = functional.ScalingType
    a, b = integers(16, 64).to(E4M3), integers(32, 64, seed=1).to(E4M3)
    # Powers of two keep sums exact.
    rows_a = torch.exp2(integers(16, 1, seed=2))
    rows_b = torch.exp2(integers(1, 32, seed=3))
    for scale_a, scale_b, kind in [
        (torch.tensor(0.5), torch.tensor(2.0), kinds.TensorWise),
        (rows_a, rows_b, kinds.RowWise),
    ]:
        for dtype in (torch.bfloat16, torch.float32):
            arguments = (a, b.t(), scale_a, kind, scale_b, kind)
            theirs = functional.scaled_mm(*arguments, output_dtype=dtype)
            assert torch.equal(ov.scaled_mm(*arguments, output_dtype=dtype), theirs)
    assert ov.scaled_mm(*arguments).dtype == torch.bfloat16
    more = {"contraction_dim": (1, 0), "use_fast_accum": True}
    assert torch.equal(ov.scaled_mm(*arguments, **more), functional.scaled_mm(*arguments))


@pytest.mark.parametrize("shape", [(5, 7, 33), (130, 200, 300), (4, 129, 1000)])
def test_tiles_of_128(shape):
    m, n, k = shape
    a, b = normal(m, k).to(E4M3), normal(n, k, seed=1).to(E4M3)
    tiles = -(-k // 128)
    rows = {"a": positive(m, tiles), "b": positive(n, tiles, seed=1)}
    blocks = {
        "a": positive(-(-m // 128), tiles, seed=2),
        "b": positive(-(-n // 128), tiles, seed=3),
    }
    left = {
        "1x128": wide(a) * spread(rows["a"], 1, 128, (m, k)),
        "128x128": wide(a) * spread(blocks["a"], 128, 128, (m, k)),
    }
    right = {
        "1x128": wide(b) * spread(rows["b"], 1, 128, (n, k)),
        "128x128": wide(b) * spread(blocks["b"], 128, 128, (n, k)),
    }

    def given(name, kind, padded):
        """As torch.nn.functional.scaled_mm wants it: column-major, tiles of 128 x 128 K first."""
        if kind == "1x128":
            return rows[name].t().contiguous().t()
        grid = blocks[name]
        if padded:
            grid = torch.nn.functional.pad(grid, (0, -tiles % 4), value=float("nan"))
        return grid.contiguous().t()

    for kind_a, kind_b in [("1x128", "1x128"), ("1x128", "128x128"), ("128x128", "1x128")]:
        for padded in (False, True):
            got = ov.scaled_mm(
                a,
                b.t(),
                given("a", kind_a, padded),
                f"BlockWise{kind_a}",
                given("b", kind_b, padded),
                f"blockwise{kind_b}",
                output_dtype=torch.float32,
            )
            check(got, left[kind_a], right[kind_b])
        # torch._scaled_mm: grids lie as the matrices do.
        scale_a = (rows if kind_a == "1x128" else blocks)["a"]
        scale_b = (rows if kind_b == "1x128" else blocks)["b"].t()
        got = _scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.float32)
        check(got, left[kind_a], right[kind_b])


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("preset", ["mxfp8", "mxfp8:e5m2", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("shape", [(5, 7, 64), (130, 200, 320), (3, 129, 1024)])
def test_blocks(shape, preset, swizzled):
    m, n, k = shape
    q, r = ov.quantize(normal(m, k), preset), ov.quantize(normal(n, k, seed=1), preset)
    assert q.codes.dtype == (FP4 if "fp4" in preset else q.codes.dtype)

    def values(one, shape):
        bits = one.codes.view(torch.uint8).numpy()
        codes = unpacked_fp4(bits, shape[1]) if "fp4" in preset else wide(one.codes)
        full = codes * spread(one.scales, 1, one.tile[1], shape)
        return full if one.tensor_scale is None else full * float(one.tensor_scale)

    def scales(one):
        grid = ov.to_layout(one.scales, "swizzled_128x4") if swizzled else one.scales
        return grid if one.tensor_scale is None else [grid, one.tensor_scale]

    recipe = ["BlockWise1x16", "TensorWise"] if preset == "nvfp4" else "BlockWise1x32"
    order = "SWIZZLE_32_4_4" if swizzled else "NO_SWIZZLE"
    orders = [order, "NO_SWIZZLE"] if preset == "nvfp4" else order
    if hasattr(torch.nn.functional, "SwizzleType") and preset != "nvfp4":
        recipe = getattr(torch.nn.functional.ScalingType, recipe)
        orders = getattr(torch.nn.functional.SwizzleType, order)
    got = ov.scaled_mm(
        q.codes, r.codes.t(), scales(q), recipe, scales(r), recipe, orders, orders,
        output_dtype=torch.float32,
    )  # fmt: skip
    check(got, values(q, (m, k)), values(r, (n, k)))
    assert torch.equal(got, ov.gemm(q, r))
    if swizzled and preset != "nvfp4":
        # The dtype of the scales says enough for torch._scaled_mm.
        assert torch.equal(
            _scaled_mm(q.codes, r.codes.t(), scales(q), scales(r), out_dtype=torch.float32), got
        )
    if preset == "nvfp4":
        # One level is two whose second is 1.
        one = ov.scaled_mm(
            q.codes, r.codes.t(), scales(q)[0], "1x16", scales(r)[0], "1x16", order, order,
            output_dtype=torch.float32,
        )  # fmt: skip
        both = float(q.tensor_scale) * float(r.tensor_scale)
        check(
            one,
            values(q, (m, k)) / float(q.tensor_scale),
            values(r, (n, k)) / float(r.tensor_scale),
        )
        np.testing.assert_allclose(wide(one) * both, wide(got), rtol=1e-3, atol=1e-3)


def test_codes_are_used_where_they_lie():
    w, f4 = normal(48, 64).to(E4M3), ov.quantize(normal(48, 64), "mxfp4").codes
    for mat in (w.t(), w.t().contiguous(), f4.t()):
        b = inside._matrix(mat, "b", "test")
        scale = torch.zeros(128 * 4, dtype=torch.float8_e8m0fnu) if mat.dtype == FP4 else ONE
        q = by_shape(b, scale, None, "test")
        assert q.shape == (48, 64) and q.codes.data_ptr() == mat.data_ptr()
        assert q._handle.codes.address == mat.data_ptr()
    a = inside._matrix(w[:, 8:40], "a", "test")
    assert by_shape(a, ONE, None, "test")._handle.codes.address == w.data_ptr() + 8


def test_what_fp8_quantize_makes():
    a, b = integers(16, 32), integers(32, 24, seed=1)  # b is [K, N], row-major
    a_q, a_scale = ov.fp8_quantize(a)
    b_q, b_scale = ov.fp8_quantize(b)
    assert b_q.stride() == (24, 1)
    ours = ov.scaled_mm(a_q, b_q, scale_a=a_scale, scale_b=b_scale, output_dtype=torch.float32)
    theirs = torch._scaled_mm(a_q, b_q, scale_a=a_scale, scale_b=b_scale, out_dtype=torch.float32)
    left, right = wide(a_q) * float(a_scale), wide(b_q).T * float(b_scale)
    check(ours, left, right)
    check(theirs, left, right)
    same = _scaled_mm(a_q, b_q, scale_a=a_scale, scale_b=b_scale, out_dtype=torch.float32)
    assert torch.equal(ours, same)
    columns, scale = ov.fp8_quantize(b.t().contiguous().t())
    assert columns.stride() == (1, 32)
    # Another layout of b may have another kernel: within the bound too, but not of the same bits.
    check(_scaled_mm(a_q, columns, a_scale, scale, out_dtype=torch.float32), left, right)


def test_arrays_of_numpy(ml_dtypes):
    a, b = integers(6, 32).numpy(), integers(5, 32, seed=1).numpy()
    got = ov.scaled_mm(
        a.astype(ml_dtypes.float8_e4m3fn),
        b.astype(ml_dtypes.float8_e5m2).T,
        np.float32(0.5),
        "TensorWise",
        np.full((1, 5), 2, np.float32),
        "RowWise",
        output_dtype=np.float32,
    )
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, a @ b.T)


def test_nothing_to_sum_and_nothing_to_make():
    def empty(m, k):
        return torch.zeros(m, k).to(E4M3)

    for m, n, k in [(3, 4, 0), (0, 4, 8), (3, 0, 8)]:
        a, b = empty(m, k), empty(n, k).t()
        assert torch.equal(ov.scaled_mm(a, b, ONE, scale_b=ONE), torch.zeros(m, n).bfloat16())
        rows = torch.ones(m, 1), torch.ones(1, n)
        got = ov.scaled_mm(a, b, rows[0], "RowWise", rows[1], "RowWise")
        assert torch.equal(got, torch.zeros(m, n).bfloat16())


@pytest.mark.parametrize("grid", [(1, 1), (128, 4), (130, 5), (33, 64), (257, 7), (0, 4), (4, 0)])
def test_scales_unswizzled_by_torch(grid):
    """As on a device, where octavo has no kernel for it."""
    from octavo._arrays import describe, torch_device

    codes = np.random.default_rng(0).integers(0, 255, grid, dtype=np.uint8)
    scales = torch.from_numpy(codes).view(torch.float8_e8m0fnu)
    laid_out = ov.to_layout(scales, "swizzled_128x4")
    for given in (laid_out, laid_out.flatten(), laid_out.view(torch.uint8)):
        made = torch_device.unswizzled(describe(given, "test"), *grid)
        assert torch.equal(made.obj, scales.view(torch.uint8)) and made.obj.is_contiguous()


def test_results_divided_by_torch():
    from octavo._arrays import describe, torch_device

    values, by = normal(7, 9), torch.tensor([[0.3]])
    wanted = values.numpy() * (np.float32(1) / by.numpy().reshape(()))
    torch_device.divide(describe(values, "test"), describe(by, "test"))
    assert np.array_equal(values.numpy(), wanted)
