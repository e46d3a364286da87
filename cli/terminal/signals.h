// Signal handling of the program.
#pragma once

namespace octavo::cli {

// Writes beyond a file size limit give an error instead of SIGXFSZ, and Ctrl-C removes temporary
// files. Call once at start.
void prepare_signals();

}  // namespace octavo::cli
