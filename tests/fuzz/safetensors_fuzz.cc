// Fuzz target of the safetensors parser. Files are untrusted: for any input the parser gives a
// header whose tensors fill the file exactly and that can be written again, or one clean error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/safetensors/header.h"
#include "octavo/safetensors/header_writer.h"

namespace {

using namespace octavo::safetensors;  // NOLINT(google-build-using-namespace)

// Not assert: release builds are fuzzed too.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void check_header(const Header& header, std::size_t file_bytes) {
  require(header.data_begin + header.data_bytes == file_bytes, "the data is not the file's rest");
  std::uint64_t end = 0;
  std::vector<TensorPlan> plans;
  for (const TensorEntry& tensor : header.tensors) {
    require(tensor.begin == end && tensor.end >= tensor.begin, "the tensors are not side by side");
    require(header.find(tensor.name) == &tensor, "a tensor is not found by its name");
    end = tensor.end;
    plans.push_back({tensor.name, tensor.type, tensor.shape});
  }
  require(end == header.data_bytes, "the tensors do not fill the data");

  const Header placed = place_tensors(plans, header.metadata, "again");
  std::string file = write_header(placed);
  require(file.size() % 8 == 0, "the data would not be aligned");
  const std::string_view json = std::string_view(file).substr(kLengthBytes);
  const Header again =
      parse_header(json, file.size() + placed.data_bytes, "again", {.strict = true});
  require(again.metadata == header.metadata, "the metadata changed");
  require(again.tensors.size() == header.tensors.size(), "a tensor was lost");
  for (const TensorEntry& tensor : header.tensors) {
    const TensorEntry* const found = again.find(tensor.name);
    require(found != nullptr && found->type == tensor.type && found->shape == tensor.shape,
            "the written tensor is another one");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const bool strict : {false, true}) {
    try {
      check_header(parse_header_of(bytes, "fuzz", {.strict = strict}), size);
    } catch (const octavo::Error& error) {
      const std::string_view message = error.what();
      require(error.code() == octavo::ErrorCode::invalid_argument, "the error has another code");
      require(message.substr(0, 21) == "[safetensors] 'fuzz' " ||
                  message.substr(0, 21) == "[safetensors] 'fuzz':",
              "the message does not name the file");
      require(message.size() < 600, "the message grows with the input");
      for (const char c : message) require(c >= ' ' && c <= '~', "the message is not printable");
    }
  }
  return 0;
}
