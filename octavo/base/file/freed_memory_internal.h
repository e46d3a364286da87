// Memory that was freed and that the C library still holds.
#pragma once

namespace octavo {

// Gives it back to the system, where the C library can be told to. For ends of phases: what one of
// them freed in pieces, from several threads, is often no use to the next, and counts as resident.
void return_freed_memory();

}  // namespace octavo
