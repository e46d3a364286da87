// Fuzz target of the .npy header parser. Headers are untrusted: for any input the parser gives a
// header that round-trips through writing and reading, or one clean message.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

// The parser belongs to the program, not to the library, so its sources are included here.
#include "cli/npy/npy.cc"       // NOLINT(bugprone-suspicious-include)
#include "cli/text/suggest.cc"  // NOLINT(bugprone-suspicious-include)

namespace {

using octavo::cli::NpyHeader;
using octavo::cli::NpyProblem;

// Not assert: release builds are fuzzed too.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void check_header(const NpyHeader& header, std::span<const std::byte> bytes) {
  require(octavo::cli::npy_data_offset(bytes) <= bytes.size(), "the data begins behind the end");
  require(header.shape.size() <= 64, "too many dimensions");
  std::int64_t count = octavo::cli::element_count(header), data = 0;
  require(count >= 0, "a negative number of elements");
  require(!__builtin_mul_overflow(count, std::int64_t{header.item_bytes}, &data),
          "the bytes of the data overflow");

  const std::string written = octavo::cli::write_npy_header(header);
  require(written.size() % 64 == 0, "the data would not be aligned");
  const auto again = std::as_bytes(std::span(written));
  require(octavo::cli::npy_data_offset(again) == written.size(), "the written length is wrong");
  require(octavo::cli::parse_npy_header(again) == header, "the written header means another array");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    check_header(octavo::cli::parse_npy_header(bytes), bytes);
  } catch (const NpyProblem& problem) {
    const std::string_view message = problem.what();
    require(message.size() < 2000, "the message grows with the input");
    for (const char c : message) require(c >= ' ' && c <= '~', "the message is not printable");
  }
  return 0;
}
