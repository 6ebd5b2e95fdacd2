// Simulates a problem that a test has built.

#ifndef HPLACER_TESTS_CC_SIMULATOR_RUN_H_
#define HPLACER_TESTS_CC_SIMULATOR_RUN_H_

#include <cstdint>
#include <vector>

#include "engine/simulator/simulator.h"
#include "problem_builder.h"

namespace hplacer {

inline StepTrace Run(const ProblemBuilder& b, const std::vector<int32_t>& placement) {
  return Simulate(b.Build(), placement);
}

}  // namespace hplacer

#endif  // HPLACER_TESTS_CC_SIMULATOR_RUN_H_
