// Checks at a simulation's end that all processes have released their resources.
#pragma once

#include "tests/simulation/world.h"

namespace cell {

// Reports everything that is left over as a violation: connections, waiting calls and writes, uploads, arriving
// regions, open files, and files that nobody needs. REQUIRES: all clients are gone, and the cluster is quiet.
void CheckAccount(World* world);

}  // namespace cell
