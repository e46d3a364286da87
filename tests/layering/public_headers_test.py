"""The checks of public headers must fail when they should: each case plants one violation."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from check_layering import check

ARROWS = "base ->\nformat -> base\nround -> format\noctavo.h -> round\n"
LIST = """# comment
octavo/octavo.h
octavo/format/format.h
programs: octavo/base/  # threads
programs: octavo/round/encode.h  # a reason
"""
TREE = {
    "octavo/octavo.h": '#include "octavo/format/format.h"\n',
    "octavo/format/format.h": "OCTAVO_API int bits();\n",
    "octavo/base/macros.h": "#define OCTAVO_API\n",
    "octavo/round/encode.h": "// OCTAVO_API is not for this one\nint encode();\n",
}


class PublicHeadersTest(unittest.TestCase):
    def violations(self, changed: dict[str, str | None], listed: str = LIST) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in (TREE | changed).items():
                if text is not None:
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    (root / name).write_text(text)
            return check(root, ARROWS, listed)

    def one_violation(
        self, *parts: str, changed: dict[str, str | None] | None = None, listed: str = LIST
    ) -> None:
        wrong = self.violations(changed or {}, listed)
        self.assertEqual(len(wrong), 1, wrong)
        for part in parts:
            self.assertIn(part, wrong[0])

    def test_a_good_tree_passes(self):
        self.assertEqual(self.violations({}), [])

    def test_listed_and_missing(self):
        self.one_violation(
            "cmake/public_headers.txt:3: octavo/format/format.h is listed",
            "there is no such file",
            changed={"octavo/octavo.h": "", "octavo/format/format.h": None},
        )

    def test_included_by_a_listed_header_and_not_listed(self):
        self.one_violation(
            "octavo/octavo.h:2: ",
            "octavo/round/encode.h",
            changed={
                "octavo/octavo.h": TREE["octavo/octavo.h"] + "#include <octavo/round/encode.h>\n"
            },
        )

    def test_listed_and_not_in_the_umbrella(self):
        self.one_violation("octavo/round/encode.h", listed=LIST + "octavo/round/encode.h\n")

    def test_exported_and_not_listed(self):
        self.one_violation(
            "octavo/round/encode.h:1: OCTAVO_API",
            changed={"octavo/round/encode.h": "class OCTAVO_API Encoder {};\n"},
        )

    def test_lines_of_the_list(self):
        self.one_violation("octavo/octavo.h is listed in line 2", listed=LIST + "octavo/octavo.h\n")
        self.one_violation("got 'octavo/round'", listed=LIST + "octavo/round\n")
        self.one_violation("has no reason", listed=LIST + "programs: octavo/round/x.h\n")

    def test_who_may_include_what(self):
        for name in ("cli/main.cc", "python/src/x.cc"):
            for header in ("octavo.h", "base/json/json.h", "round/encode.h", "format/format.h"):
                include = f'#include "octavo/{header}"\n'
                self.assertEqual(self.violations({name: include}), [])
            for header in ("round/encode_edges.h", "format/plan_internal.h"):
                self.one_violation(f"{name}:1: ", changed={name: f"#include <octavo/{header}>\n"})
        for name in ("examples/x.cc", "tests/consumer/project/main.cc"):
            self.assertEqual(self.violations({name: "#include <octavo/format/format.h>\n"}), [])
            for header in ("base/macros.h", "round/encode.h"):
                self.one_violation(f"{name}:1: ", changed={name: f'#include "octavo/{header}"\n'})
        self.assertEqual(self.violations({"bench/x.cc": '#include "octavo/base/macros.h"\n'}), [])


if __name__ == "__main__":
    unittest.main()
