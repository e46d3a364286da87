// Copies, index and config of an output folder.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>

#include "octavo/base/descriptor_internal.h"
#include "octavo/base/error.h"
#include "octavo/base/freed_memory_internal.h"
#include "octavo/base/whole_file.h"
#include "octavo/checkpoint/shard_index.h"
#include "octavo/pipeline/folder_files_internal.h"
#include "octavo/pipeline/output_files_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

void copy_file(const std::string& from, const std::string& to) {
  const int descriptor = open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    fail(ErrorCode::io, kOp, "could not open '", shown(from, 200), "': ", std::strerror(errno));
  const Descriptor closed_at_the_end(descriptor);
  WholeFile out{std::string(kOp), to};
  std::vector<std::byte> window(1 << 20);
  while (true) {
    const ssize_t got = read(descriptor, window.data(), window.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail(ErrorCode::io, kOp, "could not read '", shown(from, 200), "': ", std::strerror(errno));
    if (got == 0) break;
    out.write(std::span(window).first(static_cast<std::size_t>(got)));
  }
  out.commit();
}

// "1_Pooling" of "1_Pooling/config.json".
void make_folders_of(const std::string& file) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
  if (error)
    fail(ErrorCode::io, kOp, "could not make the folder of '", shown(file, 200),
         "': ", error.message());
}

// Under the key that is there; the newer one where there is none.
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

// Names are not copied, and the text is not made as a whole: there may be very many.
void write_index(const QuantizePlan& plan, const OutputFolder& folder) {
  std::vector<std::pair<std::string_view, std::size_t>> tensors;
  for (const TensorAction& action : plan.actions)
    for (const SpelledTensor& output : action.outputs)
      tensors.emplace_back(output.plan.name, action.file);
  std::sort(tensors.begin(), tensors.end());
  WholeFile file(std::string(kOp), folder.path_of(plan.index_name));
  std::string gathered;
  const auto flush = [&] {
    file.write(std::as_bytes(std::span(gathered)));
    gathered.clear();
  };
  write_shard_index(plan.files, tensors, static_cast<std::int64_t>(plan.bytes_after),
                    [&](std::string_view piece) {
                      gathered += piece;
                      if (gathered.size() >= 1U << 16) flush();
                    });
  flush();
  file.commit();
}

}  // namespace

void finish_folder(const CheckpointReader& source, const QuantizePlan& plan,
                   const std::function<Json()>& words, OutputFolder& folder) {
  for (const std::string& name : source.other_files()) {
    make_folders_of(folder.path_of(name));
    copy_file(source.path() + "/" + name, folder.path_of(name));
  }
  if (!plan.index_name.empty()) write_index(plan, folder);
  return_freed_memory();
  Json said = words();
  Json config = source.config(), side = source.hf_quant_config();
  const bool was_quantized =
      std::any_of(plan.actions.begin(), plan.actions.end(),
                  [](const TensorAction& action) { return action.found != nullptr; });
  if (!plan.model.weights.empty() || was_quantized)
    configure(plan.options.target, plan.model, config, side);
  if (!plan.config_dtype.empty()) set_dtype(config, plan.config_dtype);
  Json sums = Json::object();
  for (const auto& [name, sum] : folder.sums()) sums.set(name, sum);
  said.set("sums", std::move(sums));
  config.set("octavo", std::move(said));
  if (!side.is_null())
    write_whole_file(std::string(kOp), folder.path_of("hf_quant_config.json"), side.dump() + "\n");
  write_whole_file(std::string(kOp), folder.path_of("config.json"), config.dump() + "\n");
  folder.remove_record();
}

}  // namespace octavo
