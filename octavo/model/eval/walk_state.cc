#include "octavo/model/eval/walk_state_internal.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/base/hexadecimal.h"

namespace octavo::eval {
namespace {

constexpr std::int64_t kVersion = 2;  // 1 knew models by the shapes of their tensors alone
constexpr std::uintmax_t kMaxStateBytes = 64U << 20;

// What must be the same for a state to be of use, in words for the message.
Json identity_of(std::span<const EvalModel* const> models, const TokenWindows& windows,
                 const Json& more) {
  Json names = Json::array(), texts = Json::array();
  for (const EvalModel* model : models)
    names.push(text(model->name(), " (", hex_of(model->fingerprint()), ", ",
                    dtype_name(model->shape().activations), ")"));
  for (const TokenizedText& one : windows.texts)
    texts.push(text(one.name, " (", one.ids.size(), " tokens, ", hex_of(tokens_hash(one)), ")"));
  Json out = Json::object(
      {{"models", std::move(names)}, {"window", windows.window}, {"texts", std::move(texts)}});
  for (const auto& [what, value] : more.members()) out.set(what, value);
  return out;
}

Json json_of(const Differences& differences) {
  Json models = Json::array();
  for (const auto& of_model : differences) {
    Json layers = Json::array();
    for (const auto& of_layer : of_model) {
      Json texts = Json::array();
      for (const DifferenceSums& sums : of_layer)
        texts.push(Json::array({sums.cosine, sums.relative2, sums.tokens}));
      layers.push(std::move(texts));
    }
    models.push(std::move(layers));
  }
  return models;
}

// False where the shape is another one.
bool read_differences(const Json& json, Differences& differences) {
  if (json.elements().size() != differences.size()) return false;
  for (std::size_t model = 0; model < differences.size(); ++model) {
    const auto& layers = json.elements()[model].elements();
    if (layers.size() != differences[model].size()) return false;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      const auto& texts = layers[layer].elements();
      if (texts.size() != differences[model][layer].size()) return false;
      for (std::size_t text = 0; text < texts.size(); ++text) {
        const auto& sums = texts[text].elements();
        if (sums.size() != 3) return false;
        // null is NaN.
        differences[model][layer][text] = {.cosine = sums[0].number_or(kUnknown),
                                           .relative2 = sums[1].number_or(kUnknown),
                                           .tokens = sums[2].integer_or(0)};
      }
    }
  }
  return true;
}

// "hidden-0-12.f32", as store() names them: other files of the folder are not ours.
bool is_hidden_name(std::string_view name) {
  constexpr std::string_view kBegin = "hidden-", kEnd = ".f32";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(kEnd.size());
  const auto is_number = [](std::string_view digits) {
    return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
  };
  const std::size_t dash = name.find('-');
  return dash != std::string_view::npos && is_number(name.substr(0, dash)) &&
         is_number(name.substr(dash + 1));
}

// A value as it is written; of models the end, which is after their paths and tells them apart.
std::string described(std::string_view what, const Json& value) {
  constexpr std::size_t kEnd = 40, kMost = 100;
  const std::string all = value.dump(0);
  if (what != "models" || all.size() <= kEnd) return shown(all, kMost);
  return "..." + shown(all.substr(all.size() - kEnd), kMost);
}

}  // namespace

WalkState::WalkState(std::string op, std::string folder, std::span<const EvalModel* const> models,
                     const TokenWindows& windows, const Json& more)
    : op_(std::move(op)), folder_(std::move(folder)) {
  if (folder_.empty()) return;
  identity_ = identity_of(models, windows, more);
  std::error_code failed;
  std::filesystem::create_directories(folder_, failed);
  if (failed)
    fail_on_file(failed.value(), folder_, op_, "could not create the folder '", shown(folder_, 400),
                 "' for the state: ", failed.message(), "; name another one (--resume)");
}

std::int64_t WalkState::restore(std::span<HiddenStates> hidden, Differences& differences) {
  if (folder_.empty()) return -1;
  const std::string path = path_of(std::string(kWalkState));
  std::error_code failed;
  const std::uintmax_t size = std::filesystem::file_size(path, failed);
  if (failed) return -1;
  const std::string fix =
      text("; expected what this command would have stored; remove '", shown(folder_, 400),
           "' to begin again, or name another folder (--resume)");
  std::ifstream file(path, std::ios::binary);
  std::string content;
  if (size <= kMaxStateBytes) content.assign(std::istreambuf_iterator<char>(file), {});
  const Json state = parse_json(content, path);
  const std::int64_t version = state["version"].integer_or(0);
  check(version == kVersion, ErrorCode::invalid_argument, op_, "'", shown(path, 400),
        "' is a state of version ", version, ", and this octavo reads version ", kVersion, fix);
  for (const auto& [what, wanted] : identity_.members()) {
    const Json& stored = state["of"][what];
    check(stored == wanted, ErrorCode::invalid_argument, op_, "'", shown(folder_, 400),
          "' has the state of another run: ", what, " ", described(what, stored), " there, ",
          described(what, wanted), " here", fix);
  }
  const std::int64_t layer = state["next_layer"].integer_or(-1);
  const auto& files = state["hidden"].elements();
  bool fits = layer >= 0 && files.size() == hidden.size() &&
              read_differences(state["differences"], differences);
  for (std::size_t model = 0; fits && model < hidden.size(); ++model) {
    const std::string name(files[model]["file"].string_or(""));
    const std::string_view hash = files[model]["hash"].string_or("");
    fits = name.find('/') == std::string::npos && parse_hex(hash) &&
           hidden[model].load(path_of(name), *parse_hex(hash));
  }
  check(fits, ErrorCode::invalid_argument, op_, "the state in '", shown(folder_, 400),
        "' is damaged or not whole", fix);
  return layer;
}

void WalkState::store(std::int64_t next_layer, std::span<const HiddenStates> hidden,
                      const Differences& differences) {
  if (folder_.empty()) return;
  Json files = Json::array();
  for (std::size_t model = 0; model < hidden.size(); ++model) {
    const std::string name = text("hidden-", model, "-", next_layer, ".f32");
    const std::uint64_t hash = hidden[model].save(path_of(name));
    files.push(Json::object({{"file", name}, {"hash", hex_of(hash)}}));
  }
  const Json state = Json::object({{"version", kVersion},
                                   {"next_layer", next_layer},
                                   {"of", identity_},
                                   {"hidden", std::move(files)},
                                   {"differences", json_of(differences)}});
  write_whole_file(op_, path_of(std::string(kWalkState)), state.dump());
  remove_others(state);
}

// Hidden states of earlier layers. What cannot be removed stays: it does no harm.
void WalkState::remove_others(const Json& state) const {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, failed)) {
    const std::string name = entry.path().filename().string();
    if (!is_hidden_name(name)) continue;
    bool is_named = false;
    for (const Json& file : state["hidden"].elements())
      is_named = is_named || file["file"].string_or("") == name;
    if (!is_named) std::filesystem::remove(entry.path(), failed);
  }
}

void WalkState::remove() {
  if (folder_.empty()) return;
  std::error_code failed;
  std::filesystem::remove(path_of(std::string(kWalkState)), failed);
  remove_others({});
  std::filesystem::remove(folder_, failed);  // where nothing else is in it
}

}  // namespace octavo::eval
