// Reads a plan file, which is untrusted: with a pull parser, so that memory does not grow with what
// a process has no use for.
#include <fstream>
#include <set>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/hash/text_hash_internal.h"
#include "octavo/base/json/json_reader_internal.h"
#include "octavo/checkpoint/shard_index.h"
#include "octavo/checkpoint/small_file_internal.h"
#include "octavo/pipeline/plan/each_plan_option_internal.h"
#include "octavo/pipeline/plan/file/plan_file.h"
#include "octavo/pipeline/plan/file/plan_file_internal.h"
#include "octavo/pipeline/plan/file/source_fingerprint_internal.h"
#include "octavo/report/choose_format.h"
#include "octavo/version.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "plan";
constexpr std::size_t kMaxShards = 1U << 20;

bool boolean(JsonReader& reader) {
  if (reader.word("true")) return true;
  if (!reader.word("false")) reader.fail_at_next("true or false");
  return false;
}

std::vector<std::string> strings(JsonReader& reader) {
  std::vector<std::string> out;
  reader.begin_array();
  while (reader.next_element()) out.push_back(reader.string());
  return out;
}

class PlanFileReader {
 public:
  PlanFileReader(std::string_view text, std::string_view name) : reader_(text), name_(name) {}

  PlanFile run() {
    std::string key;
    reader_.begin_object();
    while (reader_.next_key(key)) {
      if (!seen_.insert(key).second) reader_.fail(text("key '", shown(key), "' comes twice"));
      member(key);
    }
    reader_.end();
    for (const char* const needed : {"version", "work", "model", "source_fingerprint",
                                     "follow_links", "options", "shards", "tensors"})
      check(seen_.contains(needed), ErrorCode::invalid_argument, kOp, "'", shown(name_, 200),
            "' has no ", needed, ": it is no whole plan; make it again (octavo plan)");
    check(!out_.shards.empty(), ErrorCode::invalid_argument, kOp, "'", shown(name_, 200),
          "' has no file to write; make it again (octavo plan)");
    return std::move(out_);
  }

 private:
  void member(const std::string& key) {
    // The first one says whether the rest can be understood.
    if (seen_.size() == 1 && key != "octavo_plan")
      reader_.fail("the first key is not octavo_plan: it is no plan of octavo");
    if (key == "octavo_plan") return check_version(reader_.integer());
    if (key == "version") {
      out_.version = reader_.string();
    } else if (key == "work") {
      out_.work = reader_.string();
      if (out_.work != kPlanOfQuantize && out_.work != kPlanOfConvert)
        reader_.fail(text("work is '", shown(out_.work), "'; expected ", kPlanOfQuantize, " or ",
                          kPlanOfConvert));
    } else if (key == "model") {
      out_.model = reader_.string();
    } else if (key == "source_fingerprint") {
      out_.source = reader_.string();
    } else if (key == "follow_links") {
      out_.follow_links = boolean(reader_);
    } else if (key == "notes") {
      out_.notes = strings(reader_);
    } else if (key == "options") {
      options();
    } else if (key == "shards") {
      shards();
    } else {
      reader_.skip_value(true);
    }
  }

  void check_version(std::uint64_t number) const {
    if (number != kPlanFileVersion)
      fail(ErrorCode::invalid_argument, kOp, "'", shown(name_, 200), "' is a plan of kind ", number,
           ", and this octavo (", version(), ") knows ", kPlanFileVersion,
           "; make it again (octavo plan)");
  }

  void options() {
    std::set<std::string, std::less<>> seen;
    std::string key;
    reader_.begin_object();
    while (reader_.next_key(key)) {
      if (!seen.insert(key).second) reader_.fail(text("key '", shown(key), "' comes twice"));
      bool known = false;
      each_plan_option(out_.options, [&](const char* name, auto& value) {
        if (key != name) return;
        read(value);
        known = true;
      });
      if (key == "statistics")
        reader_.fail(
            "it uses statistics of inputs, which several processes do not share yet; quantize in "
            "one");
      if (!known) reader_.fail(text("option '", shown(key), "' is not known"));
    }
    if (out_.options.format == kMeasuredFormat)
      reader_.fail(
          "format auto is chosen by all values, which every process would read; quantize "
          "in one");
  }

