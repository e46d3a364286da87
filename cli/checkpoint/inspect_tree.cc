#include "cli/checkpoint/inspect_tree.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

constexpr int kDeepest = 64;  // limits hostile names of ten thousand dots

struct Node {
  std::string name;
  std::vector<std::unique_ptr<Node>> children;
  std::unordered_map<std::string, std::size_t> places;  // of children by name
  std::vector<const InspectedTensor*> tensors;  // of this node; several if branches collapse
  std::uint64_t bytes = 0;

  Node& child(std::string_view part) {
    const auto [at, is_new] = places.try_emplace(std::string(part), children.size());
    if (!is_new) return *children[at->second];
    children.push_back(std::make_unique<Node>());
    children.back()->name = part;
    return *children.back();
  }

  // Branches with equal signatures are shown as one.
  [[nodiscard]] std::string signature() const {
    std::string out;
    for (const InspectedTensor* tensor : tensors) out += shape_text(*tensor) + tensor->type + '\n';
    for (const auto& each : children) out += text('(', each->name, each->signature(), ')');
    return out;
  }
};

std::string whole(const std::string& name) { return octavo::shown(name, name.size()); }

bool is_number(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

std::string line_of(const Node& node, const std::string& label, std::size_t times,
                    const std::string& indent) {
  const Style style(stdout);
  const std::size_t width = indent.size() + label.size();
  const std::string gap(width < 46 ? 46 - width : 1, ' ');
  std::string out = style.dim(indent) + label + gap +
                    formatted("{:>10}", bytes_text(static_cast<double>(node.bytes * times)));
  for (const InspectedTensor* tensor : node.tensors)
    out += formatted("  {} {}", shape_text(*tensor), short_type(*tensor));
  if (times > 1) out += formatted("  x {}", times);
  return out + "\n";
}

void print_node(const Node& node, const std::string& indent, std::string& out) {
  for (std::size_t i = 0; i < node.children.size();) {
    // Consecutive numbers with equal signatures.
    std::size_t end = i + 1;
    if (is_number(node.children[i]->name) && !node.children[i]->children.empty()) {
      const std::string signature = node.children[i]->signature();
      while (end < node.children.size() && is_number(node.children[end]->name) &&
             node.children[end]->signature() == signature)
        ++end;
    }
    const Node& first = *node.children[i];
    const std::string label =
        whole(first.name) +
        (end - i > 1 ? ".." + whole(node.children[end - 1]->name) : std::string());
    out += line_of(first, label, end - i, indent);
    print_node(first, indent + "  ", out);
    i = end;
  }
}

}  // namespace

std::string shape_text(const InspectedTensor& tensor) {
  std::string out;
  for (const std::int64_t extent : tensor.shape)
    out += (out.empty() ? "" : " x ") + std::to_string(extent);
  return out.empty() ? "scalar" : out;
}

std::string short_type(const InspectedTensor& tensor) {
  return tensor.type.substr(0, tensor.type.find_first_of(",:"));
}

std::string tree_text(const std::vector<InspectedTensor>& tensors) {
  Node root;
  for (const InspectedTensor& tensor : tensors) {
    Node* at = &root;
    std::string_view rest = tensor.name;
    for (int depth = 0; !rest.empty() && depth < kDeepest; ++depth) {
      const std::size_t end =
          depth + 1 == kDeepest ? rest.size() : std::min(rest.find('.'), rest.size());
      at = &at->child(rest.substr(0, end));
      at->bytes += tensor.bytes;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    at->tensors.push_back(&tensor);
  }
  std::string out;
  print_node(root, "", out);
  return out;
}

}  // namespace octavo::cli
