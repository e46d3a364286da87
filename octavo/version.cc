#include "octavo/version.h"

namespace octavo {

const char* version() noexcept { return OCTAVO_VERSION_STRING; }

}  // namespace octavo
