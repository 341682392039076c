// Launches that repeat an earlier one are not executed again.
#pragma once
#include "host.h"

namespace kw::program {
// Executes a launch, or writes what it would write. `execute` returns whether it ended well.
void repeatable(const Job &, const std::function<bool()> &execute);
// From now on, executes each launch.
void never_repeat();
// The time that launches would have taken that were not executed.
double saved_seconds();
// A clock (launches.cpp).
double seconds();
}  // namespace kw::program
