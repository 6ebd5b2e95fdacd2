// The chain of ops and transfers that decides how long a simulated step lasts.
//
// Walks back from the op that finishes last. An op started when its last input arrived, or when its
// device had a slot again; a transfer when its source op finished, or when its channel was free
// again. Whichever happened at that very moment is the next link of the chain, inputs before the
// device.

#ifndef HPLACER_ENGINE_CRITICAL_CHAIN_H_
#define HPLACER_ENGINE_CRITICAL_CHAIN_H_

#include <cstdint>
#include <vector>

#include "engine/problem.h"
#include "engine/simulator.h"

namespace hplacer {

// Writes the ops of the chain, the last one first, and those of them whose transfers are on it.
void FindCriticalChain(const Problem& problem, const int32_t* placement,
                       const std::vector<int64_t>& start_ns, const std::vector<int64_t>& finish_ns,
                       const std::vector<Transfer>& transfers, std::vector<int32_t>* ops,
                       std::vector<int32_t>* senders);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_CRITICAL_CHAIN_H_
