#include "octavo/recipe/module_quantizers.h"

#include <utility>

#include "octavo/base/error.h"

namespace octavo {
namespace {

// Weights of one recipe in products of another of its class.
bool weights_fit(const Recipe& made_with, const Recipe& current) {
  if (made_with == current) return true;
  if (made_with.name() != current.name() || current.custom()) return false;
  if (current.delayed())
    return made_with.format_of(TensorRole::weight) == current.format_of(TensorRole::weight);
  const QuantizerRole role{.module_type = {}, .tensor = TensorRole::weight, .name = {}};
  return make_quantizer(made_with, role)->scaling() == make_quantizer(current, role)->scaling();
}

// FNV-1a: modules of one seed draw differently.
std::uint64_t mixed(std::uint64_t seed, std::string_view name, Direction direction) {
  std::uint64_t hash = 0xCBF29CE484222325u ^ seed;
  const auto add = [&](unsigned char byte) { hash = (hash ^ byte) * 0x100000001B3u; };
  for (const char c : name) add(static_cast<unsigned char>(c));
  add(static_cast<unsigned char>(direction));
  return hash;
}

}  // namespace

void check_weight_recipe(std::string_view parameter, const Recipe& made_with,
                         const Recipe& current) {
  if (weights_fit(made_with, current)) return;
  const bool same_class = made_with.name() == current.name();
  const auto named = [&](const Recipe& recipe) {
    return same_class ? text('(', to_string(recipe), ')') : std::string(recipe.name());
  };
  throw Error(ErrorCode::unsupported,
              text("Recipe mismatch for ", parameter, ": Weight was initialized with ",
                   named(made_with), ", but current recipe is ", named(current),
                   ". Cannot use weights of one with the other: use the same recipe in "
                   "quantized_model_init and autocast, or make the module without "
                   "quantized_model_init."));
}

std::string recipe_change_text(const Recipe& from, const Recipe& to, std::string_view module) {
  const std::string what =
      from.name() == to.name()
          ? text("Recipe changed from (", to_string(from), ") to (", to_string(to), ")")
          : text("Recipe type changed from ", from.name(), " to ", to.name());
  return text(what, ". Replacing quantizers for ", module, ".");
}

std::string unused_state_text(const Recipe& current, std::string_view module) {
  return text("Loaded state of DelayedScaling is not used by ", current.name(), " in ", module,
              ". It waits for a forward under DelayedScaling; by then its scales may be old.");
}

ModuleQuantizers::ModuleQuantizers(ModuleQuantizersOptions options)
    : options_(std::move(options)) {}

void ModuleQuantizers::warn(const std::string& message) {
  const auto held = lock();
  if (said_.contains(message)) return;
  if (options_.warn) options_.warn(message);
  said_.insert(message);
}

void ModuleQuantizers::warn_unused_state(const Recipe& current) {
  if (!current.delayed()) warn(unused_state_text(current, options_.module_type));
}

bool ModuleQuantizers::use(const Recipe& recipe,
                           const std::function<void(const QuantizerSet&)>& fits, bool requested,
                           void* stream) {
  const auto held = lock();
  if (forward_ && forward_->recipe() == recipe) {
    if (fits) fits(*forward_);
    return false;
  }
  // All that may throw comes before anything is replaced.
  std::shared_ptr<QuantizerSet> forward = make(recipe, Direction::forward, stream);
  std::shared_ptr<QuantizerSet> backward = make(recipe, Direction::backward, stream);
  if (fits) fits(*forward);
  if (forward_ && !requested)
    warn(recipe_change_text(forward_->recipe(), recipe, options_.module_type));
  const std::lock_guard swapping(*pointers_);
  forward_.swap(forward);  // the old ones go after the lock
  backward_.swap(backward);
  return true;
}

std::shared_ptr<QuantizerSet> ModuleQuantizers::set(Direction direction) const {
  const std::lock_guard reading(*pointers_);
  return direction == Direction::forward ? forward_ : backward_;
}

std::shared_ptr<QuantizerSet> ModuleQuantizers::make(const Recipe& recipe, Direction direction,
                                                     void* stream) const {
  const bool is_forward = direction == Direction::forward;
  if (!is_forward && options_.backward.empty()) return nullptr;
  return std::make_shared<QuantizerSet>(
      recipe,
      QuantizerSetOptions{.direction = direction,
                          .module_type = options_.role_type,
                          .name = options_.name,
                          .roles = is_forward ? options_.forward : options_.backward,
                          .make = options_.make,
                          .seed = mixed(options_.seed, options_.name, direction),
                          .stream = stream},
      is_forward ? forward_.get() : backward_.get());
}

std::shared_ptr<QuantizerSet> ModuleQuantizers::at(std::string_view key) const {
  for (const Direction direction : {Direction::forward, Direction::backward})
    if (key == name_of(direction)) return set(direction);
  fail(ErrorCode::invalid_argument, "quantizers", "got \"", shown(key),
       "\"; expected scaling_fwd or scaling_bwd");
}

}  // namespace octavo
