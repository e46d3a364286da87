"""Recipe classes: fields, what they print, what is refused. No torch here."""

from __future__ import annotations

import copy
import pickle

import pytest

from octavo import recipe
from octavo.recipe import (
    CustomRecipe,
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    Format,
    MMParams,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
    QParams,
)


def test_printed_form():
    assert repr(MXFP8BlockScaling()) == "recipe_type=MXFP8BlockScaling, margin=0, format=E4M3"
    assert str(DelayedScaling(margin=2)) == (
        "recipe_type=DelayedScaling, margin=2, format=HYBRID, amax_history_len=1024"
    )
    assert "use_power_2_scales=True" in repr(Float8CurrentScaling(use_power_2_scales=True))
    assert repr(NVFP4BlockScaling()) == "recipe_type=NVFP4BlockScaling, format=E2M1"


def test_predicates():
    assert MXFP8BlockScaling().mxfp8() and MXFP8BlockScaling.block_scaling()
    assert not MXFP8BlockScaling().fp8() and not MXFP8BlockScaling().delayed()
    assert DelayedScaling().fp8() and DelayedScaling().float8_per_tensor_scaling()
    assert Float8CurrentScaling().float8_current_scaling() and Float8CurrentScaling().fp8()
    assert Float8BlockScaling().float8_block_scaling() and Float8BlockScaling().block_scaling()
    assert NVFP4BlockScaling().nvfp4() and CustomRecipe(lambda role: None).custom()


def test_predicates_are_the_library_s():
    """One by one for every class; a class of the user's is what it derives from."""
    holds = {
        DelayedScaling: {"delayed", "float8_per_tensor_scaling", "fp8"},
        Float8CurrentScaling: {"float8_current_scaling", "float8_per_tensor_scaling", "fp8"},
        Float8BlockScaling: {"float8_block_scaling", "block_scaling", "fp8"},
        MXFP8BlockScaling: {"mxfp8", "block_scaling"},
        NVFP4BlockScaling: {"nvfp4", "block_scaling"},
        CustomRecipe: {"custom"},
        recipe.Recipe: set(),
    }
    every = set().union(*holds.values())
    for kind, names in holds.items():
        assert {name for name in every if getattr(kind, name)()} == names, kind

    class Mine(MXFP8BlockScaling):
        pass

    assert Mine.mxfp8() and repr(Mine()) == repr(MXFP8BlockScaling())


def test_format_values():
    assert Format.HYBRID.value.max_fwd == 448 and Format.HYBRID.value.max_bwd == 57344
    assert {format.name for format in Format} == {"E2M1", "E4M3", "E5M2", "HYBRID"}


def test_fields_may_be_written():
    made = DelayedScaling()
    made.margin = 3
    assert "margin=3" in repr(made)
    with pytest.raises(ValueError, match="pure E5M2"):
        made.fp8_format = Format.E5M2
    with pytest.raises(TypeError, match="expected a Format"):
        made.fp8_format = "E4M3"
    assert made.fp8_format is Format.HYBRID and made == DelayedScaling(margin=3)  # as it was
    other = copy.deepcopy(made)
    other.margin = 1
    assert made.margin == 3
    with pytest.raises(ValueError, match="expected 0"):
        MXFP8BlockScaling().margin = 2


@pytest.mark.parametrize(
    "made",
    [
        DelayedScaling(margin=1, amax_compute_algo="most_recent"),
        Float8BlockScaling(use_f32_scales=True, fp8_quant_fwd_inp=QParams(amax_epsilon=1e-3)),
        NVFP4BlockScaling(disable_rht=True),
    ],
)
def test_copies(made):
    for same in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert same == made and repr(same) == repr(made) and same is not made
        assert same._native() == made._native()


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: MXFP8BlockScaling(fp8_format=Format.E5M2), ValueError, "pure E5M2"),
        (lambda: DelayedScaling(fp8_format=Format.E5M2), ValueError, "pure E5M2"),
        (lambda: MXFP8BlockScaling(margin=1), ValueError, "expected 0"),
        (lambda: MXFP8BlockScaling(margin=1.5), TypeError, "margin = 1.5"),
        (lambda: MXFP8BlockScaling(fp8_format="E4M3"), TypeError, "expected a Format"),
        (lambda: DelayedScaling(amax_history_len=0), ValueError, "amax_history_len = 0"),
        (lambda: DelayedScaling(amax_compute_algo="mean"), ValueError, "mean"),
        (lambda: DelayedScaling(backward_override="high_precision"), ValueError, "backward"),
        (lambda: Float8CurrentScaling(backward_override="no"), ValueError, "backward_override"),
        (lambda: Float8BlockScaling(x_block_scaling_dim=2), ValueError, "128 x 128"),
        (lambda: Float8BlockScaling(fp8_gemm_fprop=MMParams(False)), ValueError, "split"),
        (lambda: Float8BlockScaling(fp8_dpa=True), ValueError, "fp8_dpa"),
        (lambda: NVFP4BlockScaling(nvfp4_4over6="max"), RuntimeError, "not offered"),
        (lambda: NVFP4BlockScaling(row_scaled_activation=True), RuntimeError, "not offered"),
        (lambda: NVFP4BlockScaling(disable_rht=1), TypeError, "disable_rht = 1"),
        (lambda: CustomRecipe(None), ValueError, "qfactory"),
        (lambda: CustomRecipe(5), TypeError, "qfactory = 5; expected a function"),
        (
            lambda: CustomRecipe(print, quantization_alignment=True),
            TypeError,
            "expected an integer",
        ),
        (lambda: DelayedScaling(amax_history_len=2**70), ValueError, "far beyond what it may be"),
        (lambda: DelayedScaling(margin=-(2**40)), ValueError, "far beyond what it may be"),
        (lambda: DelayedScaling(amax_history_len=2.0), TypeError, "amax_history_len = 2.0"),
    ],
)
def test_what_cannot_be_is_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_all_is_there():
    for name in recipe.__all__:
        assert hasattr(recipe, name), name


@pytest.mark.parametrize("field", ["margin", "amax_history_len"])
def test_a_bool_is_no_number(field):
    with pytest.raises(TypeError, match=f"got {field} = True; expected an integer"):
        DelayedScaling(**{field: True})


def test_a_field_that_is_not_there_is_refused():
    made = MXFP8BlockScaling()
    with pytest.raises(AttributeError, match="has no field 'fp8_formt'; it has margin, fp8_format"):
        made.fp8_formt = "x"
    assert "fp8_formt" not in vars(made)