  void read(std::string& word) { word = reader_.string(); }
  void read(bool& flag) { flag = boolean(reader_); }
  void read(std::uint64_t& number) { number = reader_.integer(); }
  void read(Dialect& dialect) { dialect = parse_dialect(reader_.string()); }
  void read(StaticScaleSource& from) { from = parse_static_scale_source(reader_.string()); }
  void read(std::vector<std::string>& words) { words = strings(reader_); }
  void read(std::vector<std::pair<std::string, std::string>>& pairs) {
    reader_.begin_array();
    while (reader_.next_element()) {
      const std::vector<std::string> pair = strings(reader_);
      if (pair.size() != 2) reader_.fail("recipe_for is no pair of expression and recipe");
      pairs.emplace_back(pair[0], pair[1]);
    }
  }

  void shards() {
    reader_.begin_array();
    while (reader_.next_element()) {
      ShardWork one;
      std::string key;
      std::uint64_t* number = nullptr;
      reader_.begin_object();
      while (reader_.next_key(key)) {
        number = key == "bytes_read"      ? &one.bytes_read
                 : key == "bytes_amax"    ? &one.bytes_amax
                 : key == "bytes_shared"  ? &one.bytes_shared
                 : key == "bytes_written" ? &one.bytes_written
                                          : nullptr;
        if (number != nullptr)
          *number = reader_.integer();
        else if (key == "file")
          one.file = reader_.string();
        else
          reader_.fail(text("key '", shown(key), "' of a file is not known"));
        // Sums over all files stay in range.
        if (number != nullptr && *number > 1ULL << 42) reader_.fail("a file has over 4 TiB");
      }
      if (!is_plain_file_name(one.file)) reader_.fail("a file has no plain name");
      if (out_.shards.size() == kMaxShards) reader_.fail("it has over a million files");
      out_.shards.push_back(std::move(one));
    }
  }

  JsonReader reader_;
  std::string_view name_;
  PlanFile out_;
  std::set<std::string, std::less<>> seen_;
};

}  // namespace

PlanFile parse_plan_file(std::string_view text_of_file, std::string_view name) {
  try {
    return PlanFileReader(text_of_file, name).run();
  } catch (const JsonProblem& problem) {
    fail(ErrorCode::invalid_argument, kOp, "'", shown(name, 200),
         "' is no plan: ", shown(problem.what, 160), " (byte ", problem.at,
         "); make it again (octavo plan)");
  } catch (const Error& error) {
    fail_again(error, kOp, reason_of(error));
  }
}

PlanFile read_plan_file(const std::string& path) {
  try {
    return parse_plan_file(read_small_file(path, kMaxPlanFileBytes), path);
  } catch (const Error& error) {
    fail_again(error, kOp, reason_of(error));
  }
}

bool is_plan_file(const std::string& path) {
  std::string begin(1U << 6, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  std::erase_if(begin, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
  return begin.starts_with("{\"octavo_plan\":");
}

void check_plan_source(const PlanFile& file, std::string_view name,
                       const CheckpointReader& source) {
  check(file.version == version(), ErrorCode::invalid_argument, kOp, "'", shown(name, 200),
        "' was made by octavo ", shown(file.version), ", and this is ", version(),
        ", whose bytes may differ; use that, or make it again (octavo plan)");
  check(file.source == source_fingerprint(source), ErrorCode::invalid_argument, kOp, "'",
        shown(name, 200), "' is the plan of another model than '", shown(source.path(), 200),
        "': the headers of its files differ, or its config; give the model it was made of, or make "
        "it again (octavo plan)");
}

std::string check_plan_file(const std::string& path, const PlanFile& file,
                            const CheckpointReader& source, const QuantizePlan& plan) {
  const std::string content = read_small_file(path, kMaxPlanFileBytes);
  std::size_t at = 0;
  bool same = true;
  write_plan_file(source, plan, {file.work, file.model, file.follow_links, &file.notes},
                  [&](std::string_view piece) {
                    same = same && std::string_view(content).substr(at).starts_with(piece);
                    at += piece.size();
                  });
  check(same && at == content.size(), ErrorCode::invalid_argument, kOp, "'", shown(path, 200),
        "' is not what octavo plans for '", shown(source.path(), 200),
        "' with the options in it: it was changed; make it again (octavo plan) with the options "
        "that you want");
  return plan_identity(file, plan);
}

}  // namespace octavo
