// Precompiled for all tests (cmake/OctavoTest.cmake). A file still includes what it uses: builds
// without precompiled headers must work. Nothing of octavo here: a change would rebuild every test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>
