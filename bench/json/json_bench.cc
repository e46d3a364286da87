// One side of the JSON comparison on one file, for run.py:
//   bench_json tree   SIDE FILE REPEATS   parse to a DOM; seconds and peak memory
//   bench_json header SIDE FILE REPEATS   parse a safetensors header to a list of tensors
//   bench_json write  SIDE FILE REPEATS   dump the parsed DOM
//   bench_json judge  SIDE FILE           accepted or refused, the message, the text written again
// SIDE: octavo, nlohmann (std::map), ordered (nlohmann::ordered_json), sax (nlohmann, header only).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>

#include "bench/json/process_cost.h"
#include "octavo/base/json/json.h"
#include "octavo/safetensors/header.h"

namespace {

struct Entry {
  std::string name{}, dtype{};
  std::vector<std::uint64_t> shape{}, offsets{};
};

template <typename Tree>
std::vector<Entry> entries_from_tree(const std::string& text) {
  const Tree tree = Tree::parse(text);
  std::vector<Entry> out;
  for (const auto& [name, value] : tree.items()) {
    if (name == "__metadata__") continue;
    out.push_back({name, value.at("dtype").template get<std::string>(),
                   value.at("shape").template get<std::vector<std::uint64_t>>(),
                   value.at("data_offsets").template get<std::vector<std::uint64_t>>()});
  }
  return out;
}

// The least that a SAX handler of a header needs: no DOM, a depth of three levels.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return false; }
  bool number_float(double, const std::string&) override { return false; }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool number_unsigned(std::uint64_t value) override {
    if (list_ != nullptr) list_->push_back(value);
    return list_ != nullptr;
  }
  bool string(std::string& value) override {
    if (depth_ == 2 && !in_metadata_) entries.back().dtype = std::move(value);
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 1) {
      in_metadata_ = name == "__metadata__";
      if (!in_metadata_) entries.push_back({.name = std::move(name)});
    } else if (!in_metadata_) {
      list_ = name == "shape"          ? &entries.back().shape
              : name == "data_offsets" ? &entries.back().offsets
                                       : nullptr;
    }
    return true;
  }
  bool start_object(std::size_t) override { return ++depth_ <= 2; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return list_ != nullptr; }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  int depth_ = 0;
  bool in_metadata_ = false;
  std::vector<std::uint64_t>* list_ = nullptr;
};

long header(const std::string& side, const std::string& text, std::uint64_t file_bytes) {
  if (side == "octavo")
    return static_cast<long>(
        octavo::safetensors::parse_header(text, file_bytes, "bench", {}).tensors.size());
  if (side == "nlohmann") return static_cast<long>(entries_from_tree<nlohmann::json>(text).size());
  if (side == "ordered")
    return static_cast<long>(entries_from_tree<nlohmann::ordered_json>(text).size());
  HeaderEvents events;
  if (!nlohmann::json::sax_parse(text, &events)) throw std::runtime_error("refused");
  return static_cast<long>(events.entries.size());
}

long tree(const std::string& side, const std::string& text) {
  if (side == "octavo") return octavo::parse_json(text, "bench").is_object() ? 1 : 0;
  if (side == "nlohmann") return nlohmann::json::parse(text).is_object() ? 1 : 0;
  return nlohmann::ordered_json::parse(text).is_object() ? 1 : 0;
}

void print_line(const char* what, const std::string& text) {
  const auto replace = nlohmann::json::error_handler_t::replace;
  std::printf("{\"%s\": %s, \"bytes\": %zu}\n", what,
              nlohmann::json(text.substr(0, 400)).dump(-1, ' ', true, replace).c_str(),
              text.size());
  std::fflush(stdout);  // what follows may end the process
}

// A line once the text is parsed or refused, another once it is written again.
template <typename Parse, typename Write>
void judge(const std::string& text, Parse parse, Write write) {
  try {
    const auto value = parse(text);
    print_line("accepted", "");
    print_line("written", write(value));
  } catch (const std::exception& error) {
    print_line("refused", error.what());
  }
}

void judge(const std::string& side, const std::string& text) {
  if (side == "octavo") {
    judge(
        text, [](const std::string& from) { return octavo::parse_json(from, "hostile.json"); },
        [](const octavo::Json& value) { return value.dump(0); });
    return;
  }
  judge(
      text, [](const std::string& from) { return nlohmann::ordered_json::parse(from); },
      [](const nlohmann::ordered_json& value) { return value.dump(); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: bench_json tree|header|write|judge SIDE FILE [REPEATS]\n");
    return 2;
  }
  const std::string work = argv[1], side = argv[2], text = bench::contents_of(argv[3]);
  const int repeats = argc > 4 ? std::atoi(argv[4]) : 1;
  try {
    if (work == "judge") {
      judge(side, text);
    } else if (work == "tree") {
      bench::print_cost(repeats, [&] { return tree(side, text); });
    } else if (work == "header") {
      // The file's data begin behind length and header, and end at the last data_offsets.
      const std::size_t end = text.rfind(']'), begin = text.rfind(',', end) + 1;
      const std::uint64_t data = std::strtoull(text.c_str() + begin, nullptr, 10);
      bench::print_cost(repeats, [&] { return header(side, text, 8 + text.size() + data); });
    } else if (side == "octavo") {
      const octavo::Json value = octavo::parse_json(text, "bench");
      bench::print_cost(repeats, [&] { return static_cast<long>(value.dump(2).size()); });
    } else {
      const auto value = nlohmann::json::parse(text);
      bench::print_cost(repeats, [&] { return static_cast<long>(value.dump(2).size()); });
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%.300s\n", error.what());
    return 1;
  }
  return 0;
}
