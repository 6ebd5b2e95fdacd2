// Scores placements of one problem for a search: quickly, and not further than needed.
//
// A score orders all placements: first those that lack the fewest links, then those that overflow
// the memories by the fewest bytes, then by the step time, always that of the simulator. With a
// cutoff a placement whose step lasts as long or longer is given up as soon as that is certain.
//
// Keeps references to the problem and the tables; one object per thread.

#ifndef HPLACER_ENGINE_SIMULATOR_PLACEMENT_SCORER_H_
#define HPLACER_ENGINE_SIMULATOR_PLACEMENT_SCORER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "engine/problem/problem.h"
#include "engine/simulator/placed_tails.h"
#include "engine/simulator/simulator.h"

namespace hplacer {

struct Score {
  int64_t missing_links = std::numeric_limits<int64_t>::max();
  int64_t missing_bytes = 0;  // the sum over devices
  int64_t makespan_ns = 0;

  bool feasible() const { return missing_links == 0 && missing_bytes == 0; }
  bool operator<(const Score& other) const { return Key() < other.Key(); }

 private:
  std::tuple<int64_t, int64_t, int64_t> Key() const {
    return {missing_links, missing_bytes, makespan_ns};
  }
};

// The times of one simulated step.
struct Schedule {
  std::vector<int64_t> start_ns, finish_ns;  // [n]
  std::vector<Transfer> transfers;
  std::vector<int32_t> order;  // as they start: ops, and ~i for transfer i
};

class PlacementScorer {
 public:
  virtual ~PlacementScorer() = default;

  // Units must be on candidates, all ops of a unit on one. Returns false if the score is `cutoff`
  // or worse, else writes it, and the schedule if one is asked for.
  virtual bool Run(const int32_t* placement, const Score& cutoff, Score* score,
                   Schedule* schedule) = 0;

  // Of the last order of the last run, if it was simulated to its end.
  virtual const std::vector<int64_t>& peak_bytes() const = 0;  // [m]

  // Ops that the last run simulated.
  int64_t work() const { return work_; }

 protected:
  int64_t work_ = 0;
};

std::unique_ptr<PlacementScorer> MakePlacementScorer(const Problem& problem,
                                                     const TailTables& tables,
                                                     int32_t launch_orders = kLaunchOrders);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SIMULATOR_PLACEMENT_SCORER_H_
