#include "octavo/backend/cpu/isa/portable/fp4_squares_testing.h"
#include "octavo/backend/cpu/isa/portable/portable_internal.h"

namespace octavo::cpu {
namespace {

TEST(Fp4SquaresPortable, AreThoseOfCodes) { expect_errors_of_codes(portable::fp4_squares); }
TEST(Fp4SquaresPortable, OfEverySize) { expect_every_size(portable::fp4_squares); }

}  // namespace
}  // namespace octavo::cpu
