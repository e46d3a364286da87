// Writes or checks the copied files, index and config of an output folder.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>

#include "octavo/base/error.h"
#include "octavo/base/file/descriptor_internal.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/base/file/permissions.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/shard_index.h"
#include "octavo/pipeline/output/folder_files_internal.h"
#include "octavo/pipeline/output/model_card_internal.h"
#include "octavo/pipeline/output/output_folder_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

using Put = std::function<void(std::string_view)>;
// Passes a file's whole content to the given function.
using Make = std::function<void(const Put&)>;
// Called for each file of a folder, with the permissions that it may have.
using Each = std::function<void(const std::string& name, unsigned mode, const Make& make)>;

void read_file(const std::string& from, const Put& put) {
  const int descriptor = open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    fail_on_file(errno, from, kOp, "could not open '", shown(from, 200),
                 "': ", std::strerror(errno));
  const Descriptor closed_at_the_end(descriptor);
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    fail_on_file(EINVAL, from, kOp, "'", shown(from, 200),
                 "' is no plain file any more; it was changed since the work began");
  std::vector<char> window(1 << 20);
  while (true) {
    const ssize_t got = read(descriptor, window.data(), window.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail_on_file(errno, from, kOp, "could not read '", shown(from, 200),
                   "': ", std::strerror(errno));
    if (got == 0) break;
    put({window.data(), static_cast<std::size_t>(got)});
  }
}

// "1_Pooling" of "1_Pooling/config.json".
void make_folders_of(const std::string& file) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
  if (error)
    fail_on_file(error.value(), file, kOp, "could not make the folder of '", shown(file, 200),
                 "': ", error.message());
}

// Sets the existing key (torch_dtype or dtype); the newer one where there is none.
void set_dtype(Json& config, const std::string& dtype) {
  const auto set_in = [&](Json& place) {
    bool any = false;
    for (const std::string_view key : {"dtype", "torch_dtype"})
      if (place.has(key)) {
        place.set(key, dtype);
        any = true;
      }
    return any;
  };
  bool any = set_in(config);
  if (config["text_config"].is_object()) {
    Json inner = config["text_config"];
    any |= set_in(inner);
    config.set("text_config", std::move(inner));
  }
  if (!any) config.set("dtype", dtype);
}

// Streams the index without copying names: there may be very many.
void make_index(const QuantizePlan& plan, const Put& put) {
  std::vector<std::pair<std::string_view, std::size_t>> tensors;
  for (const TensorAction& action : plan.actions)
    for (const DialectTensor& output : action.outputs)
      tensors.emplace_back(output.plan.name, action.file);
  std::sort(tensors.begin(), tensors.end());
  std::string gathered;
  write_shard_index(plan.files, tensors, static_cast<std::int64_t>(plan.bytes_after),
                    [&](std::string_view piece) {
                      gathered += piece;
                      if (gathered.size() < 1U << 16) return;
                      put(gathered);
                      gathered.clear();
                    });
  put(gathered);
}

// README.md: the source's, with the card of what is quantized here, and without that of an earlier
// call. A text that is too large for one is copied.
void make_card(const CheckpointReader& source, const QuantizePlan& plan, const Json& provenance,
               bool quantizes, const Each& each) {
  constexpr std::size_t kMaxBytes = 4U << 20;
  const auto& others = source.other_files();
  const bool has_one =
      !source.is_gguf() && std::find(others.begin(), others.end(), kModelCard) != others.end();
  const std::string path = text(source.path(), "/", kModelCard);
  if (!has_one && !quantizes) return;
  const unsigned mode = has_one ? permissions_of(path) : kAnyPermissions;
  std::string readme;
  if (has_one)
    read_file(path, [&](std::string_view piece) {
      readme += piece.substr(0, std::min(piece.size(), kMaxBytes + 1 - readme.size()));
    });
  if (readme.size() > kMaxBytes)
    return each(std::string(kModelCard), mode, [&](const Put& put) { read_file(path, put); });
  const std::string whole =
      quantizes ? with_card(readme, model_card(source, plan, provenance)) : without_card(readme);
  each(std::string(kModelCard), mode, [&](const Put& put) { put(whole); });
}

