// Replays a corpus through a fuzz target without a fuzzer: every file of the given folders, all
// prefixes of each file, and all its mutations by one byte, where parsers break most.
//   x_fuzz_replay [--every N] FOLDER...    with --every, the files and one of N of what is near
//   them
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

// Every value for the first bytes, every 17th for the next, and longer files only as they are.
constexpr std::size_t kThorough = 32, kMaxMutated = 256;

// One of how many mutations is run, and how many were generated so far.
long every = 1, neighbours = 0;

void run(const std::vector<std::uint8_t>& input, long& runs) {
  LLVMFuzzerTestOneInput(input.data(), input.size());
  ++runs;
}

void run_neighbour(const std::vector<std::uint8_t>& input, long& runs) {
  if (neighbours++ % every == 0) run(input, runs);
}

void run_around(const std::vector<std::uint8_t>& input, long& runs) {
  run(input, runs);
  const std::size_t length = std::min(input.size(), kMaxMutated);
  for (std::size_t cut = 0; cut < length; ++cut) {
    run_neighbour({input.begin(), input.begin() + static_cast<std::ptrdiff_t>(cut)}, runs);
  }
  std::vector<std::uint8_t> changed = input;
  for (std::size_t i = 0; i < length; ++i) {
    for (int byte = 0; byte < 256; byte += i < kThorough ? 1 : 17) {
      changed[i] = static_cast<std::uint8_t>(byte);
      run_neighbour(changed, runs);
    }
    changed[i] = input[i];
  }
}

}  // namespace

int main(int argc, char** argv) {
  long files = 0, runs = 0;
  int first = 1;
  if (argc > 2 && std::string_view(argv[1]) == "--every") {
    every = std::strtol(argv[2], nullptr, 10);
    first = 3;
    if (every < 1) {
      std::fprintf(stderr, "--every %s: expected a number of 1 or more\n", argv[2]);
      return 2;
    }
  }
  for (int i = first; i < argc; ++i) {
    std::vector<std::filesystem::path> paths;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i], error))
      paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const std::filesystem::path& path : paths) {
      std::ifstream file(path, std::ios::binary);
      const std::vector<std::uint8_t> input{std::istreambuf_iterator<char>(file), {}};
      run_around(input, runs);
      ++files;
    }
  }
  std::printf("%ld files, %ld inputs\n", files, runs);
  return files > 0 ? 0 : 1;  // an empty corpus is a mistake of the caller
}
