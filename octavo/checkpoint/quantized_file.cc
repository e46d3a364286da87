// octavo's own file: its metadata, and the parts of a tensor one by one.
#include "octavo/checkpoint/quantized_file.h"

#include <charconv>

#include "octavo/base/error.h"
#include "octavo/checkpoint/quantized_file_internal.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/quant/scale_order.h"
#include "octavo/quant/scaling_text.h"
#include "octavo/safetensors/file_writer.h"

namespace octavo {
namespace {

using safetensors::FileReader;
using safetensors::FileWriter;
using safetensors::StoredType;
using safetensors::TensorPlan;

constexpr std::string_view kOp = "quantized file", kVersionKey = "octavo.version", kVersion = "1",
                           kTensorKey = "octavo.tensor.", kColumnwise = ".columnwise",
                           kScales = ".scales", kTensorScale = ".tensor_scale";

struct FilePart {
  std::string name;
  const Tensor* tensor;
};

std::vector<FilePart> parts_of(const std::string& name, const QuantizedTensor& tensor) {
  std::vector<FilePart> parts;
  const auto add = [&](const std::string& base, const QuantizedCopy& copy) {
    if (!copy.exists()) return;
    parts.push_back({base, &copy.codes});
    parts.push_back({text(base, kScales), &copy.scales});
    if (copy.tensor_scale.owner() != nullptr)
      parts.push_back({text(base, kTensorScale), &copy.tensor_scale});
  };
  add(name, tensor.rowwise);
  add(text(name, kColumnwise), tensor.columnwise);
  return parts;
}

// The stored form of a tensor, from any device or scale order: row-major bytes on the host.
Tensor stored(const Tensor& tensor) {
  const View& view = tensor.view();
  const Tensor host = view.device.kind == DeviceKind::cpu ? tensor : to_host(view);
  return view.packed ? host : in_order(host, ScaleOrder::row_major);
}

std::string shape_as_text(const Shape& shape) {
  std::string out;
  for (const std::int64_t size : shape.sizes()) out += text(out.empty() ? "" : "x", size);
  return out.empty() ? "scalar" : out;
}

Shape parse_shape(std::string_view value) {
  if (value == "scalar") return {};
  std::vector<std::int64_t> sizes;
  while (true) {
    const std::size_t end = std::min(value.find('x'), value.size());
    std::int64_t size = 0;
    const auto [stop, error] = std::from_chars(value.begin(), value.begin() + end, size);
    check(
        error == std::errc{} && stop == value.begin() + end && size >= 0 && sizes.size() < kMaxRank,
        ErrorCode::invalid_argument, kOp, "got the shape '", shown(value),
        "'; expected sizes like 1024x4096");
    sizes.push_back(size);
    if (end == value.size()) return Shape(std::span<const std::int64_t>(sizes));
    value.remove_prefix(end + 1);
  }
}

// Fills a tensor that was allocated from the metadata; the file must have exactly its bytes.
void fill(const FileReader& file, const std::string& name, const Tensor& into) {
  const auto* entry = file.find(name);
  if (entry == nullptr) {
    fail(ErrorCode::invalid_argument, kOp, "'", shown(file.path()), "' has no tensor '",
         shown(name), "', which its metadata promise; the file was changed by something else");
  }
  const TensorPlan wanted = stored_plan(name, into.view());
  if (entry->type != wanted.type || entry->shape != wanted.shape) {
    fail(ErrorCode::invalid_argument, kOp, "tensor '", shown(name), "' in '", shown(file.path()),
         "' has another type or shape than its metadata say");
  }
  if (entry->nbytes() > 0) file.read(*entry, 0, into.bytes());
}

void fill_copy(const FileReader& file, const std::string& base, const Scaling& scaling,
               QuantizedCopy& copy) {
  if (!copy.exists()) return;
  fill(file, base, copy.codes);
  const Tensor scales = in_order(copy.scales, ScaleOrder::row_major);  // memory to read into
  fill(file, text(base, kScales), scales);
  copy.scales = in_order(scales, scaling.scale_order);
  if (copy.tensor_scale.owner() != nullptr) fill(file, text(base, kTensorScale), copy.tensor_scale);
}

// Called before allocating: the codes alone must fit into the file, so a claimed size cannot exceed
// it.
void check_size(const FileReader& file, const Shape& shape, const Scaling& scaling) {
  const bool packed = scaling.packed && scaling.format.bits() < 8 && shape.rank() > 0;
  const std::int64_t codes = dense_bytes(shape, DType::code, scaling.format, packed);
  const std::int64_t scales = element_count(scale_shape(shape, scaling));
  check(static_cast<std::uint64_t>(codes) <= file.header().data_bytes &&
            static_cast<std::uint64_t>(scales) <= file.header().data_bytes,
        ErrorCode::invalid_argument, kOp, "it claims more elements than the file has bytes");
}

// Errors about a part of a file name the file and the tensor, and have the code for bad file
// content, whatever code the same error would have for an argument.
template <typename Work>
auto naming(const FileReader& file, const std::string& name, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    fail(ErrorCode::invalid_argument, kOp, "tensor '", shown(name), "' in '", shown(file.path()),
         "': ", reason_of(error));
  }
}

void check_version(const FileReader& file) {
  const auto& metadata = file.header().metadata;
  const auto found = metadata.find(kVersionKey);
  check(found != metadata.end(), ErrorCode::invalid_argument, kOp, "'", shown(file.path()),
        "' has no '", kVersionKey, "' in its metadata: it was not written by octavo");
  check(found->second == kVersion, ErrorCode::unsupported, kOp, "'", shown(file.path()),
        "' is of version '", shown(found->second), "'; expected ", kVersion,
        "; read it with a later octavo");
}

// Allocates a tensor from its metadata line; does not fill it.
QuantizedTensor described(const FileReader& file, std::string_view line) {
  const Description found = parse_description(line);
  check_size(file, found.shape, found.scaling);
  return make_quantized(found.shape, found.source, found.scaling);
}

}  // namespace

