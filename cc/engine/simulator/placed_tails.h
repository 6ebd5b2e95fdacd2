// How long a step goes on at least after each op has finished, under one placement.
//
// The longest way to the end by the durations of ops and of transfers between devices, as if
// nothing had to wait for a device or a channel. Together with the load of each pool it tells
// early that a placement cannot win (see StepCutoff). An object is reused for many placements of
// one problem.

#ifndef HPLACER_ENGINE_SIMULATOR_PLACED_TAILS_H_
#define HPLACER_ENGINE_SIMULATOR_PLACED_TAILS_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

// What PlacedTails needs of a problem; does not change.
struct TailTables {
  explicit TailTables(const Problem& problem);

  std::vector<int32_t> order;      // topological
  std::vector<int32_t> link_rate;  // [L] links of equal latency and rate
  int32_t num_rates = 0;
  std::vector<int64_t> tensor_ns;  // [rates * T]
  std::vector<int64_t> signal_ns;  // [rates]
};

class PlacedTails {
 public:
  PlacedTails(const Problem& problem, const TailTables& tables)
      : problem_(problem), tables_(tables) {}

  // Every op must have a kernel where it is. Returns false if a link is missing.
  bool Compute(const int32_t* placement);

  const std::vector<int64_t>& tail_ns() const { return tail_ns_; }  // [n]
  const std::vector<int64_t>& load_ns() const { return load_ns_; }  // [pools]
  // The longest way through the graph: no step under this placement is shorter.
  int64_t path_ns() const { return path_ns_; }

 private:
  const Problem& problem_;
  const TailTables& tables_;
  std::vector<int64_t> tail_ns_, load_ns_;
  std::vector<int64_t> way_ns_;      // [n] with the op itself
  std::vector<int64_t> control_ns_;  // [controls] from the end of the sources, without signals
  int64_t path_ns_ = 0;
};

// How many edges lead from one device to another without a link.
int64_t CountMissingLinks(const Problem& problem, const int32_t* placement);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SIMULATOR_PLACED_TAILS_H_
