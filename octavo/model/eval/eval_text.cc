#include "octavo/model/eval/eval_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <system_error>

#include "octavo/base/error.h"
#include "octavo/base/file/descriptor_internal.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/json/json_text_internal.h"

namespace octavo {
namespace {

// A text of more bytes has more tokens than an evaluation could read in a week. What is no file may
// have no end, and is in memory before that is seen.
constexpr std::uintmax_t kMaxTextBytes = std::uintmax_t{4} << 30,
                         kMaxPipeBytes = std::uintmax_t{1} << 28;

bool is_terminal(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  return file.number() >= 0 && isatty(file.number()) != 0;
}

std::string whole_content(const std::string& op, const std::string& path) {
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::status(path, failed);
  if (!std::filesystem::exists(status))
    fail_on_file(ENOENT, path, op, "could not open '", shown(path, 400),
                 "': No such file or directory; expected a text");
  if (std::filesystem::is_directory(status))
    fail_on_file(EISDIR, path, op, "'", shown(path, 400), "' is a folder; expected a text");
  // A terminal is one, too, on which a text may be typed.
  check(!std::filesystem::is_character_file(status) || is_terminal(path),
        ErrorCode::invalid_argument, op, "'", shown(path, 400),
        "' is a device; expected a text, in a file or from a pipe");
  const bool is_file = std::filesystem::is_regular_file(status);
  if (is_file) {
    const std::uintmax_t size = std::filesystem::file_size(path, failed);
    check(failed || size <= kMaxTextBytes, ErrorCode::invalid_argument, op, "'", shown(path, 400),
          "' has ", std::uint64_t{size}, " bytes; expected a text of at most ",
          std::uint64_t{kMaxTextBytes}, "; cut it");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string content;
  const std::uintmax_t most = is_file ? kMaxTextBytes : kMaxPipeBytes;
  for (char piece[65536]; file.good() && content.size() <= most;) {
    file.read(piece, sizeof piece);
    content.append(piece, static_cast<std::size_t>(file.gcount()));
  }
  check(content.size() <= most, ErrorCode::invalid_argument, op, "'", shown(path, 400),
        "' has more than ", std::uint64_t{most},
        is_file ? " bytes; expected a text of at most that size; cut it"
                : " bytes and is no file; expected a text that ends before that; write it to a "
                  "file first, which may be larger");
  if (!file.eof())
    fail_on_file(errno == 0 ? EIO : errno, path, op, "could not read '", shown(path, 400),
                 "': ", std::strerror(errno == 0 ? EIO : errno));
  check(!content.empty(), ErrorCode::invalid_argument, op, "'", shown(path, 400),
        "' is empty; expected a text of two tokens at least");
  return content;
}

}  // namespace

EvalText read_text_file(const std::string& op, const std::string& path) {
  EvalText text{.name = path, .content = whole_content(op, path)};
  const std::size_t bad = find_bad_utf8(text.content);
  check(bad == std::string_view::npos, ErrorCode::invalid_argument, op, "'", shown(path, 400),
        "' is no UTF-8 at byte ", bad, "; expected a text; convert it (iconv -t UTF-8)");
  return text;
}

EvalText read_ids_file(const std::string& op, const std::string& path) {
  const std::string content = whole_content(op, path);
  EvalText text{.name = path, .ids = std::vector<std::int32_t>()};
  const char* const begin = content.data();
  const char* const end = begin + content.size();
  for (const char* at = begin; at != end;) {
    if (std::strchr(" \t\r\n,[]", *at) != nullptr && *at != '\0') {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    const auto [after, error] = std::from_chars(at, end, id);
    const bool ends = after == end || (*after != '\0' && std::strchr(" \t\r\n,[]", *after));
    check(error == std::errc{} && ends && id >= 0, ErrorCode::invalid_argument, op, "'",
          shown(path, 400), "' has '",
          shown(std::string_view(at, static_cast<std::size_t>(end - at)), 16), "' at byte ",
          static_cast<std::int64_t>(at - begin),
          "; expected ids of tokens: whole numbers from 0 on, with white space or commas between");
    text.ids->push_back(id);
    at = after;
  }
  check(!text.ids->empty(), ErrorCode::invalid_argument, op, "'", shown(path, 400),
        "' has none; expected ids of two tokens at least");
  return text;
}

}  // namespace octavo
