#include "octavo/base/file/freed_memory_internal.h"

#include <cstdlib>  // declares what tells the C libraries apart
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace octavo {

void return_freed_memory() {
#ifdef __GLIBC__
  (void)malloc_trim(0);
#endif
}

}  // namespace octavo
