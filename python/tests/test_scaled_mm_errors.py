"""What scaled_mm and compat._scaled_mm refuse, and how they say it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")
import octavo as ov  # noqa: E402
from octavo.compat import _scaled_mm  # noqa: E402

E4M3, FP4 = torch.float8_e4m3fn, torch.float4_e2m1fn_x2
ONE = torch.tensor(1.0)
A, B = torch.ones(4, 64).to(E4M3), torch.ones(8, 64).to(E4M3).t()
F = torch.zeros(4, 32, dtype=torch.uint8).view(FP4)


@pytest.mark.parametrize(
    ("a", "b", "more", "error", "message"),
    [
        (A, B[:32], {}, ValueError, "K is 64 in mat_a and 32 in mat_b; expected [M, K] and [K, N]"),
        (A, B.t(), {}, ValueError, "mat_b has shape (8, 64): K is 64 in mat_a and 8 in mat_b"),
        (A[0], B, {}, ValueError, "mat_a has shape (64,); expected two dimensions"),
        (A.float(), B, {}, TypeError, "mat_a is float32; expected codes: a float8 dtype"),
        (A, B.view(torch.uint8), {}, TypeError, "say which with mat.view(dtype)"),
        (
            ov.quantize(torch.ones(4, 64), "fp8"),
            B,
            {},
            TypeError,
            "use gemm, which knows its scales",
        ),
        (
            F,
            torch.zeros(32, 8, dtype=torch.uint8).view(FP4),
            {},
            ValueError,
            "pass w.t() of weights",
        ),
        (A, B, {"scale_b": None}, TypeError, "got no scale_b"),
        (A, B, {"scale_a": ONE.double()}, TypeError, "scale_a is float64; expected float32"),
        (
            A,
            B,
            {"scale_a": torch.ones(3, 1)},
            ValueError,
            "scale_a has shape (3, 1); expected (1, 1)",
        ),
        (A, B, {"scale_b": torch.ones(8, 1)}, ValueError, "(1, 8) (RowWise)"),
        (A, B, {"scale_a": [ONE, ONE]}, TypeError, "got a list for scale_a without scale_recipe_a"),
        (
            A,
            B,
            {"swizzle_a": "SWIZZLE_32_4_4"},
            ValueError,
            "without scale_recipe_a; say the recipe",
        ),
        (A, B, {"scale_a": -ONE}, ValueError, "a scale is positive, zero or NaN"),
        (A, B, {"scale_recipe_a": "ColumnWise"}, ValueError, "got scale_recipe_a = 'ColumnWise'"),
        (A, B, {"scale_recipe_a": 1}, ValueError, "expected a ScalingType of torch or its name"),
        (
            A,
            B,
            {"scale_recipe_a": "RowWise"},
            ValueError,
            "scale_a has shape (); expected (4, 1) for RowWise",
        ),
        (
            A,
            B,
            {"scale_recipe_b": "TensorWise", "scale_b": torch.ones(1, 8)},
            ValueError,
            "scale_b has shape (1, 8); expected (1,) or () for TensorWise",
        ),
        (
            A,
            B,
            {"scale_recipe_a": "BlockWise1x32", "scale_a": torch.ones(4, 2)},
            TypeError,
            "elements of scale_a (BlockWise1x32) are of dtype float32; expected float8_e8m0fnu",
        ),
        (
            A,
            B,
            {"scale_recipe_a": "BlockWise1x128", "scale_a": torch.ones(1, 4)},
            ValueError,
            "scale_a has shape (1, 4); expected (4, 1) for BlockWise1x128 of mat_a, "
            "which is 4 x 64",
        ),
        (
            A,
            B,
            {"scale_recipe_b": "BlockWise128x128", "scale_b": torch.ones(2, 1)},
            ValueError,
            "expected (1, 1) or (4, 1) for BlockWise128x128 of mat_b",
        ),
        (
            A,
            B,
            {"scale_a": torch.ones(4, 2).to(torch.float8_e8m0fnu)},
            ValueError,
            "scale_a has 8 elements; expected 512 for BlockWise1x32 of mat_a: a grid of 4 x 2, sw",
        ),
        (
            A,
            B,
            {"scale_recipe_a": "TensorWise", "swizzle_a": "SWIZZLE_32_4_4"},
            ValueError,
            "got swizzle_a = SWIZZLE_32_4_4 for TensorWise",
        ),
        (
            A,
            B,
            {"scale_recipe_a": "TensorWise", "swizzle_a": "SWIZZLE_32_8"},
            ValueError,
            "got swizzle_a = 'SWIZZLE_32_8'; expected NO_SWIZZLE or SWIZZLE_32_4_4",
        ),
        (
            A,
            B,
            {"scale_recipe_a": ["TensorWise", "TensorWise"]},
            ValueError,
            "got 1 scales and 2 recipes for mat_a",
        ),
        (
            A,
            B,
            {"scale_recipe_a": ["RowWise", "TensorWise"], "scale_a": [torch.ones(4, 1), ONE]},
            ValueError,
            "two levels are only for [BlockWise1x16, TensorWise]",
        ),
        (
            A,
            B,
            {"contraction_dim": (0, 1)},
            ValueError,
            "got contraction_dim = (0, 1); expected ()",
        ),
        (A, B, {"output_dtype": torch.int8}, TypeError, "dtype int8 is not a format"),
        (A, B, {"output_dtype": torch.float64}, TypeError, "the output is float64"),
        (A, B, {"output_dtype": FP4}, TypeError, "expected an output of bfloat16"),
        (
            F,
            F.t(),
            {"output_dtype": None},
            TypeError,
            "got mat_a of float4_e2m1fn; expected an output",
        ),
        (A, B, {"bias": torch.ones(4)}, ValueError, "the bias has shape"),
        (A, B, {"threads": -1}, ValueError, "[scaled_mm] got threads = -1"),
    ],
)
def test_refused(a, b, more, error, message):
    arguments = {"scale_a": ONE, "scale_b": ONE} | more
    with pytest.raises(error) as caught:
        ov.scaled_mm(a, b, **arguments)
    assert message in str(caught.value)


def test_scale_of_the_result_is_one_float32():
    for scale in (torch.ones(2), torch.tensor(1.0, dtype=torch.float64)):
        with pytest.raises(
            ValueError, match=r"\[_scaled_mm\] scale_result is .* expected one float32"
        ):
            _scaled_mm(A, B, ONE, ONE, scale_result=scale)


def test_lists_of_nothing_are_named():
    a, b = (torch.ones(4, 32).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones(())
    with pytest.raises(ValueError, match="got no swizzles for mat_a"):
        ov.scaled_mm(a, b.t(), one, "TensorWise", one, "TensorWise", [])
    for wrong in (None, 1):
        with pytest.raises(ValueError, match="contraction_dim"):
            ov.scaled_mm(a, b.t(), one, None, one, None, contraction_dim=wrong)


def test_a_scale_of_results_is_checked_before_the_product(monkeypatch):
    from octavo import _scaled_mm as inside

    monkeypatch.setattr(inside, "product", None)  # which would fail
    with pytest.raises(ValueError, match="scale_result is float64"):
        _scaled_mm(A, B, ONE, ONE, scale_result=ONE.double())
    with pytest.raises(ValueError, match=r"scale_result is float32 of shape \(2,\)"):
        _scaled_mm(A, B, ONE, ONE, scale_result=torch.ones(2))


def test_other_libraries_on_a_device_are_told_what_to_do():
    """What torch itself does there, other libraries are asked to do themselves."""
    from octavo._arrays import describe
    from octavo._arrays.torch_scales import torch_device

    array = describe([1.0], "scaled_mm")
    array.cuda = 3
    wanted = r"\[scaled_mm\] scale_result on cuda:3 is for torch tensors only.*; divide it"
    with pytest.raises(RuntimeError, match=wanted):
        torch_device(array, "scale_result", "divide it", "scaled_mm")
