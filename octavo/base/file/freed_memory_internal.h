// malloc_trim: returns freed memory that the C library still holds to the system.
#pragma once

namespace octavo {

// Does nothing where the C library has no such call. For the end of a phase: small blocks freed by
// several threads are often useless to the next phase, and count as resident.
void return_freed_memory();

}  // namespace octavo
