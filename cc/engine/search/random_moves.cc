#include "engine/search/random_moves.h"

#include <algorithm>

#include "engine/problem/candidates.h"
#include "engine/search/random_stream.h"
#include "engine/search/search_levels.h"
#include "engine/search/unit_clusters.h"

namespace hplacer {
namespace {

const Problem& Checked(const Problem& problem) {
  CheckCandidates(problem);
  return problem;
}

}  // namespace

RandomMoves::RandomMoves(const Problem& problem,
                         const std::vector<std::vector<int32_t>>& clusterings)
    : problem_(Checked(problem)),
      space_(problem),
      scorer_(MakePlacementScorer(problem, space_.tables())),
      mover_(space_),
      screen_(space_, &mover_) {
  for (const std::vector<int32_t>& label : clusterings) {
    CheckClustering(problem, label);
    if (!label.empty()) {
      space_.AddClusters(label, 1 + *std::max_element(label.begin(), label.end()));
    }
  }
}

std::vector<std::vector<int32_t>> RandomMoves::Draw(const std::vector<int32_t>& placement,
                                                    int32_t count, uint64_t seed) {
  CheckPlacement(problem_, placement);
  std::vector<std::vector<int32_t>> drawn;
  if (problem_.num_units() == 0) return drawn;
  state_.Enter(problem_, OnCandidates(problem_, placement), scorer_.get());
  Move move;
  for (int32_t i = 0; i < count; ++i) {
    RandomStream random(seed, 0, static_cast<uint64_t>(i));
    screen_.Make(state_, static_cast<MoveKind>(random.Below(kNumMoveKinds)), &random, &move);
    if (move.empty()) continue;
    drawn.push_back(state_.placement);
    PlaceMove(problem_, move, &drawn.back());
  }
  return drawn;
}

}  // namespace hplacer
