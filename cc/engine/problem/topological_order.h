// A topological order of the ops; among ready ops the one with the smallest id comes first.

#ifndef HPLACER_ENGINE_PROBLEM_TOPOLOGICAL_ORDER_H_
#define HPLACER_ENGINE_PROBLEM_TOPOLOGICAL_ORDER_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

std::vector<int32_t> TopologicalOrder(const Problem& problem);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_PROBLEM_TOPOLOGICAL_ORDER_H_
