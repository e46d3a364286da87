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

    def test_a_name_of_its_own_is_another_one_beside_a_file_that_mentions_it(self):
        for line, name in (
            ("constexpr int kSide = 3;", "kSide"),  # declared twice
            ("int g() { return kOther; }", "kOther"),  # would mean that of the other file
            ("void g(Piece* piece);", "Piece"),
            ("int half(long x);", "half"),
            ("int g() { return octavo::half(3); }", "half"),
            ("void g() { refuse(3); }", "refuse"),
            ("const char* g() { return kExamples; }", "kExamples"),
        ):
            text = f"namespace octavo {{\n{line}\n}}\n"
            self.assertEqual(self.joined(PRIVATE, text), [["0.cc", "1.cc"]], line)
            lines = self.texts[0].splitlines()
            around = [f"#define {name} {name}_0", '#include "0.cc"', f"#undef {name}"]
            self.assertEqual(lines[-4:], [*around, '#include "1.cc"'], line)
            self.assertEqual(self.joined(text, PRIVATE), [["0.cc", "1.cc"]], line)

    def test_a_name_that_may_mean_more_keeps_its_file_from_others_that_mention_it(self):
        own = "namespace {\nint half(int x) { return x / 2; }\n}  // namespace\n"
        (self.root / "octavo").mkdir()
        (self.root / "octavo/a.h").write_text('#include "octavo/b.h"\n')
        (self.root / "octavo/b.h").write_text("int half(double x);\n")
        for first in (
            own + "int f(Row row) { return row.half + half(3); }\n",  # a member
            own + "int f() { return other::half(3) + half(3); }\n",
            own + "TEST(Numbers, half) { half(3); }\n",  # people see it
            '#include "octavo/a.h"\n' + own,  # an overload of a header's
            own + '#include "beside.h"\n',
            own + "#if defined(__linux__)\n#include <sched.h>\n#endif\n",
        ):
            second = "int g() { return half(3); }\n"
            self.assertEqual(self.joined(first, second), [["0.cc"], ["1.cc"]], first)
            self.assertEqual(self.joined(second, first), [["0.cc"], ["1.cc"]], first)

    def test_words_of_an_initializer_are_not_its_own(self):
        for own in (
            "constexpr std::int64_t kOwn = std::int64_t{16} << 20, kMore = other(1);",
            "constexpr std::array<int64_t, 2> kOwn = {other, INFINITY,",
            "constexpr Row kOwn{other, INFINITY};",
            "constexpr float kOwn[2] = {INFINITY, other};",
        ):
            first = f"namespace {{\n{own}\n}}  // namespace\n"
            second = "std::int64_t g() { return other(INFINITY, kOwn); }\n"
            self.assertEqual(self.joined(first, second), [["0.cc", "1.cc"]])
            defined = [line for line in self.texts[0].splitlines() if line.startswith("#def")]
            self.assertEqual(defined, ["#define kOwn kOwn_0"])

    def test_a_kernel_is_known_by_its_name(self):
        own = "__global__ void __launch_bounds__(kThreads * size(4), 2) scale(int* x) {}"
        first = f"namespace {{\n{own}\n}}  // namespace\n"
        second = "__global__ void __launch_bounds__(8) other(int scale) {}\n"
        self.assertEqual(self.joined(first, second), [["0.cc", "1.cc"]])
        defined = [line for line in self.texts[0].splitlines() if line.startswith("#def")]
        self.assertEqual(defined, ["#define scale scale_0"])

    def test_names_in_comments_and_texts_do_not_count(self):
        text = '// half of kSide\nconst char* g() { return "Piece"; }\n'
        self.assertEqual(self.joined(PRIVATE, text), [["0.cc", "1.cc"]])

    def test_macros_count(self):
        self.assertEqual(
            self.joined("#define WIDE 3\n", "int g() { return WIDE; }\n"), [["0.cc"], ["1.cc"]]
        )

    def test_using_and_static_count(self):
        for own, name in (("using Rows = int;", "Rows"), ("static int rows;", "rows")):
            self.joined(f"{own}\n", f"auto g() {{ return {name}{{}}; }}\n")
            self.assertIn(f"#define {name} {name}_0\n", "".join(self.texts), own)
        other = "auto g() { return vector{}; }\n"
        self.assertEqual(self.joined("using std::vector;\n", other), [["0.cc"], ["1.cc"]])

    def of_two_folders(self, *texts: str) -> list[str]:
        """What is to be compiled of sources whose folders take turns."""
        paths = [self.root / "ab"[i % 2] / f"{i}.cc" for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        command = [sys.executable, SCRIPT, self.root, self.root / "to", "8", *paths]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return [Path(file).read_text() for file in listed]

    def test_folders_are_joined(self):
        joined = self.of_two_folders("int f();\n", "int g();\n")
        self.assertEqual(joined, ['#include "a/0.cc"\n#include "b/1.cc"\n'])

    def test_a_header_of_another_file_may_not_declare_what_one_has_from_elsewhere(self):
        (self.root / "octavo/page").mkdir(parents=True)
        (self.root / "octavo/row.h").write_text("namespace octavo {\nstruct Row {};\n}\n")
        nested = "namespace octavo::page {\n%s\n}\n"
        (self.root / "octavo/page/row.h").write_text(nested % "struct Row {};")
        (self.root / "octavo/page/forward.h").write_text(nested % "struct Row;")
        uses = '#include "octavo/row.h"\n' + nested % "int f(Row row);"
        declares = '#include "octavo/page/row.h"\nint g();\n'
        self.assertEqual(self.joined(uses, declares), [["0.cc"], ["1.cc"]])
        self.assertEqual(self.joined(declares, uses), [["0.cc"], ["1.cc"]])
        own = "namespace {\nstruct Row {};\n}  // namespace\n"
        self.assertEqual(self.joined(declares, own), [["0.cc", "1.cc"]])
        self.assertIn("#define Row Row_1\n", self.texts[0])
        forward = '#include "octavo/page/forward.h"\nint g();\n'
        self.assertEqual(self.joined(uses, forward), [["0.cc", "1.cc"]])

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
