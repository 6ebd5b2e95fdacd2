// What a step takes at least if two units that share data are on different devices.
//
// Input is a problem. An edge from op i to op j of another unit is cut if they are on different
// devices. Then j waits for a transfer, so that with the heads and tails of `path_bound.h`
//
//   makespan >= Head(i, a) + cost(i, a) + MinTransferNs(a, b) + cost(j, b) + Tail(j, b)
//
// if i is on class a and j on class b; the least over a and b is the edge's price. Now take any B.
// A feasible placement either cuts an edge of price B or more, and takes at least B; or it cuts
// none of these, and then it is a placement of the problem in which such edges join their units, so
// that any lower bound of that problem holds. So for every B
//
//   makespan >= min(B, lower bound of the problem with edges of price >= B joined).
//
// Large B join little and are weak on the right, small B are weak on the left: `lower_bound.cc`
// bisects over the prices. A joined unit runs on one device, and that is how serial work is weighed
// against the cost of a cut.

#ifndef HPLACER_ENGINE_BOUNDS_CUT_BOUND_H_
#define HPLACER_ENGINE_BOUNDS_CUT_BOUND_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

class CutPrices {
 public:
  // Keeps a reference to the problem, which must not be proved infeasible.
  explicit CutPrices(const Problem& problem);

  // The distinct prices above a bound, rising: no other B gives a better bound than the next one.
  std::vector<int64_t> Above(int64_t bound_ns) const;

  // The problem in which edges of this price or more, and those that cannot be cut, join their
  // units to colocation groups.
  Problem Join(int64_t price_ns) const;

 private:
  struct Edge {
    int32_t src_unit, dst_unit;
    int64_t price_ns;  // kNever: it cannot be cut
  };

  const Problem& problem_;
  std::vector<Edge> edges_;  // between different units
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_BOUNDS_CUT_BOUND_H_
