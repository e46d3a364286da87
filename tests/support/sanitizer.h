// Is this program linked with a sanitizer that has memory of its own? Asked when it runs: one
// object file of a test serves a plain program and a sanitized one (octavo_sanitized_twin in
// cmake/OctavoTest.cmake), so its compiler cannot know.
#pragma once

extern "C" {
// Of the sanitizers' runtimes; null without them.
[[gnu::weak]] void __asan_init();  // NOLINT(bugprone-reserved-identifier)
[[gnu::weak]] void __tsan_init();  // NOLINT(bugprone-reserved-identifier)
}

namespace octavo::support {

inline bool under_sanitizer() { return &__asan_init != nullptr || &__tsan_init != nullptr; }

}  // namespace octavo::support
