#include "cli/tensor/quantize_input.h"

#include <algorithm>
#include <fstream>

#include "cli/npy/npy_element.h"
#include "cli/npy/npy_reader.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "cli/text/number_text.h"
#include "octavo/base/count_text.h"
#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

// MemAvailable of the system; nullopt where it is unknown.
std::optional<double> available_memory() {
  std::ifstream facts("/proc/meminfo");
  std::string name, unit;
  double kilobytes = 0;
  while (facts >> name >> kilobytes && std::getline(facts, unit))
    if (name == "MemAvailable:") return kilobytes * 1024;
  return std::nullopt;
}

void check_memory(const char* op, const std::string& path, const NpyReader& file,
                  double more_bytes_each) {
  const double needed = static_cast<double>(file.data_bytes()) +
                        static_cast<double>(element_count(file.header())) * more_bytes_each;
  const std::optional<double> there = available_memory();
  if (!there || needed <= *there) return;
  fail(ErrorCode::io, op, "'", path, "' needs ", bytes_text(needed), " of memory, and ",
       bytes_text(*there),
       " are free; the array is read whole: give it in parts, or take a larger machine");
}

Shape fortran_strides(const Shape& shape, std::int64_t stride) {
  Shape strides = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(1, shape[i]);
  }
  return strides;
}

// Raw bytes as values can only be bfloat16; other codes must be decoded first.
void refuse_bytes(const char* op, const std::string& path, const NpyHeader& header) {
  const bool may_be_bfloat16 = header.item_bytes == 2;
  throw UsageError(text(
      '[', op, "] '", path, "' holds ", descr_of(header),
      "; expected float16, float32 or float64; ",
      may_be_bfloat16 ? "say --from bfloat16 if it is that, " : "",
      "make values of integers with .astype('float32'), of codes with octavo cast --from FORMAT "
      "--to float32"));
}

QuantizeInput read_npy(const char* op, const std::string& path,
                       const std::optional<std::string>& from, double more_bytes_each) {
  NpyReader file(op, path);
  const NpyHeader& header = file.header();
  if (header.kind != NpyKind::real && !from) refuse_bytes(op, path, header);
  const Element element = npy_element(op, path, header, from);
  if (element.is_code())
    throw UsageError(text('[', op, "] '", path, "' holds codes of ", element.name(),
                          "; expected values; decode them first with octavo cast --to float32"));
  if (header.shape.size() > kMaxRank)
    throw UsageError(text('[', op, "] '", path, "' has ", header.shape.size(),
                          " dimensions; expected at most ", kMaxRank, "; reshape it"));
  check_memory(op, path, file, more_bytes_each);
  if (file.trailing_bytes() > 0)
    say(text("octavo: [", op, "] note: '", path, "' has ", grouped(file.trailing_bytes(), "byte"),
             " after its array; ", plural(file.trailing_bytes(), "it is", "they are"), " ignored"));

  const Shape shape{std::span(header.shape)};
  QuantizeInput input{.memory = Tensor::values(shape, element.dtype)};
  input.values = input.memory.view();
  if (header.fortran_order)
    input.values.strides = fortran_strides(shape, element_bytes(element.dtype));
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  Progress progress("read", file.data_bytes());
  for (std::span<std::byte> rest = input.memory.bytes(); !rest.empty();) {
    const std::size_t size = std::min(kPiece, rest.size());
    file.read(rest.first(size));
    rest = rest.subspan(size);
    progress.advance(static_cast<std::int64_t>(size));
  }
  return input;
}

}  // namespace

QuantizeInput read_quantize_input(const char* op, const std::string& path,
                                  const std::optional<std::string>& from, double more_bytes_each) {
  return read_npy(op, path, from, more_bytes_each);
}

}  // namespace octavo::cli
