#include "tf/removed_ops.h"

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "tensorflow/core/grappler/op_types.h"

namespace hplacer {
namespace {

using tensorflow::Graph;
using tensorflow::Node;

constexpr size_t kMostBetween = 1000;

// Op types that Grappler keeps although nobody reads them.
bool IsKept(const Node& node) {
  static const auto* const op_types = new absl::flat_hash_set<std::string_view>(
      {"Assert", "CheckNumerics", "ControlTrigger", "TPUCompile", "TPUExecute", "_Arg",
       "_ParallelConcatUpdate", "_Retval"});
  return op_types->contains(node.type_string()) ||
         absl::StartsWith(node.type_string(), "Submodel") || node.IsControlFlow() ||
         !tensorflow::grappler::IsFreeOfSideEffect(node.def());
}

// Nodes are known by their place in the order.
class Removal {
 public:
  Removal(const Step& step, const std::vector<bool>& is_static, const std::vector<bool>& is_fixed,
          const std::vector<int32_t>& order)
      : step_(step),
        order_(order),
        place_(order.size()),
        is_idle_(order.size(), false),
        is_removed_(order.size(), false),
        neighbour_(order.size(), -1),
        reads_(order.size()),
        read_by_(order.size()),
        waits_for_(order.size()),
        releases_(order.size()) {
    for (size_t i = 0; i < order.size(); ++i) {
      place_[order[i]] = static_cast<int32_t>(i);
      is_static_.push_back(is_static[order[i]]);
      is_fixed_.push_back(is_fixed[order[i]]);
    }
    for (const Node* target : step.targets) {
      const int32_t position = step.position[target->id()];
      is_fixed_[place_[position]] = true;
      for (size_t k = step.first_edge[position]; k < step.first_edge[position + 1]; ++k) {
        is_fixed_[place_[step.edges[k].source]] = true;
      }
    }
  }

  RemovedOps Run() && {
    const auto count = static_cast<int32_t>(order_.size());
    for (int32_t i = 0; i < count; ++i) AddEdgesInto(i);
    for (int32_t i = 0; i < count; ++i) waiting_.push_back(i);
    while (!waiting_.empty()) {
      const int32_t i = waiting_.back();
      waiting_.pop_back();
      if (!is_removed_[i]) Simplify(i);
    }
    RemovedOps found;
    found.is_removed.resize(count);
    found.neighbour.assign(count, -1);
    found.waits_for.resize(count);
    for (int32_t i = 0; i < count; ++i) {
      found.is_removed[order_[i]] = is_removed_[i];
      const int32_t neighbour = RunningNeighbour(i);
      if (neighbour >= 0) found.neighbour[order_[i]] = order_[neighbour];
      if (is_removed_[i]) continue;
      ForgetWhatFollows(i);
      for (const int32_t source : waits_for_[i]) found.waits_for[order_[i]].insert(order_[source]);
    }
    return found;
  }

 private:
  const Node& NodeOf(int32_t i) const { return *step_.nodes[order_[i]]; }

  // A constant reads nothing. It waits for the constants that it was computed from, as far as these
  // wait for something themselves.
  void AddEdgesInto(int32_t i) {
    for (size_t k = step_.first_edge[order_[i]]; k < step_.first_edge[order_[i] + 1]; ++k) {
      const StepEdge& edge = step_.edges[k];
      const int32_t source = place_[edge.source];
      const bool is_control = edge.dst_input == Graph::kControlSlot;
      if (is_static_[i] && !is_static_[source] && !is_control) continue;
      if (is_control || is_static_[i]) {
        Wait(i, source);
      } else {
        reads_[i].insert(source);
        read_by_[source].insert(i);
      }
    }
  }

  void Wait(int32_t i, int32_t source) {
    waits_for_[i].insert(source);
    releases_[source].insert(i);
  }

  void Simplify(int32_t i) {
    if (is_static_[i] && waits_for_[i].empty()) ForgetWaitsFor(i);
    if (!is_idle_[i] && MayIdle(i)) {
      is_idle_[i] = true;
      for (const int32_t source : reads_[i]) {
        read_by_[source].erase(i);
        Wait(i, source);
        waiting_.push_back(source);
      }
      reads_[i].clear();
    }
    if (is_idle_[i] && IsBestRemoved(i)) Remove(i);
  }

