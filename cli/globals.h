// Options that every subcommand has.
#pragma once

namespace octavo::cli {

struct Globals {
  bool json = false;
};

}  // namespace octavo::cli
