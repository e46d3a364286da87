"""The layering check must fail when it should: each case plants one violation in a small tree."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from check_layering import ArrowsError, check, close_arrows, read_arrows, room_of

REAL_ARROWS = (Path(__file__).parent / "arrows.txt").read_text(encoding="utf-8")


class LayeringTest(unittest.TestCase):
    def violations(self, files: dict[str, str], arrows: str = REAL_ARROWS) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check(root, arrows, "")

    def one_violation(self, name: str, include: str) -> None:
        wrong = self.violations({name: f"#pragma once\n  #  include {include}\n"})
        self.assertEqual(len(wrong), 1, wrong)
        self.assertTrue(wrong[0].startswith(f"{name}:2: "), wrong)

    def no_violation(self, name: str, include: str) -> None:
        self.assertEqual(self.violations({name: f"#include {include}\n"}), [])

    def test_upward_include_is_seen(self):
        self.one_violation("octavo/format/format.h", '"octavo/round/encode.h"')
        self.one_violation("octavo/base/error.h", '"octavo/format/format.h"')
        self.one_violation("octavo/round/encode.h", '"octavo/tensor/view.h"')
        self.one_violation("octavo/safetensors/reader.cc", '"octavo/quant/preset.h"')

    def test_angle_brackets_do_not_hide_it(self):
        self.one_violation("octavo/format/format.h", "<octavo/round/encode.h>")

    def test_downward_and_transitive_includes_pass(self):
        self.no_violation("octavo/round/encode.h", '"octavo/format/format.h"')
        self.no_violation("octavo/round/encode.h", '"octavo/base/error.h"')
        self.no_violation("octavo/convert/convert.cc", '"octavo/format/format.h"')
        self.no_violation("octavo/nn/linear/linear.cc", '"octavo/tensor/view.h"')
        self.no_violation("octavo/format/format.h", "<vector>")

    def test_backends_see_only_the_door(self):
        self.no_violation("octavo/backend/reference/encode.cc", '"octavo/backend/kernels.h"')
        self.no_violation("octavo/backend/cpu/isa/neon/encode.cc", '"octavo/round/encode.h"')
        self.one_violation("octavo/backend/reference/encode.cc", '"octavo/convert/convert.h"')
        self.one_violation(
            "octavo/backend/cpu/convert/convert_driver.cc", '"octavo/backend/registry.h"'
        )

    def test_backends_never_see_each_other(self):
        self.one_violation(
            "octavo/backend/cpu/convert/convert_driver.cc", '"octavo/backend/reference/tables.h"'
        )
        self.one_violation(
            "octavo/backend/cuda/runtime/host.cc", '"octavo/backend/cpu/convert/driver.h"'
        )

    def test_instruction_sets_build_on_the_one_before(self):
        self.no_violation(
            "octavo/backend/cpu/isa/neon/encode.cc", '"octavo/backend/cpu/convert/driver.h"'
        )
        self.no_violation(
            "octavo/backend/cpu/isa/neon/encode.cc", '"octavo/backend/cpu/isa/portable/x.h"'
        )
        self.one_violation(
            "octavo/backend/cpu/isa/portable/x.cc", '"octavo/backend/cpu/isa/neon/neon.h"'
        )
        self.one_violation(
            "octavo/backend/cpu/convert/convert_driver.cc", '"octavo/backend/cpu/isa/portable/x.h"'
        )

    def test_sub_rooms_have_arrows_of_their_own(self):
        self.no_violation("octavo/backend/cuda/gemm/x.cu", '"octavo/backend/cuda/hopper/tma.cuh"')
        self.one_violation(
            "octavo/backend/cuda/hopper/x.cu", '"octavo/backend/cuda/gemm/gemm_plan.h"'
        )
        self.one_violation("octavo/checkpoint/dialect/x.cc", '"octavo/checkpoint/verify/verify.h"')
        wrong = self.violations({"octavo/pipeline/attic/thing.h": ""})
        self.assertEqual(
            wrong, ["octavo/pipeline/attic/thing.h:1: pipeline/attic has no line in arrows.txt"]
        )

    def test_only_the_registry_sees_backends(self):
        header = '"octavo/backend/reference/reference.h"'
        self.no_violation("octavo/backend/registry.cc", header)
        self.one_violation("octavo/backend/registry.h", header)
        self.one_violation("octavo/convert/convert.cc", header)
        self.one_violation("octavo/octavo.h", header)

    def test_nothing_includes_the_umbrella(self):
        self.one_violation("octavo/convert/convert.cc", '"octavo/octavo.h"')

    def test_names_start_at_the_root(self):
        self.one_violation("octavo/format/parse.cc", '"format.h"')
        self.one_violation("octavo/format/parse.cc", '"tests/oracle.h"')

    def test_a_room_without_a_line_is_seen(self):
        wrong = self.violations({"octavo/attic/thing.h": ""})
        self.assertEqual(wrong, ["octavo/attic/thing.h:1: attic has no line in arrows.txt"])

    def test_unit_tests_may_include_anything(self):
        self.no_violation("octavo/format/format_test.cc", '"octavo/convert/convert.h"')

    def test_a_folder_too_large_to_look_through_is_seen(self):
        most = {f"octavo/quant/q{i}.cc": "" for i in range(40)}
        tests = {f"octavo/quant/q{i}_test.cc": "" for i in range(9)}
        self.assertEqual(self.violations(most | tests), [])
        wrong = self.violations(most | tests | {"octavo/quant/one_more.h": "#pragma once\n"})
        self.assertEqual(wrong, ["octavo/quant/:1: 41 sources, at most 40"])

    def test_arrows_must_make_sense(self):
        for text in ("a -> b\n", "just words\n", "a b -> \n"):
            with self.assertRaises(ArrowsError, msg=text):
                read_arrows(text)
        self.assertEqual(read_arrows("a ->\nb -> a\nc -> a\nc -> b\n")["c"], {"a", "b"})
        with self.assertRaisesRegex(ArrowsError, "a -> b -> a"):
            close_arrows(read_arrows("base ->\na -> b\nb -> a\n"))

    def test_rooms_of_files(self):
        rooms = read_arrows(REAL_ARROWS)
        for name, room in {
            "octavo/octavo.h": "octavo.h",
            "octavo/version.cc": "version.h",
            "octavo/format/format.h": "format",
            "octavo/backend/kernels.h": "backend/kernels.h",
            "octavo/backend/registry.cc": "backend/registry.cc",
            "octavo/backend/cuda_absent.cc": "backend/cuda_absent.cc",
            "octavo/backend/cpu/convert/driver.h": "backend/cpu/convert",
            "octavo/backend/cpu/isa/neon/encode.cc": "backend/cpu/isa/neon",
            "octavo/backend/cuda/hopper/tma.cuh": "backend/cuda/hopper",
        }.items():
            self.assertEqual(room_of(name, rooms), room)


if __name__ == "__main__":
    unittest.main()
