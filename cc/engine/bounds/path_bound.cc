#include "engine/bounds/path_bound.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/problem/topological_order.h"

namespace hplacer {
namespace {

// What one op gets from another: `transfers` tensors of `bytes` in all, of which so many are not
// empty, or a signal.
struct Arc {
  int32_t op;
  int32_t transfers;
  int32_t filled;
  int64_t bytes;
};

struct Arcs {
  std::vector<int64_t> ptr;  // [n + 1]
  std::vector<Arc> items;
};

Arcs IncomingArcs(const Problem& problem) {
  Arcs arcs;
  arcs.ptr.push_back(0);
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    const auto first = static_cast<int64_t>(arcs.items.size());
    for (int32_t r = problem.read_ptr()[op]; r < problem.read_ptr()[op + 1]; ++r) {
      const int32_t tensor = problem.edge_tensor()[problem.read_edges()[r]];
      const int32_t src = problem.tensor_op()[tensor];
      const bool first_of_src =
          static_cast<int64_t>(arcs.items.size()) == first || arcs.items.back().op != src;
      if (first_of_src) arcs.items.push_back({src, 0, 0, 0});
      const int64_t bytes = problem.spec().output_bytes[tensor];
      ++arcs.items.back().transfers;
      arcs.items.back().filled += bytes > 0;
      arcs.items.back().bytes += bytes;
    }
    const auto data_end = static_cast<int64_t>(arcs.items.size());
    const auto by_op = [](const Arc& arc, int32_t src) { return arc.op < src; };
    for (int32_t c = problem.control_in_ptr()[op]; c < problem.control_in_ptr()[op + 1]; ++c) {
      const int32_t src = problem.control_in()[c];
      const auto end = arcs.items.begin() + data_end;
      const auto data = std::lower_bound(arcs.items.begin() + first, end, src, by_op);
      if (data == end || data->op != src) arcs.items.push_back({src, 1, 0, 0});
    }
    arcs.ptr.push_back(static_cast<int64_t>(arcs.items.size()));
  }
  return arcs;
}

Arcs Reversed(const Arcs& arcs) {
  const auto n = static_cast<int32_t>(arcs.ptr.size()) - 1;
  Arcs result;
  result.ptr.assign(n + 1, 0);
  for (const Arc& arc : arcs.items) ++result.ptr[arc.op + 1];
  std::partial_sum(result.ptr.begin(), result.ptr.end(), result.ptr.begin());
  result.items.resize(arcs.items.size());
  std::vector<int64_t> next = result.ptr;
  for (int32_t op = 0; op < n; ++op) {
    for (int64_t i = arcs.ptr[op]; i < arcs.ptr[op + 1]; ++i) {
      const Arc& arc = arcs.items[i];
      result.items[next[arc.op]++] = {op, arc.transfers, arc.filled, arc.bytes};
    }
  }
  return result;
}

// A neighbour of an op as seen from the op's device. `here_ns` is kNever if it cannot be there.
struct Neighbour {
  int64_t head_ns;
  int64_t cost_ns;
  int64_t here_ns;  // head + cost on the op's device
  int64_t away_ns;  // until it has arrived from another device
};

// The largest of head + (cost of those with that head or a later one) / slots among the first
// `count` neighbours; `by_head` lists all of them by falling head.
int64_t SerialNs(const std::vector<Neighbour>& items, const std::vector<int32_t>& by_head,
                 int32_t count, int32_t slots) {
  int64_t best = 0, load = 0;
  for (int32_t i : by_head) {
    if (i >= count) continue;
    load = AddNs(load, items[i].cost_ns);
    best = std::max({best, items[i].here_ns, AddNs(items[i].head_ns, CeilDiv(load, slots))});
  }
  return best;
}

// When all neighbours have arrived at the earliest; sorts them.
int64_t ArrivalNs(int32_t slots, std::vector<Neighbour>* neighbours,
                  std::vector<int32_t>* by_head) {
  std::vector<Neighbour>& items = *neighbours;
  const auto n = static_cast<int32_t>(items.size());
  if (n == 0) return 0;
  if (n == 1) return std::min(items[0].here_ns, items[0].away_ns);
  const auto falling_away = [](const Neighbour& a, const Neighbour& b) {
    return a.away_ns > b.away_ns;
  };
  std::sort(items.begin(), items.end(), falling_away);
  // The first `least` must be here, and the one after the first `most` cannot.
  int32_t least = 0, most = 0;
  while (least < n && items[least].away_ns == kNever) ++least;
  while (most < n && items[most].here_ns != kNever) ++most;
  if (least > most) return kNever;
  by_head->resize(n);
  std::iota(by_head->begin(), by_head->end(), 0);
  std::sort(by_head->begin(), by_head->end(),
            [&](int32_t a, int32_t b) { return items[a].head_ns > items[b].head_ns; });
  const auto away = [&](int32_t count) { return count < n ? items[count].away_ns : 0; };
  const auto value = [&](int32_t count) {
    return std::max(SerialNs(items, *by_head, count, slots), away(count));
  };
  // One of the two rises with the count and the other falls: their crossing is the minimum.
  int32_t low = least, high = most;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (SerialNs(items, *by_head, middle, slots) >= away(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low > least ? std::min(value(low), value(low - 1)) : value(low);
}

enum class Direction { kForward, kBackward };

// Heads in the given direction; backward they are tails.
class Sweep {
 public:
  Sweep(const Problem& problem, const DeviceClasses& classes, const Arcs& arcs, Direction direction)
      : problem_(problem), classes_(classes), arcs_(arcs), direction_(direction) {}

  std::vector<int64_t> Run(const std::vector<int32_t>& order) {
    const int32_t count = classes_.num_classes();
    head_ns_.assign(static_cast<int64_t>(problem_.num_ops()) * count, kNever);
    const auto visit = [&](int32_t op) {
      for (int32_t c = 0; c < count; ++c) {
        if (!classes_.Allows(problem_.units()[op], c)) continue;
        neighbours_.clear();
        for (int64_t i = arcs_.ptr[op]; i < arcs_.ptr[op + 1]; ++i) {
          neighbours_.push_back(See(op, c, arcs_.items[i]));
        }
        head_ns_[Index(op, c)] = ArrivalNs(classes_.Slots(c), &neighbours_, &by_head_);
      }
    };
    if (direction_ == Direction::kForward) {
      std::for_each(order.begin(), order.end(), visit);
    } else {
      std::for_each(order.rbegin(), order.rend(), visit);
    }
    return std::move(head_ns_);
  }

 private:
  int64_t Index(int32_t op, int32_t c) const {
    return static_cast<int64_t>(op) * classes_.num_classes() + c;
  }

  Neighbour See(int32_t op, int32_t c, const Arc& arc) const {
    Neighbour result{head_ns_[Index(arc.op, c)], 0, kNever, kNever};
    if (result.head_ns != kNever) {
      result.cost_ns = classes_.CostNs(arc.op, c);
      result.here_ns = AddNs(result.head_ns, result.cost_ns);
    }
    if (problem_.units()[op] == problem_.units()[arc.op]) return result;
    for (int32_t a = 0; a < classes_.num_classes(); ++a) {
      const int64_t head_ns = head_ns_[Index(arc.op, a)];
      if (head_ns == kNever || (a == c && classes_.Size(c) == 1)) continue;
      const bool is_forward = direction_ == Direction::kForward;
      const int64_t transfer_ns = classes_.MinTransferNs(is_forward ? a : c, is_forward ? c : a,
                                                         arc.transfers, arc.filled, arc.bytes);
      const int64_t there_ns = AddNs(head_ns, classes_.CostNs(arc.op, a));
      result.away_ns = std::min(result.away_ns, AddNs(there_ns, transfer_ns));
    }
    return result;
  }

  const Problem& problem_;
  const DeviceClasses& classes_;
  const Arcs& arcs_;
  const Direction direction_;
  std::vector<int64_t> head_ns_;
  std::vector<Neighbour> neighbours_;
  std::vector<int32_t> by_head_;
};

}  // namespace

PathBound BoundPaths(const Problem& problem, const DeviceClasses& classes) {
  const Arcs incoming = IncomingArcs(problem);
  const Arcs outgoing = Reversed(incoming);
  const std::vector<int32_t> order = TopologicalOrder(problem);
  return {Sweep(problem, classes, incoming, Direction::kForward).Run(order),
          Sweep(problem, classes, outgoing, Direction::kBackward).Run(order)};
}

}  // namespace hplacer
