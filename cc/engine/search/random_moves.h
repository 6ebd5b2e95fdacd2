// Random moves of a placement, for searches that judge by something else than one simulated step:
// the moves of annealing, of all kinds alike.

#ifndef HPLACER_ENGINE_SEARCH_RANDOM_MOVES_H_
#define HPLACER_ENGINE_SEARCH_RANDOM_MOVES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/search/move_maker.h"
#include "engine/search/move_screen.h"
#include "engine/search/search_space.h"
#include "engine/search/search_state.h"
#include "engine/simulator/placement_scorer.h"

namespace hplacer {

class RandomMoves {
 public:
  // Keeps a reference to the problem. `clusterings`: labels from 0 per unit, whose clusters may
  // move as one. Throws InfeasibleError if a unit has no candidate, ProblemError for a malformed
  // clustering.
  RandomMoves(const Problem& problem, const std::vector<std::vector<int32_t>>& clusterings);

  // Placements that are one move away from `placement`, at most `count`: a move that changes
  // nothing is left out. Throws ProblemError for a malformed placement.
  std::vector<std::vector<int32_t>> Draw(const std::vector<int32_t>& placement, int32_t count,
                                         uint64_t seed);

 private:
  const Problem& problem_;
  SearchSpace space_;
  std::unique_ptr<PlacementScorer> scorer_;
  MoveMaker mover_;
  MoveScreen screen_;
  SearchState state_;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_RANDOM_MOVES_H_
