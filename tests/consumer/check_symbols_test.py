"""The check of exported names must fail when it should."""

from __future__ import annotations

import unittest

from check_symbols import check, declared_names, outermost

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


if __name__ == "__main__":
    unittest.main()
