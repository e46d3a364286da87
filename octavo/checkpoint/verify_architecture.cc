// The model that config.json describes, held against the tensors that are there.
#include "octavo/base/error.h"
#include "octavo/checkpoint/verify_internal.h"

namespace octavo {
namespace {

// Shapes as the unquantized model has them.
std::map<std::string_view, std::vector<std::int64_t>> shapes_of(const VerifyView& view) {
  std::map<std::string_view, std::vector<std::int64_t>> shapes;
  for (const std::string& name : view.recognized.plain) {
    const auto& shape = view.checkpoint.at(name).entry->shape;
    shapes[name] = {shape.begin(), shape.end()};
  }
  for (const FoundWeight& found : view.recognized.weights) {
    const auto sizes = found.weight.shape.sizes();
    shapes[found.weight.name] = {sizes.begin(), sizes.end()};
  }
  return shapes;
}

bool fits(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& wanted) {
  if (shape.size() != wanted.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (wanted[i] > 0 ? shape[i] != wanted[i] : shape[i] == 0) return false;
  return true;
}

std::string wanted_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    out += text(i > 0 ? ", " : "", shape[i] > 0 ? std::to_string(shape[i]) : "any");
  return out + "]";
}

}  // namespace

void check_architecture(const VerifyView& view, Findings& out) {
  if (!view.architecture) return;
  std::set<std::int64_t> layers;  // that have anything: others are missing as a whole
  for (const ExpectedTensor& tensor : view.architecture->tensors)
    if (view.names.contains(tensor.name)) layers.insert(tensor.layer);
  for (const ExpectedTensor& tensor : view.architecture->tensors) {
    if (view.names.contains(tensor.name) || !layers.contains(tensor.layer)) continue;
    if (!tensor.instead.empty() &&
        (view.names.contains(tensor.instead) || view.names.contains(tensor.instead + ".weight")))
      continue;
    if (view.misfits.contains(tensor.name.substr(0, tensor.name.rfind('.')))) continue;
    out.error(
        {kV, kH, kS, kT}, tensor.name,
        text("it is missing, and config.json says that this is a '", view.architecture->model_type,
             tensor.layer < 0 ? "', which has it" : "', which has it in this layer"));
  }
}

void check_shapes(const VerifyView& view, Findings& out) {
  if (!view.architecture) return;
  const auto shapes = shapes_of(view);
  for (const ExpectedTensor& tensor : view.architecture->tensors) {
    const auto found = shapes.find(tensor.name);
    if (found == shapes.end() || fits(found->second, tensor.shape)) continue;
    out.error({kV, kH, kS, kT}, tensor.name,
              text("its shape is ", wanted_text(found->second), ", and from config.json follows ",
                   wanted_text(tensor.shape)));
  }
}

}  // namespace octavo