std::string scales_name(std::string_view name) { return text(name, kScales); }
std::string tensor_scale_name(std::string_view name) { return text(name, kTensorScale); }

// safetensors packs a whole tensor into one bit stream; octavo starts every row on a byte. The two
// agree where rows end on a byte; elsewhere, and for formats that safetensors has no dtype for, raw
// bytes (U8) are stored.
TensorPlan stored_plan(std::string name, const View& view) {
  const Shape& shape = view.shape;
  std::vector<std::uint64_t> sizes(shape.sizes().begin(), shape.sizes().end());
  const bool whole_bytes =
      !view.packed || (shape.rank() > 0 && shape[shape.rank() - 1] * view.format.bits() % 8 == 0);
  const auto type =
      safetensors::find_stored_type(safetensors::ElementType{view.dtype, view.format, view.packed});
  if (type && whole_bytes)
    return {.name = std::move(name), .type = *type, .shape = std::move(sizes)};
  const std::int64_t bytes = dense_bytes(shape, view.dtype, view.format, view.packed);
  return {.name = std::move(name),
          .type = StoredType::u8,
          .shape = {static_cast<std::uint64_t>(bytes)}};
}

void describe_in(safetensors::Metadata& metadata, const std::string& name, const Shape& shape,
                 DType source, const Scaling& scaling) {
  metadata.insert_or_assign(std::string(kVersionKey), std::string(kVersion));
  metadata.insert_or_assign(
      text(kTensorKey, name),
      text(shape_as_text(shape), " ", dtype_name(source), " ", to_text(scaling)));
}

Description parse_description(std::string_view line) {
  const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
  check(first != std::string_view::npos && second != std::string_view::npos,
        ErrorCode::invalid_argument, kOp, "its metadata read '", shown(line),
        "'; expected a shape, a type and a scaling");
  return {.shape = parse_shape(line.substr(0, first)),
          .source = parse_dtype(line.substr(first + 1, second - first - 1)),
          .scaling = parse_scaling(line.substr(second + 1))};
}

void save_quantized(const std::string& path, const QuantizedTensors& tensors) {
  std::vector<TensorPlan> plans;
  safetensors::WriteOptions options;
  options.metadata.emplace(kVersionKey, kVersion);
  for (const auto& [name, tensor] : tensors) {
    for (const FilePart& part : parts_of(name, tensor))
      plans.push_back(stored_plan(part.name, part.tensor->view()));
    describe_in(options.metadata, name, tensor.shape, tensor.source, tensor.scaling);
  }
  FileWriter writer(path, std::move(plans), options);
  for (const auto& [name, tensor] : tensors)
    for (const FilePart& part : parts_of(name, tensor))
      if (part.tensor->nbytes() > 0)
        writer.write(writer.at(part.name), 0, stored(*part.tensor).bytes());
  writer.finish();
}

std::vector<std::string> quantized_names(const FileReader& file) {
  check_version(file);
  std::vector<std::string> names;
  for (const auto& [key, value] : file.header().metadata)
    if (key.starts_with(kTensorKey)) names.push_back(key.substr(kTensorKey.size()));
  return names;
}

bool describes_itself(const FileReader& file) {
  return file.header().metadata.contains(kVersionKey);
}

const std::string& description_of(const FileReader& file, const std::string& name) {
  const auto& metadata = file.header().metadata;
  const auto found = metadata.find(text(kTensorKey, name));
  check(found != metadata.end(), ErrorCode::invalid_argument, kOp, "'", shown(file.path()),
        "' has no quantized tensor '", shown(name), "'");
  return found->second;
}

QuantizedTensor load_quantized(const FileReader& file, const std::string& name) {
  check_version(file);
  const std::string& line = description_of(file, name);
  QuantizedTensor tensor = naming(file, name, [&] { return described(file, line); });
  fill_copy(file, name, tensor.scaling, tensor.rowwise);
  fill_copy(file, text(name, kColumnwise), tensor.scaling, tensor.columnwise);
  naming(file, name, [&] { check_scales(tensor); });
  return tensor;
}

QuantizedTensors load_quantized(const std::string& path) {
  const FileReader file(path);
  QuantizedTensors tensors;
  for (const std::string& name : quantized_names(file))
    tensors.emplace(name, load_quantized(file, name));
  return tensors;
}

}  // namespace octavo