  // It is there from the start.
  void ForgetWaitsFor(int32_t constant) {
    for (const int32_t reader : releases_[constant]) {
      waits_for_[reader].erase(constant);
      waiting_.push_back(reader);
    }
    releases_[constant].clear();
  }

  // Whether all that counts of the op is when it ends.
  bool MayIdle(int32_t i) const {
    const Node& node = NodeOf(i);
    if (is_fixed_[i] || !read_by_[i].empty()) return false;
    if (tensorflow::grappler::IsNoOp(node.def())) return true;
    // What reads nothing is fed, or state.
    if (node.num_outputs() == 0 || (node.num_inputs() == 0 && !is_static_[i])) return false;
    return !IsKept(node) && !(node.IsIdentity() && absl::c_any_of(reads_[i], [&](int32_t source) {
                                return step_.nodes[source]->IsVariable() ||
                                       step_.nodes[source]->IsSwitch();
                              }));
  }

  bool IsBestRemoved(int32_t i) const {
    const size_t in = waits_for_[i].size(), out = releases_[i].size();
    return in * out <= in + out;
  }

  void Remove(int32_t i) {
    const std::set<int32_t> sources = std::move(waits_for_[i]);
    const std::set<int32_t> readers = std::move(releases_[i]);
    is_removed_[i] = true;
    if (readers.size() == 1 && sources.size() != 1) {
      neighbour_[i] = *readers.begin();
    } else if (!sources.empty()) {
      neighbour_[i] = *sources.begin();
    } else if (!readers.empty()) {
      neighbour_[i] = *readers.begin();
    }
    for (const int32_t source : sources) {
      releases_[source].erase(i);
      waiting_.push_back(source);
    }
    for (const int32_t reader : readers) {
      waits_for_[reader].erase(i);
      waiting_.push_back(reader);
      for (const int32_t source : sources) {
        if (reads_[reader].count(source) == 0) Wait(reader, source);
      }
    }
  }

  // It waits for a source only if no other one that it has waits for that, too.
  void ForgetWhatFollows(int32_t i) {
    std::set<int32_t>& sources = waits_for_[i];
    for (auto source = sources.begin(); source != sources.end();) {
      source = IsAfterOnAnotherWay(i, *source) ? sources.erase(source) : std::next(source);
    }
  }

  // Places rise along edges. Only the first nodes that are found between the two are looked at.
  bool IsAfterOnAnotherWay(int32_t i, int32_t source) {
    std::vector<int32_t> between;
    absl::flat_hash_set<int32_t> seen;
    const auto visit = [&](int32_t node, bool is_end) {
      for (const std::set<int32_t>* inputs : {&reads_[node], &waits_for_[node]}) {
        for (auto it = inputs->lower_bound(source); it != inputs->end(); ++it) {
          if (*it == source && !is_end) return true;
          if (*it != source && seen.insert(*it).second) between.push_back(*it);
        }
      }
      return false;
    };
    visit(i, true);
    for (size_t next = 0; next < between.size() && next < kMostBetween; ++next) {
      if (visit(between[next], false)) return true;
    }
    return false;
  }

  int32_t RunningNeighbour(int32_t i) const {
    if (!is_removed_[i]) return -1;
    int32_t other = neighbour_[i];
    // Each was removed after the one before it.
    while (other >= 0 && is_removed_[other]) other = neighbour_[other];
    return other;
  }

  const Step& step_;
  const std::vector<int32_t>& order_;  // positions
  std::vector<int32_t> place_;         // by position
  // Of what follows everything is by place.
  std::vector<bool> is_static_, is_fixed_;
  std::vector<bool> is_idle_;  // is a NoOp
  std::vector<bool> is_removed_;
  std::vector<int32_t> neighbour_;
  std::vector<std::set<int32_t>> reads_, read_by_;       // data
  std::vector<std::set<int32_t>> waits_for_, releases_;  // control
  std::vector<int32_t> waiting_;                         // to be looked at
};

}  // namespace

RemovedOps FindRemovedOps(const Step& step, const std::vector<bool>& is_static,
                          const std::vector<bool>& is_fixed, const std::vector<int32_t>& order) {
  return Removal(step, is_static, is_fixed, order).Run();
}

}  // namespace hplacer
