// Random graphs on three devices of equal kind that share channels.

#ifndef HPLACER_TESTS_CC_SEARCH_RANDOM_PROBLEM_H_
#define HPLACER_TESTS_CC_SEARCH_RANDOM_PROBLEM_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/search/random_stream.h"
#include "problem_builder.h"

namespace hplacer {

constexpr int32_t kDevices = 3;

// `restricted`: some ops may run on one or two devices alone, and some pairs of the others must
// share one.
inline Problem RandomProblem(uint64_t seed, int32_t num_ops, bool restricted = false) {
  RandomStream random(seed);
  ProblemBuilder b;
  for (int32_t d = 0; d < kDevices; ++d) b.Device(1 + random.Below(2), 1'000'000);
  for (int32_t src = 0; src < kDevices; ++src) {
    for (int32_t dst = 0; dst < kDevices; ++dst) {
      if (src != dst) b.Link(src, dst, "from" + std::to_string(src), random.Below(5));
    }
  }
  std::vector<int32_t> free;
  for (int32_t op = 0; op < num_ops; ++op) {
    b.Op(random.Below(50), {random.Below(60)});
    if (!restricted) continue;
    const int32_t choice = random.Below(10);
    if (choice == 0) b.Allow({random.Below(kDevices)});
    if (choice == 1) b.Allow({0, 1});
    if (choice > 1) free.push_back(op);
  }
  for (size_t i = 0; i + 9 < free.size(); i += 10) b.Colocate({free[i], free[i + 9]});
  for (int32_t op = 1; op < num_ops; ++op) {
    for (int32_t i = 0; i < 2; ++i) {
      const int32_t src = std::max(0, op - 1 - random.Below(6));
      if (random.Below(8) == 0) {
        b.Control(src, op);
      } else {
        b.Edge(src, 0, op);
      }
    }
  }
  return b.Build();
}

inline std::vector<int32_t> Candidates(const Problem& problem, int32_t unit) {
  return {problem.candidates().begin() + problem.candidate_ptr()[unit],
          problem.candidates().begin() + problem.candidate_ptr()[unit + 1]};
}

// Every unit on one of its candidates.
inline std::vector<int32_t> RandomPlacement(const Problem& problem, uint64_t seed) {
  RandomStream random(seed, 1, 1);
  std::vector<int32_t> device(problem.num_units()), placement(problem.num_ops());
  for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
    const std::vector<int32_t> candidates = Candidates(problem, unit);
    device[unit] = candidates[random.Below(static_cast<int64_t>(candidates.size()))];
  }
  for (size_t op = 0; op < placement.size(); ++op) placement[op] = device[problem.units()[op]];
  return placement;
}

}  // namespace hplacer

#endif  // HPLACER_TESTS_CC_SEARCH_RANDOM_PROBLEM_H_
