"""Sources are joined only where a name means in the joined file what it means in each."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "cmake" / "unity_groups.py"

PRIVATE = """#include "octavo/a.h"

#include <vector>

namespace octavo {
namespace {

constexpr int kSide = 4,
              kOther = 5;

struct Piece {};

int half(int x) { return x / 2; }

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw sizeof...(parts);
}

constexpr const char* const kExamples =
    R"(some
text)";

}  // namespace

int first(int x) { return half(x) + kSide; }

}  // namespace octavo
"""


class UnityGroupsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def joined(self, *texts: str, most: int = 8) -> list[list[str]]:
        """The names of the sources in each file that is to be compiled."""
        paths = []
        for number, text in enumerate(texts):
            paths.append(self.root / f"{number}.cc")
            paths[-1].write_text(text)
        command = [sys.executable, SCRIPT, self.root, self.root / "to", str(most), *paths]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        self.texts = [Path(path).read_text() for path in listed]
        return [
            [path.name for path in paths if f'#include "{path.name}"' in text] or [Path(file).name]
            for file, text in zip(listed, self.texts, strict=True)
        ]

    def test_files_that_share_nothing_are_joined(self):
        other = "namespace octavo {\nint second(int x) { return x; }\n}\n"
        self.assertEqual(self.joined(PRIVATE, other), [["0.cc", "1.cc"]])
        lines = self.texts[0].splitlines()
        self.assertEqual(lines[:2], ['#include "octavo/a.h"', "#include <vector>"])
        self.assertEqual(lines[2:], ['#include "0.cc"', '#include "1.cc"'])

    def test_no_more_than_so_many(self):
        plain = [f"int f{i}() {{ return {i}; }}\n" for i in range(5)]
        self.assertEqual([len(group) for group in self.joined(*plain, most=2)], [2, 2, 1])

    def test_a_name_of_its_own_keeps_a_file_from_others_that_mention_it(self):
        for line in (
            "constexpr int kSide = 3;",  # declared twice
            "int g() { return kOther; }",  # would mean that of the other file
            "void g(Piece* piece);",
            "int half(long x);",
            "int g() { return octavo::half(3); }",
            "void g() { refuse(3); }",
            "const char* g() { return kExamples; }",
        ):
            text = f"namespace octavo {{\n{line}\n}}\n"
            self.assertEqual(self.joined(PRIVATE, text), [["0.cc"], ["1.cc"]], line)
            self.assertEqual(self.joined(text, PRIVATE), [["0.cc"], ["1.cc"]], line)

    def test_names_in_comments_and_texts_do_not_count(self):
        text = '// half of kSide\nconst char* g() { return "Piece"; }\n'
        self.assertEqual(self.joined(PRIVATE, text), [["0.cc", "1.cc"]])

    def test_macros_and_using_count(self):
        for own in (
            "#define WIDE 3",
            "using std::vector;",
            "using Rows = int;",
            "static int rows;",
        ):
            for word in ("WIDE", "vector", "Rows", "rows"):
                if word not in own:
                    continue
                groups = self.joined(f"{own}\n", f"auto g() {{ return {word}{{}}; }}\n")
                self.assertEqual(groups, [["0.cc"], ["1.cc"]], own)

    def test_each_folder_by_itself(self):
        for folder in ("a", "b"):
            (self.root / folder).mkdir()
        paths = [self.root / name for name in ("a/x.cc", "b/y.cc", "a/z.cc")]
        for number, path in enumerate(paths):
            path.write_text(f"int f{number}();\n")
        command = [sys.executable, SCRIPT, self.root, self.root / "to", "8", *paths]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(Path(listed[0]).read_text(), '#include "a/x.cc"\n#include "a/z.cc"\n')
        self.assertEqual(listed[1:], [str(paths[1])])

    def test_what_a_header_or_the_compiler_is_told_stays_in_its_file(self):
        plain = "int g();\n"
        for text in ("#define WIDTH 8\n#include <pcre2.h>\n", "#pragma GCC optimize(2)\n"):
            self.assertEqual(self.joined(text, plain), [["0.cc"], ["1.cc"]], text)

    def test_includes_under_a_condition_stay_there(self):
        text = "#if defined(__x86_64__)\n#include <immintrin.h>\n#endif\nint f();\n"
        self.assertEqual(self.joined(text, "int g();\n"), [["0.cc", "1.cc"]])
        self.assertNotIn("immintrin", self.texts[0])

    def test_an_include_from_beside_the_source_stays_there(self):
        text = '#include "beside.h"\nint f();\n'
        self.assertEqual(self.joined(text, "int g();\n"), [["0.cc", "1.cc"]])
        self.assertNotIn("beside", self.texts[0])

    def test_the_same_sources_have_the_same_name(self):
        self.joined(PRIVATE, "int g();\n")
        before = sorted((self.root / "to").iterdir())
        self.joined(PRIVATE, "int g();\n")
        self.assertEqual(sorted((self.root / "to").iterdir()), before)


if __name__ == "__main__":
    unittest.main()
