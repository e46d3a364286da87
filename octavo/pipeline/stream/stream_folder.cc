#include <optional>

#include "octavo/base/error.h"
#include "octavo/pipeline/output/folder_files_internal.h"
#include "octavo/pipeline/stream/source_deletion_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

}  // namespace

std::string source_hash(const CheckpointReader& source, const QuantizePlan& plan,
                        const std::vector<ActionResult>& results) {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < plan.actions.size(); ++i) {
    const auto& entry = *source.tensors()[plan.actions[i].tensor].entry;
    const std::uint64_t name =
        text_hash(text(entry.name, " ", safetensors::stored_name(entry.type)));
    // Hashes of a tensor's parts are summed before they are mixed with its name.
    std::uint64_t content = results[i].content;
    while (i + 1 < plan.actions.size() && plan.actions[i + 1].tensor == plan.actions[i].tensor)
      content += results[++i].content;
    hash += text_hash(hex_of(content), name);
  }
  return hex_of(hash);
}

std::vector<ActionResult> stream_into_folder(const CheckpointReader& source,
                                             const QuantizePlan& plan,
                                             const QuantizeCheckpointOptions& options,
                                             const WorkIdentity& identity, const std::string& out,
                                             const MakeProvenance& provenance,
                                             std::vector<std::string>* shards_left) {
  OutputFolder folder(out, source, identity, options.resume);
  std::optional<SourceDeletion> deletion;
  try {
    if (options.delete_source) {
      check(!folder.has_touched_source(), ErrorCode::invalid_argument, kOp, "files of '",
            shown(source.path(), 200),
            "' have other sizes or times than when the work began: their headers and a sample are "
            "the same, but a value between those may not be, so that nothing is deleted; go on "
            "without option delete_source");
      deletion.emplace(source, plan, out);
    }
    std::vector<ActionResult> results =
        stream_checkpoint(source, plan, options,
                          {.folder = &folder,
                           .file = {},
                           .source = identity.times,
                           .deletion = deletion ? &*deletion : nullptr});
    write_folder_files(
        source, plan, [&] { return provenance(results, folder.sample()); }, folder.sums(), out);
    if (deletion) deletion->keep_headers();
    folder.remove_record();
    if (deletion) {
      const std::vector<std::string> left = delete_kept_shards(source, out, plan.options.target);
      if (shards_left != nullptr) *shards_left = left;
    } else {
      remove_kept_headers(out);  // of an earlier call, which had the option
    }
    return results;
  } catch (const Error& error) {
    // Keeps what a resume can use; removes what would only make it fail.
    // What was made of a deleted shard is all that there is of it.
    const bool useless = error.code() != ErrorCode::io && error.code() != ErrorCode::unsupported;
    folder.abandon(useless && !(deletion && deletion->has_deleted()));
    throw;
  }
}

}  // namespace octavo