void for_each_file(const CheckpointReader& source, const QuantizePlan& plan,
                   const std::function<Json()>& provenance,
                   const std::map<std::string, std::string>& sums, const Each& each) {
  const auto mode = [&](const std::string& name) {
    return source.is_folder() ? permissions_of(text(source.path(), "/", name)) : kAnyPermissions;
  };
  for (const std::string& name : source.other_files())
    if (name != kModelCard)
      each(name, mode(name), [&](const Put& put) {
        source.is_gguf() ? put(source.made_file(name)) : read_file(source.path() + "/" + name, put);
      });
  if (!plan.index_name.empty())
    each(plan.index_name, kAnyPermissions, [&](const Put& put) { make_index(plan, put); });
  return_freed_memory();
  Json said = provenance();
  Json config = source.config(), side = source.hf_quant_config();
  const bool was_quantized =
      std::any_of(plan.actions.begin(), plan.actions.end(),
                  [](const TensorAction& action) { return action.found != nullptr; });
  if (!plan.model.weights.empty() || was_quantized)
    configure(plan.options.target, plan.model, config, side);
  make_card(source, plan, said, !was_quantized && !plan.model.weights.empty(), each);
  if (!plan.config_dtype.empty()) set_dtype(config, plan.config_dtype);
  Json listed = Json::object();
  for (const auto& [name, sum] : sums) listed.set(name, sum);
  said.set("sums", std::move(listed));
  config.set("octavo", std::move(said));
  // Both hold what the source's have, and more.
  if (!side.is_null())
    each("hf_quant_config.json", mode("hf_quant_config.json"),
         [&](const Put& put) { put(side.dump() + "\n"); });
  each("config.json", mode("config.json"), [&](const Put& put) { put(config.dump() + "\n"); });
}

void write_file(const std::string& path, unsigned mode, const Make& make) {
  make_folders_of(path);
  WholeFile file{std::string(kOp), path, mode};
  make([&](std::string_view piece) { file.write(std::as_bytes(std::span(piece))); });
  file.commit();
}

// Reads up to a window of bytes; a pipe or a device gives none.
std::size_t read_some(int descriptor, std::span<char> window) {
  std::size_t done = 0;
  while (done < window.size()) {
    const ssize_t got = read(descriptor, window.data() + done, window.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

bool has_content(const std::string& path, const Make& make) {
  // O_NONBLOCK: opening a pipe would block until it has a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  bool same = file.number() >= 0 && fstat(file.number(), &status) == 0 && S_ISREG(status.st_mode);
  std::vector<char> window;
  make([&](std::string_view piece) {
    if (!same) return;
    window.resize(piece.size());
    same = read_some(file.number(), window) == piece.size() &&
           std::equal(piece.begin(), piece.end(), window.begin());
  });
  window.resize(1);
  return same && read_some(file.number(), window) == 0;
}

// Refuses files that loaders would read and that octavo would not write.
void refuse_strangers(const std::string& folder, const std::set<std::string>& ours) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool is_read = name == "hf_quant_config.json" || name.ends_with(".safetensors") ||
                         name.ends_with(".safetensors.index.json");
    if (is_read && !name.starts_with('.') && !ours.contains(name))
      fail_on_file(EEXIST, at->path().string(), kOp, "'", shown(folder, 200),
                   "' is complete, but it holds '", shown(name, 160),
                   "' too, which was not written with it and which loaders read; remove "
                   "it",
                   or_remove(folder));
  }
}

}  // namespace

void write_folder_files(const CheckpointReader& source, const QuantizePlan& plan,
                        const std::function<Json()>& provenance,
                        const std::map<std::string, std::string>& sums, const std::string& folder) {
  for_each_file(source, plan, provenance, sums,
                [&](const std::string& name, unsigned mode, const Make& make) {
                  write_file(text(folder, "/", name), mode, make);
                });
}

std::vector<std::string> repair_folder(const CheckpointReader& source, const QuantizePlan& plan,
                                       const std::function<Json()>& provenance,
                                       const std::map<std::string, std::string>& sums,
                                       const std::string& folder) {
  std::vector<std::string> written;
  std::set<std::string> ours(plan.files.begin(), plan.files.end());
  // All files are checked before one is written: a refused folder stays unchanged. A model card is
  // the user's to write on.
  for (const bool writing : {false, true}) {
    if (writing) refuse_strangers(folder, ours);
    for_each_file(source, plan, provenance, sums,
                  [&](const std::string& name, unsigned mode, const Make& make) {
                    ours.insert(name);
                    const std::string path = text(folder, "/", name);
                    std::error_code ignored;
                    if (!std::filesystem::exists(path, ignored)) {
                      if (!writing) return;
                      write_file(path, mode, make);
                      written.push_back(name);
                    } else if (!writing && name != kModelCard && !has_content(path, make)) {
                      fail_on_file(
                          EEXIST, path, kOp, "'", shown(folder, 200), "' is complete, but its '",
                          shown(name, 160),
                          "' is not what would be written: it or the source was changed since; ",
                          name == "config.json" ? "put it back, or give a new folder"
                                                : "remove that file to have it written again",
                          or_remove(folder));
                    }
                  });
  }
  return written;
}

}  // namespace octavo
