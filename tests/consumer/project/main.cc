// A program that has the installed headers and library, and nothing else of octavo.
#include <octavo/octavo.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>

int broken_parts();  // link.cc

int main() {
  const std::array<float, 5> values{1.0f, 2.0f, 3.0f, 255.0f, -0.0f};
  std::array<std::uint8_t, 5> codes{};
  std::array<float, 5> back{};

  octavo::encode(
      values, codes, octavo::e4m3fn,
      {.rounding = octavo::Rounding::nearest_even, .overflow = octavo::Overflow::saturate});
  octavo::decode(codes, octavo::e4m3fn, back);

  // 255 lies between 240 and 256; the nearer one is 256. Zero keeps its sign.
  const std::array<float, 5> wanted{1.0f, 2.0f, 3.0f, 256.0f, -0.0f};
  bool good = std::memcmp(back.data(), wanted.data(), sizeof back) == 0;

  // An error crosses the library's border as its own type.
  bool caught = false;
  try {
    octavo::decode(std::span<const std::uint8_t>(codes).first(2), octavo::e4m3fn, back);
  } catch (const octavo::Error& error) {
    caught = true;
    std::printf("as it should be: %s\n", error.what());
  }
  const bool versions_agree = std::strcmp(octavo::version(), OCTAVO_VERSION_STRING) == 0;

  std::printf("octavo %s: round trip %s, error %s\n", octavo::version(), good ? "good" : "WRONG",
              caught ? "caught" : "MISSED");
  return good && caught && versions_agree && broken_parts() == 0 ? 0 : 1;
}
