// Parses and writes the header of a .npy file (numpy.lib.format, versions 1.0, 2.0 and 3.0). The
// bytes are untrusted. No file access.
//
//   "\x93NUMPY" major minor length(2 or 4 bytes) "{'descr': '<f4', 'fortran_order': False, 'shape':
//   (3, 4), }"
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::cli {

// The element kind, as far as the file declares it. numpy writes the types of ml_dtypes as raw
// bytes (V).
enum class NpyKind : char { real = 'f', integer = 'u', raw = 'V' };

struct NpyHeader {
  NpyKind kind = NpyKind::real;
  int item_bytes = 4;
  bool is_signed = false;  // of integers: 'i' instead of 'u'
  bool fortran_order = false;
  std::vector<std::int64_t> shape{};

  bool operator==(const NpyHeader&) const = default;
};

// An error in a file, as text to follow its name: "'x.npy' has a broken header: ...".
class NpyProblem : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The maximum header size that is read; numpy itself writes some hundred bytes, and reads 10,000.
inline constexpr std::size_t kMaxNpyHeader = 64 * 1024;
// Bytes needed to know the header's length.
inline constexpr std::size_t kNpyPreamble = 12;

// Where the data begins, from the first kNpyPreamble bytes (fewer when the file is shorter). Throws
// NpyProblem, as parse_npy_header does.
std::size_t npy_data_offset(std::span<const std::byte> start);

// From the bytes before the data. Only what numpy would accept: exactly the three keys, in any
// order. Big-endian, structured, object and text arrays are refused by name, as are shapes of more
// than 64 dimensions, of negative sizes, or of more bytes than 63 bits can count.
NpyHeader parse_npy_header(std::span<const std::byte> before_data);

// Version 1.0 (2.0 where it must), padded so that the data begins at a multiple of 64.
std::string write_npy_header(const NpyHeader& header);

std::int64_t element_count(const NpyHeader& header);
std::string shape_text(const std::vector<std::int64_t>& shape);  // "(3, 4)" as Python has it
std::string descr_of(const NpyHeader& header);                   // "<f4", "|u1"

}  // namespace octavo::cli
