// What the program does with signals.
#pragma once

namespace octavo::cli {

// Writes beyond a file size limit give an error instead of a signal, and Ctrl-C removes temporary
// files. Called once at start.
void prepare_signals();

}  // namespace octavo::cli
