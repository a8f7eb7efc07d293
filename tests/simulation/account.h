// The account at a simulation's end: what every process had taken is back where it belongs.
#pragma once

#include "tests/simulation/world.h"

namespace cell {

// After all clients have gone, of a cluster that is quiet. What is left over is a violation: connections, calls and
// writes that wait, uploads, regions on their way, files that are open, and files that nobody needs.
void CheckAccount(World* world);

}  // namespace cell
