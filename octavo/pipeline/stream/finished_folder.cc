#include "octavo/pipeline/stream/finished_folder_internal.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/base/hash/row_hash_internal.h"
#include "octavo/base/thread_pool.h"
#include "octavo/pipeline/output/folder_files_internal.h"
#include "octavo/pipeline/output/output_folder_internal.h"
#include "octavo/pipeline/plan/file/source_fingerprint_internal.h"
#include "octavo/pipeline/stream/stream_files_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"
#include "octavo/pipeline/stream/work_loop_internal.h"

namespace octavo {
namespace {

std::string shown_folder(const std::string& folder) { return text("'", shown(folder, 200), "'"); }

// The content hash of a row block as streaming computes it, without quantizing.
std::uint64_t content_of_row_block(const CheckpointReader& source, const QuantizePlan& plan,
                                   const RowBlock& row_block, Window& window) {
  const TensorAction& action = plan.actions[row_block.action];
  if (action.found) {
    const std::int64_t row = row_in_found(action, row_block);
    return content_of(
        read_row_block(source, plan.source_dialect, *action.found, row, row_block.rows), row);
  }
  if (action.quantize) {
    const View values = window.read_values(source, action, row_block);
    const std::int64_t row_bytes = values.shape[1] * element_bytes(values.dtype);
    return content_hash({static_cast<const std::byte*>(values.data),
                         static_cast<std::size_t>(row_block.rows * row_bytes)},
                        row_bytes, row_in_source(source, action, row_block));
  }
  std::uint64_t offset = 0;
  return content_hash(window.read_bytes(source, action, row_block, offset),
                      row_layout(source, action).row_bytes, row_block.first_row);
}

[[noreturn]] void fail_file(const FinishedCheck& check, const std::string& folder,
                            const std::string& file, int number, std::string_view what) {
  fail_on_file(number, text(folder, "/", file), check.op, shown_folder(folder),
               " is complete, but its file '", shown(file, 160), "' ", what,
               "; put back what it was, or give a new folder", or_remove(folder));
}

// Does a weight file have the planned tensors and metadata?
bool has_header(const std::string& path, const PlannedFile& planned) {
  try {
    const safetensors::FileReader file(path);
    if (file.header().metadata != planned.metadata ||
        file.header().tensors.size() != planned.tensors.size())
      return false;
    return std::all_of(planned.tensors.begin(), planned.tensors.end(),
                       [&](const safetensors::TensorPlan& tensor) {
                         const safetensors::TensorEntry& has = file.at(tensor.name);
                         return has.type == tensor.type && has.shape == tensor.shape;
                       });
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

const Json& last_step(const Json& provenance) {
  static const Json kNone;
  const auto& steps = provenance["steps"].elements();
  return steps.empty() ? kNone : steps.back();
}

std::vector<std::string> check_finished(const CheckpointReader& source, const QuantizePlan& plan,
                                        const Json& provenance, const std::string& folder,
                                        const FinishedCheck& check) {
  // Of several processes each looks, and no storage is asked for locks.
  std::optional<FolderLock> folder_lock;
  if (check.depth == FinishedDepth::every_byte) folder_lock.emplace(folder);
  refuse_links(folder);
  std::error_code ignored;
  for (const std::string& file : plan.files)
    if (!std::filesystem::exists(text(folder, "/", file), ignored))
      fail_file(check, folder, file, ENOENT, "is not there any more");
  // Of shards that were deleted (option delete_source) nothing can be compared: the folder's own
  // sums decide.
  const bool has_source = std::ranges::all_of(source.files(), [&](const auto& file) {
    return std::filesystem::exists(file.path(), ignored);
  });
  if (has_source)
    check_made_from(check.op, source, folder, check.made_from.sample,
                    source_sample(source, check.threads));
  const bool all = check.depth == FinishedDepth::every_byte;
  const std::vector<RowBlock> row_blocks =
      all && has_source ? split_row_blocks(source, plan) : std::vector<RowBlock>();
  const auto bytes_of = [&](const RowBlock& row_block) {
    return static_cast<std::uint64_t>(row_block.rows *
                                      row_layout(source, plan.actions[row_block.action]).row_bytes);
  };
  std::uint64_t total = plan.bytes_after;
  for (const RowBlock& row_block : row_blocks) total += bytes_of(row_block);
  const int threads = check.threads == 0 ? available_threads() : check.threads;
  WorkLoop loop(threads, total, check.on_progress);
  std::vector<ActionResult> results(plan.actions.size());
  std::vector<Window> windows(static_cast<std::size_t>(threads));
  std::mutex adding;
  loop.run(row_blocks.size(), [&](int thread, std::size_t i) {
    const std::uint64_t content = content_of_row_block(source, plan, row_blocks[i],
                                                       windows[static_cast<std::size_t>(thread)]);
    {
      const std::lock_guard lock(adding);
      results[row_blocks[i].action].content += content;
    }
    loop.advance(bytes_of(row_blocks[i]),
                 source.tensors()[plan.actions[row_blocks[i].action].tensor].name());
  });
  if (all && has_source)
    check_made_from(check.op, source, folder, check.made_from.hash,
                    source_hash(source, plan, results));
  std::vector<std::vector<std::size_t>> actions(plan.files.size());
  for (std::size_t i = 0; i < plan.actions.size(); ++i) actions[plan.actions[i].file].push_back(i);
  loop.run(plan.files.size(), [&](int, std::size_t i) {
    const std::string path = text(folder, "/", plan.files[i]);
    if (!has_header(path, planned_file(plan, actions[i])) ||
        (all && !has_checksum(path, provenance["sums"][plan.files[i]].string_or(""))))
      fail_file(check, folder, plan.files[i], EEXIST,
                "is not what was written: it was changed or damaged since");
    loop.advance(plan.bytes_after / plan.files.size(), plan.files[i]);
  });
  std::map<std::string, std::string> sums;
  for (const std::string& file : plan.files) sums[file] = provenance["sums"][file].string_or("");
  std::vector<std::string> written_again =
      repair_folder(source, plan, check.provenance, sums, folder);
  loop.finish("");
  return written_again;
}

void check_made_from(std::string_view op, const CheckpointReader& source, const std::string& folder,
                     std::string_view then, std::string_view now) {
  if (then == now) return;
  fail_on_file(EEXIST, folder, op, shown_folder(folder),
               " is complete, and was made from another source than '", shown(source.path(), 200),
               "'; give the one it was made from, or a new folder", or_remove(folder));
}

void fail_finished_otherwise(std::string_view op, const std::string& folder) {
  fail_on_file(EEXIST, folder, op, "'", shown(folder, 200),
               "' is complete, and was made with other options or by another version of octavo; "
               "give the same ones, or a new folder",
               or_remove(folder));
}

std::string finished_note(const std::string& folder, FinishedDepth depth,
                          const std::vector<std::string>& written_again) {
  constexpr std::size_t kShown = 5;
  std::string again;
  for (std::size_t i = 0; i < std::min(kShown, written_again.size()); ++i)
    again += text(i > 0 ? ", '" : "'", shown(written_again[i], 120), "'");
  if (written_again.size() > kShown) again += text(" and ", written_again.size() - kShown, " more");
  return text(
      shown_folder(folder), " was complete: its source and its files are what they were then",
      depth == FinishedDepth::headers ? " by their headers and a sample, " : ", ",
      again.empty() ? "nothing was done" : text("but for ", again, ", missing and written again"),
      ", and nothing measured");
}

}  // namespace octavo
