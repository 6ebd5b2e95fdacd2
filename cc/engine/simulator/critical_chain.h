// The chain of ops and transfers that decides how long a simulated step lasts.
//
// Walks back from the op that finishes last. An op started when its last input arrived, or when its
// device, or another one of its pool, had a slot again, after an op or the work of a transfer; a
// transfer when its source op finished, or when its channel was free again. Whichever happened at
// that very moment is the next link of the chain, inputs before the device.

#ifndef HPLACER_ENGINE_SIMULATOR_CRITICAL_CHAIN_H_
#define HPLACER_ENGINE_SIMULATOR_CRITICAL_CHAIN_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/simulator/placement_scorer.h"

namespace hplacer {

struct CriticalChain {
  std::vector<int32_t> ops;      // the last one first
  std::vector<int32_t> senders;  // those whose transfers are part of it
};

CriticalChain FindCriticalChain(const Problem& problem, const int32_t* placement,
                                const Schedule& schedule);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SIMULATOR_CRITICAL_CHAIN_H_
