// Is this program linked with a sanitizer that has memory of its own? Asked when it runs: one
// object file of a test serves a plain program and a sanitized one (octavo_sanitized_twin in
// cmake/OctavoTest.cmake), so its compiler cannot know.
#pragma once

#include <utility>
#include <vector>

extern "C" {
// Of the sanitizers' runtimes; null without them.
[[gnu::weak]] void __asan_init();  // NOLINT(bugprone-reserved-identifier)
[[gnu::weak]] void __tsan_init();  // NOLINT(bugprone-reserved-identifier)
}

namespace octavo::support {

inline bool under_sanitizer() { return &__asan_init != nullptr || &__tsan_init != nullptr; }

// Of cases that differ only in numbers, every fourth under a sanitizer: what they show is for plain
// programs, and a sanitizer is after the code that they run.
template <typename T>
std::vector<T> some_of(std::vector<T> cases) {
  if (!under_sanitizer()) return cases;
  std::vector<T> some;
  for (std::size_t i = 0; i < cases.size(); i += 4) some.push_back(std::move(cases[i]));
  return some;
}

}  // namespace octavo::support
