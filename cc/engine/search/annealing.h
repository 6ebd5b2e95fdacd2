// Simulated annealing of a placement on one problem, or one level of a multilevel search.
//
// Rounds: each makes a fixed number of moves of the current placement, scores them side by side,
// and goes to the best of those that improve, or else to the first that is good enough. How much
// worse a placement may be is drawn before it is scored (Kirkpatrick et al., "Optimization by
// Simulated Annealing", Science 1983), so that its simulation ends as soon as it is certain to be
// too slow. The other improving moves of the round are tried again on top of it. Kinds of moves
// that paid are made more often. Most moves are the most promising of several (move_screen.h).
//
// What happens depends on the seed and on scores alone, not on time or the number of threads.

#ifndef HPLACER_ENGINE_SEARCH_ANNEALING_H_
#define HPLACER_ENGINE_SEARCH_ANNEALING_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/search/move_maker.h"
#include "engine/search/move_screen.h"
#include "engine/search/search_space.h"
#include "engine/search/search_state.h"
#include "engine/simulator/placement_scorer.h"
#include "engine/simulator/worker_team.h"

namespace hplacer {

struct AnnealingSchedule {
  int64_t work;  // in simulated ops
  // As shares of the makespan; the temperature falls geometrically.
  double begin_temperature, end_temperature;
};

// What may be left out, to see what it gives.
struct AnnealingParts {
  bool screens_moves = true;
  bool scores_orders = true;  // the worst of several orders of launches, and not of one
};

inline int32_t OrdersOf(const AnnealingParts& parts) {
  return parts.scores_orders ? kLaunchOrders : 1;
}

class Annealing {
 public:
  static constexpr int32_t kRoundSize = 16;

  // Keeps references. `seed` tells apart searches of one program.
  Annealing(const SearchSpace& space, WorkerTeam* team, uint64_t seed,
            const AnnealingParts& parts = {});

  // Before a round: how many evaluations it may take, at most `wanted`; none ends the search. After
  // a round: `done` evaluations.
  struct Limits {
    std::function<int32_t(int32_t wanted)> take;
    std::function<void(const std::vector<int32_t>& placement, const Score& score)> on_best;
  };

  // Starts at the placement, which must have every unit on a candidate, and ends with the best one
  // found. Returns its score.
  Score Run(const AnnealingSchedule& schedule, const Limits& limits,
            std::vector<int32_t>* placement);

 private:
  struct Worker {
    std::unique_ptr<PlacementScorer> scorer;
    std::unique_ptr<MoveMaker> mover;
    std::unique_ptr<MoveScreen> screen;
    std::vector<int32_t> placement;
  };
  struct Candidate {
    Move move;
    MoveKind kind;
    Score cutoff, score;
    Schedule schedule;
    int64_t work = 0;
    bool is_scored = false;
  };

  MoveKind DrawKind(RandomStream* random) const;
  Score DrawCutoff(double temperature, RandomStream* random) const;
  void TryCandidate(int32_t index, double temperature, Worker* worker, Candidate* candidate) const;
  void FinishRound(int32_t count);
  int32_t Choose(int32_t count) const;
  void MakeRetries(std::vector<std::pair<Score, int32_t>> improving);

  const SearchSpace& space_;
  const Problem& problem_;
  WorkerTeam* team_;
  uint64_t seed_;
  AnnealingParts parts_;
  int64_t round_ = 0, work_ = 0;
  SearchState state_;
  std::vector<Worker> workers_;
  std::array<Candidate, kRoundSize> candidates_;
  std::vector<Move> retries_;
  std::array<double, kNumMoveKinds> gain_, effort_;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_ANNEALING_H_
