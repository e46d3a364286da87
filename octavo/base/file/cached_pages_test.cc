#include "octavo/base/file/cached_pages_internal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "octavo/base/file/descriptor_internal.h"

namespace octavo {
namespace {

constexpr std::size_t kBytes = 4U << 20;

std::size_t cached_pages(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  void* const at = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file.number(), 0);
  if (at == MAP_FAILED) return 0;
  std::vector<unsigned char> resident(kBytes / static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  const int failed = mincore(at, kBytes, resident.data());
  munmap(at, kBytes);
  return failed != 0 ? 0
                     : static_cast<std::size_t>(std::count_if(resident.begin(), resident.end(),
                                                              [](auto one) { return one & 1; }));
}

TEST(CachedPages, AreDroppedAlsoWhereTheyWereNotYetWritten) {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "octavo-cached-pages-XXXXXX").string();
  const Descriptor made(mkstemp(pattern.data()));
  ASSERT_GE(made.number(), 0);
  std::ofstream(pattern, std::ios::binary) << std::string(kBytes, 'x');
  struct statfs system {};
  ASSERT_EQ(statfs(pattern.c_str(), &system), 0);
  const std::size_t before = cached_pages(pattern);
  drop_cached(pattern);
  const std::size_t after = cached_pages(pattern);
  std::filesystem::remove(pattern);
  constexpr long kTmpfs = 0x01021994;  // whose pages are the file
  if (system.f_type == kTmpfs) GTEST_SKIP() << "the folder of temporary files is in memory";
  EXPECT_GT(before, 0U);
  // The kernel may keep a few: those that are being written, or were read ahead by another.
  EXPECT_LT(after, before / 4);
}

TEST(CachedPages, OfWhatIsNotThereAreNoError) { drop_cached("/nowhere/at/all"); }

}  // namespace
}  // namespace octavo
