// Whether a problem can be placed at all: every unit needs a candidate.

#ifndef HPLACER_ENGINE_PROBLEM_CANDIDATES_H_
#define HPLACER_ENGINE_PROBLEM_CANDIDATES_H_

#include <stdexcept>

#include "engine/problem/problem.h"

namespace hplacer {

// No placement satisfies the constraints. The message names the op and the devices.
class InfeasibleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws InfeasibleError if a unit has no candidate.
void CheckCandidates(const Problem& problem);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_PROBLEM_CANDIDATES_H_
