"""Scaling: names, defaults, equality, a repr that evaluates back."""

from __future__ import annotations

import copy
import pickle

import pytest

import octavo
import octavo as ov

# One change of every argument, with what it reads back as.
CHANGES = {
    "format": ("e5m2", ov.Format("e5m2")),
    "tile": ("128x128", (128, 128)),
    "scale": ("bf16", "bf16"),
    "rule": ("floor", "floor"),
    "policy": ("percentile:99.9", "percentile:99.9"),
    "margin": (-3, -3),
    "min_amax": (0.5, 0.5),
    "arith": ("te", "te"),
    "non_finite": ("saturate", "saturate"),
    "rounding": ("toward_zero", "toward_zero"),
    "overflow": ("ieee", "ieee"),
    "nan": ("zero", "zero"),
    "nan_code": ("positive_ones", "positive_ones"),
    "axis": (0, 0),
    "rowwise": (True, True),
    "columnwise": (True, True),
    "hadamard": ("both", "both"),
    "packed": (False, False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_argument(name):
    given, read = CHANGES[name]
    scaling = ov.Scaling(**{name: given})
    assert getattr(scaling, name) == read
    assert (scaling == ov.Scaling()) == (getattr(ov.Scaling(), name) == read)
    for same in (
        eval(repr(scaling), {"octavo": octavo}),
        ov.Scaling().replace(**{name: given}),
        pickle.loads(pickle.dumps(scaling)),
        copy.copy(scaling),
        copy.deepcopy(scaling),
    ):
        assert same == scaling and hash(same) == hash(scaling) and repr(same) == repr(scaling)


def test_stochastic_arguments():
    scaling = ov.Scaling(rounding="stochastic", seed=2**64 - 1, stochastic_bits=8)
    assert (scaling.seed, scaling.stochastic_bits) == (2**64 - 1, 8)
    assert eval(repr(scaling)) == scaling
    assert scaling.replace(rounding="up") == ov.Scaling(rounding="up")
    with pytest.raises(ValueError, match="stochastic_bits, which are for stochastic rounding"):
        ov.Scaling(seed=1)


def test_hadamard_arguments():
    scaling = ov.Scaling(hadamard="columnwise", hadamard_signs=0xD7E8)
    assert (scaling.hadamard, scaling.hadamard_signs) == ("columnwise", 0xD7E8)
    assert eval(repr(scaling)) == scaling
    assert scaling.replace(hadamard="none") == ov.Scaling()
    with pytest.raises(ValueError, match="hadamard_signs without"):
        ov.Scaling(hadamard_signs=1)


def test_defaults_are_mxfp8():
    assert ov.Scaling() == ov.preset("mxfp8")
    assert repr(ov.Scaling()) == (
        "octavo.Scaling(format='e4m3fn', tile=(1, 32), scale='e8m0', rule='rceil')"
    )
    assert str(ov.Scaling()) == "mxfp8: e4m3fn, tile 1x32, scale e8m0 rceil"


@pytest.mark.parametrize(
    ("scale", "stored", "rule"),
    [
        ("e8m0", "e8m0", "rceil"),
        ("f32", "f32", "f32"),
        ("bf16", "bf16", "f32"),
        ("f16", "f16", "f32"),
        ("e4m3+f32", "e4m3+f32", "f32"),
        ("pow2", "f32", "rceil"),
    ],
)
def test_a_scale_has_a_rule_of_its_own(scale, stored, rule):
    scaling = ov.Scaling(scale=scale)
    assert (scaling.scale, scaling.rule) == (stored, rule)
    assert ov.Scaling(scale="e8m0", rule="even").replace(scale=scale) == scaling
    assert ov.preset("nvfp4").replace(scale=scale).rule == rule


def test_pow2_takes_other_powers_of_two():
    assert ov.Scaling(scale="pow2", rule="floor") == ov.Scaling(scale="f32", rule="floor")
    with pytest.raises(ValueError, match="pow2 is a power of two"):
        ov.Scaling(scale="pow2", rule="f32")


@pytest.mark.parametrize(
    ("tile", "pair"),
    [
        ("tensor", (0, 0)),
        ("row", (1, 0)),
        ("column", (0, 1)),
        ("1x32", (1, 32)),
        ("allx16", (0, 16)),
        ("1xall", (1, 0)),
        ([4, 8], (4, 8)),
    ],
)
def test_tiles_have_names(tile, pair):
    assert ov.Scaling(tile=tile, scale="f32").tile == pair


def test_dtypes_are_formats(ml_dtypes, torch):
    for dtype in (ml_dtypes.float8_e5m2, torch.float8_e5m2, ov.Format("e5m2")):
        assert ov.Scaling(dtype) == ov.Scaling("e5m2") == ov.preset("mxfp8:e5m2")


def test_presets_as_a_set():
    scalings = {ov.preset(name) for name in ov.preset_names()}
    assert len(scalings) == len(ov.preset_names()) == 11
    assert all(eval(repr(scaling)) in scalings for scaling in scalings)
    assert ov.preset("fp8-block").tile == (128, 128)


def test_immutable():
    scaling = ov.Scaling()
    for name in CHANGES:
        with pytest.raises(AttributeError):
            setattr(scaling, name, getattr(scaling, name))
    with pytest.raises(AttributeError):
        scaling.other = 1
    assert scaling != "mxfp8" and scaling is not None


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"format": "e4m3x"}, ValueError, "e4m3x"),
        ({"format": 8}, TypeError, "[scaling] got a format of type int"),
        ({"format": "e8m0fnu"}, ValueError, "unsigned"),
        ({"tile": "block"}, ValueError, "[tile] got 'block'; expected tensor, row, column"),
        ({"tile": "0x32"}, ValueError, "[tile] got '0x32'"),
        ({"tile": "1x32x4"}, ValueError, "[tile] got '1x32x4'"),
        ({"tile": "x"}, ValueError, "[tile] got 'x'"),
        ({"tile": "32"}, ValueError, "[tile] got '32'"),
        ({"tile": (-1, 32)}, ValueError, "got a tile of -1x32"),
        ({"scale": "e8"}, ValueError, "[scale] got 'e8'; expected one of f32, bf16, f16, e8m0"),
        ({"rule": "f32"}, ValueError, "e8m0 scales are powers of two"),
        ({"rule": "round"}, ValueError, "[rule] got 'round'"),
        ({"policy": "percentile"}, ValueError, "[policy] got 'percentile'"),
        ({"policy": "percentile:0"}, ValueError, "[policy] got 'percentile:0'"),
        ({"margin": 65}, ValueError, "got margin 65"),
        ({"min_amax": -1.0}, ValueError, "got min_amax -1"),
        ({"arith": "mine"}, ValueError, "[arith] got 'mine'"),
        ({"non_finite": "drop"}, ValueError, "[non_finite] got 'drop'"),
        ({"nan_code": "ones"}, ValueError, "[nan_code] got 'ones'; expected signed_ones"),
        ({"hadamard": "yes"}, ValueError, "[hadamard] got 'yes'; expected none, rowwise"),
        ({"rounding": "stochastic", "stochastic_bits": 17}, ValueError, "got stochastic_bits 17"),
        ({"rowwise": False}, ValueError, "neither rowwise nor columnwise"),
    ],
)
def test_errors(kwargs, error, message):
    with pytest.raises(error) as caught:
        ov.Scaling(**kwargs)
    assert message in str(caught.value)


def test_errors_of_names():
    with pytest.raises(ValueError, match="got 'mxfp9'; expected one of fp8, fp8-channel"):
        ov.preset("mxfp9")
    with pytest.raises(ValueError, match="'mxfp8:' and one of: e4m3fn e5m2"):
        ov.preset("mxfp8:e2m1fn")
    with pytest.raises(TypeError, match="got int; expected a name"):
        ov.preset(8)
    with pytest.raises(TypeError, match="got 'tiel', which is no argument of Scaling"):
        ov.Scaling().replace(tiel=(1, 32))
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(ov.Scaling()).replace(b"margin", b"margon"))
