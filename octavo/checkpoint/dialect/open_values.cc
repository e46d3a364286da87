#include "octavo/checkpoint/dialect/open_values.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/static_scales_internal.h"
#include "octavo/quant/quantize.h"
#include "octavo/safetensors/header_writer.h"

namespace octavo {
namespace {

// What the sources of all files share: the checkpoint as it is, and its quantized weights.
struct Quantized {
  CheckpointReader checkpoint;
  Dialect dialect;
  std::map<std::string, FoundWeight, std::less<>> weights;
};

// The values of one file.
class DecodedFile : public safetensors::TensorSource {
 public:
  DecodedFile(std::shared_ptr<const Quantized> of, safetensors::Header header)
      : of_(std::move(of)), header_(std::move(header)) {}

  [[nodiscard]] const safetensors::Header& header() const override { return header_; }

  void read(const safetensors::TensorEntry& tensor, std::uint64_t offset,
            std::span<std::byte> into) const override {
    const auto found = of_->weights.find(tensor.name);
    if (found == of_->weights.end())
      return of_->checkpoint.read(of_->checkpoint.at(tensor.name), offset, into);
    if (!into.empty()) read_values(found->second, offset, into);
  }

  [[nodiscard]] std::int64_t rows_together(const safetensors::TensorEntry& tensor) const override {
    const auto found = of_->weights.find(tensor.name);
    return found == of_->weights.end() ? 1 : row_block_rows(of_->dialect, found->second.weight);
  }

 private:
  void read_values(const FoundWeight& found, std::uint64_t offset,
                   std::span<std::byte> into) const {
    const Shape& shape = found.weight.shape;
    const std::int64_t cols = shape[shape.rank() - 1];
    const auto row_bytes = static_cast<std::uint64_t>(cols * element_bytes(found.weight.source));
    const std::int64_t rows = element_count(shape) / cols;
    const std::int64_t unit = row_block_rows(of_->dialect, found.weight);
    const std::uint64_t end = offset + into.size();
    const auto last = static_cast<std::int64_t>((end + row_bytes - 1) / row_bytes);
    // A unit at a time where it may be a matrix of a stack; else all that was asked for.
    std::int64_t row = static_cast<std::int64_t>(offset / row_bytes) / unit * unit;
    const std::int64_t step =
        shape.rank() == 3 ? unit : std::max(unit, (last - row + unit - 1) / unit * unit);
    for (; row < last; row += step) {
      const std::int64_t count = std::min(step, rows - row);
      const QuantizedTensor codes =
          read_row_block(of_->checkpoint, of_->dialect, found, row, count);
      const Tensor values = dequantize(codes, found.weight.source, {.threads = 1});
      const std::span<const std::byte> bytes = values.bytes();
      const std::uint64_t begins = static_cast<std::uint64_t>(row) * row_bytes;
      const std::uint64_t from = std::max(begins, offset);
      const std::uint64_t to = std::min(begins + bytes.size(), end);
      std::memcpy(into.data() + (from - offset), bytes.data() + (from - begins), to - from);
    }
  }

  std::shared_ptr<const Quantized> of_;
  safetensors::Header header_;
};

safetensors::TensorPlan values_of(const QuantizedWeight& weight) {
  const auto type =
      safetensors::find_stored_type(safetensors::ElementType{weight.source, {}, false});
  const auto sizes = weight.shape.sizes();
  return {weight.name, *type, {sizes.begin(), sizes.end()}};
}

}  // namespace

CheckpointReader open_values(const std::string& path, OtherFiles others) {
  CheckpointReader checkpoint(path, others);
  Recognized recognized = recognize(checkpoint);
  if (!recognized.quantized) return checkpoint;
  std::vector<std::string> notes{
      text("the model is quantized (", name_of(recognized.dialect), ", ",
           counted(recognized.weights.size(), "weight"),
           "): its values are decoded as they are read, and what it lost stays lost")};
  if (cache_scheme_of(checkpoint) != CacheScheme::plain)
    notes.emplace_back("KV cache quantization is no longer declared; its scales stay");
  // Each weight is in the file of its codes.
  std::vector<std::vector<safetensors::TensorPlan>> files(checkpoint.files().size());
  for (const std::string& name : recognized.plain) {
    if (is_input_scale(name) || name.ends_with("scaled_fp8")) continue;
    const StoredTensor& tensor = checkpoint.at(name);
    files[tensor.file].push_back({name, tensor.entry->type, tensor.entry->shape});
  }
  std::map<std::string, FoundWeight, std::less<>> weights;
  for (FoundWeight& found : recognized.weights) {
    files[checkpoint.at(found.tensors.front().plan.name).file].push_back(values_of(found.weight));
    std::string name = found.weight.name;
    weights.emplace(std::move(name), std::move(found));
  }
  Json config = checkpoint.config(), side = checkpoint.hf_quant_config();
  configure(Dialect::octavo, {}, config, side);
  const auto of = std::make_shared<const Quantized>(
      Quantized{std::move(checkpoint), recognized.dialect, std::move(weights)});
  std::vector<std::shared_ptr<const safetensors::TensorSource>> sources;
  for (std::vector<safetensors::TensorPlan>& tensors : files)
    sources.push_back(std::make_shared<DecodedFile>(
        of, safetensors::place_tensors(std::move(tensors), {}, of->checkpoint.path())));
  return of->checkpoint.with_tensors(std::move(sources), std::move(config), std::move(notes));
}

}  // namespace octavo
