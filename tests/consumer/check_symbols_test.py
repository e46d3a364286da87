"""The check of exported names must fail when it should."""

from __future__ import annotations

import unittest

from check_symbols import check, check_imports, declared_names, outermost
from declarations import hidden_declarations

HEADER = """
#define OCTAVO_API __attribute__((visibility("default")))
class OCTAVO_API Error : public std::exception {};
[[nodiscard]] OCTAVO_API const char* version() noexcept;
// OCTAVO_API void commented_out();
OCTAVO_API std::optional<Format>
parse_format(std::string_view name);
extern OCTAVO_API int counter;
OCTAVO_API bool operator==(const A&, const A&);
void hidden();
"""

MIXED = """
namespace octavo {
struct Kernels;
using Write = std::function<void(std::string_view message)>;
enum class Kind : std::uint8_t { one, two };
inline constexpr std::array<int, 2> kTable{{1, 2}};
constexpr int twice(int x) { return 2 * x; }
template <typename T>
T templated(T x) {
  return x;
}
const Kernels& offered(const Kernels* expected,
                       int more = twice(2));
[[nodiscard]] OCTAVO_API std::vector<std::pair<int, int>> shown(const char* text = "a; (b");
struct Plain {
  Write write{};
  int state = current();
  void (*call)(int) = nullptr;
  int first() const { return 1; }
  Plain& operator=(const Plain&) = default;
};
class Hidden {
 public:
  Hidden(int x);
  ~Hidden() = default;
  virtual void pure() = 0;
  void later() const;
};
class OCTAVO_API Shown {
 public:
  void later() const;
  struct Inner {
    int deeper() const;
  };
};
Plain operator+(const Plain&, const Plain&);
OCTAVO_API bool operator==(const Plain&, const Plain&);
}  // namespace octavo
"""


class SymbolsTest(unittest.TestCase):
    def test_declared_names(self):
        self.assertEqual(
            declared_names(HEADER), {"Error", "version", "parse_format", "counter", "operator"}
        )

    def test_outermost(self):
        for symbol, name in {
            "octavo::version()": "version",
            "octavo::Error::what() const": "Error",
            "typeinfo for octavo::Error": "Error",
            "vtable for octavo::Error": "Error",
            "void octavo::fill<float>(std::span<float>)": "fill",
            "octavo::operator==(octavo::A const&, octavo::A const&)": "operator",
            "std::vector<octavo::Error>::push_back(octavo::Error&&)": None,
            "octavo::safetensors::FileReader::path() const": "FileReader",
            "octavo::safetensors::parse_header(int)": "parse_header",
            "main": None,
        }.items():
            self.assertEqual(outermost(symbol), name, symbol)

    def test_planted_violations_are_seen(self):
        declared = declared_names(HEADER)
        good = ["octavo::version()", "octavo::Error::what() const"]
        self.assertEqual(check(good, declared), [])
        self.assertEqual(len(check([*good, "octavo::hidden()"], declared)), 1)
        self.assertEqual(len(check([*good, "octavo::commented_out()"], declared)), 1)
        self.assertEqual(len(check([*good, "octavo::inner::hidden()"], declared)), 1)
        self.assertEqual(len(check([*good, "std::vector<int>::size() const"], declared)), 1)

    def test_what_needs_a_newer_glibc_is_seen(self):
        good = ["std::ostream::flush()@GLIBCXX_3.4", "memcpy@GLIBC_2.14"]
        self.assertEqual(check_imports(good), [])
        self.assertEqual(
            len(check_imports([*good, "std::random_device::_M_getval()@GLIBCXX_3.4.18"])), 1
        )

    def test_declarations_that_nobody_can_link(self):
        self.assertEqual(hidden_declarations(HEADER), ["hidden"])
        self.assertEqual(
            hidden_declarations(MIXED), ["offered", "Hidden::Hidden", "Hidden::later", "operator+"]
        )


if __name__ == "__main__":
    unittest.main()
