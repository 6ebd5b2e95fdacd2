// How long a step takes at least because its devices have so much to compute and to hold.
//
// Prices. Give each class c of devices a price w_c >= 0 per nanosecond of work and a price
// v_c >= 0 per persistent byte. Within a feasible placement of makespan M, the devices of a pool
// together work at most slots * M, and each holds at most its memory, so that with W the sum over
// pools of slots * the largest w of their devices, and V the sum of v * memory over devices,
//
//   W * M + V >= sum over units u on classes c of  w_c * cost(u, c) + v_c * bytes(u)
//             >= sum over units of the least such price among the unit's classes,
//
// whatever the prices are (`price_search.h` finds good ones). `Certify` computes in integers.
//
// Windows. Let A be ops that start at h at the earliest and have a tail of t at least, wherever
// they are (`path_bound.h`). They are worked on between h and M - t, so the inequality holds for
// M - h - t and the work of A alone. The sets A looked at are those of all heads h with some
// quantiles of the tails.
//
// Forced sets. For a set of devices S to which some units are confined, all devices of S cost the
// same and all others nothing: the prices that are best when S is what is short. If the units
// confined to S have more persistent bytes than S has memory, no placement is feasible.

#ifndef HPLACER_ENGINE_BOUNDS_LOAD_BOUND_H_
#define HPLACER_ENGINE_BOUNDS_LOAD_BOUND_H_

#include <cstdint>
#include <vector>

#include "engine/bounds/device_classes.h"
#include "engine/bounds/path_bound.h"
#include "engine/bounds/price_search.h"
#include "engine/problem/problem.h"

namespace hplacer {

class LoadBound {
 public:
  // Keeps references to the problem and the classes. Every unit must have a class and every op a
  // head and a tail on one.
  LoadBound(const Problem& problem, const DeviceClasses& classes, const PathBound& paths);

  // The bound in ns that these prices prove, rounded up, since a makespan is an integer.
  int64_t Certify(const Prices& prices) const;

 private:
  using Wide = __int128;

  Wide LeastPrice(const Prices& prices, int32_t unit, const int64_t* load_ns) const;
  int64_t SweepWindows(const Prices& prices, Wide per_makespan_ns, Wide constant,
                       int64_t min_tail_ns) const;

  const Problem& problem_;
  const DeviceClasses& classes_;
  std::vector<int64_t> head_ns_, tail_ns_;  // [n] least over the op's classes
  std::vector<int32_t> by_head_;            // ops by falling head
  std::vector<int64_t> min_tails_ns_;       // quantiles of the tails, rising, distinct, with 0
};

// A set of classes to which some unit is confined. Sums are over all units confined to the set or
// to a part of it.
struct ForcedSet {
  std::vector<bool> classes;
  int64_t load_ns = 0;  // each unit on its best class, divided by the set's slots, rounded up
  int64_t persistent_bytes = 0;
  int64_t memory_bytes = 0;
};

// By falling load; at most 256 distinct sets are looked at.
std::vector<ForcedSet> ForcedSets(const Problem& problem, const DeviceClasses& classes);

// One unit of money per nanosecond on every device of the set, nothing elsewhere.
Prices UniformPrices(const std::vector<bool>& classes);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_BOUNDS_LOAD_BOUND_H_
