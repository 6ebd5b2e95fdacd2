// Why a placement cannot run: constraints, kernels, links and memory, each as a sentence.
//
// Inputs are a problem, a placement in range, and the peak bytes per device that the simulator
// found (zeros if there is no trace). Pure functions.

#ifndef HPLACER_ENGINE_SIMULATOR_INFEASIBILITY_H_
#define HPLACER_ENGINE_SIMULATOR_INFEASIBILITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

// Every op is on an allowed device with a kernel, and every colocation group on one device.
bool HonoursConstraints(const Problem& problem, const int32_t* placement);

// Every device's peak, peak_bytes[m], is at most its memory.
bool FitsMemory(const Problem& problem, const int64_t* peak_bytes);

// By how much peaks exceed memories, the sum over devices.
int64_t MissingBytes(const Problem& problem, const int64_t* peak_bytes);

// Empty if and only if the placement is feasible. One sentence per kind of violation, which names
// the first op concerned and counts the others; for memory one sentence per device.
std::vector<std::string> DescribeInfeasibility(const Problem& problem,
                                               const std::vector<int32_t>& placement,
                                               const std::vector<int64_t>& peak_bytes);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SIMULATOR_INFEASIBILITY_H_
