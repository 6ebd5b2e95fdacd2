#include "tf/removed_ops.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "tensorflow/core/grappler/op_types.h"

namespace hplacer {
namespace {

using tensorflow::Node;

constexpr size_t kMostBetween = 1000;
constexpr int kRounds = 2;  // of TensorFlow's optimizer

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
          const std::vector<int32_t>& order, const InputLists& inputs)
      : step_(step),
        order_(order),
        inputs_(inputs),
        place_(order.size()),
        is_idle_(order.size(), false),
        is_removed_(order.size(), false),
        neighbour_(order.size(), -1),
        reads_(order.size()),
        read_by_(order.size()),
        waits_for_(order.size()),
        releases_(order.size()),
        written_(order.size()) {
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
    for (size_t i = 0; i < order.size(); ++i) AddEdgesInto(static_cast<int32_t>(i));
    ForgetWhatFollows();
  }

  RemovedOps Run() && {
    Optimize();
    const auto count = static_cast<int32_t>(order_.size());
    RemovedOps found;
    found.is_removed.resize(count);
    found.neighbour.assign(count, -1);
    found.waits_for.resize(count);
    for (int32_t i = 0; i < count; ++i) {
      found.is_removed[order_[i]] = is_removed_[i];
      const int32_t neighbour = RunningNeighbour(i);
      if (neighbour >= 0) found.neighbour[order_[i]] = order_[neighbour];
      if (is_removed_[i]) continue;
      for (const int32_t source : written_[i]) found.waits_for[order_[i]].push_back(order_[source]);
    }
    return found;
  }

 private:
  void Optimize() {
    const auto count = static_cast<int32_t>(order_.size());
    for (int round = 0; round < kRounds; ++round) {
      for (int32_t i = 0; i < count; ++i) waiting_.push_back(i);
      while (!waiting_.empty()) {
        const int32_t i = waiting_.back();
        waiting_.pop_back();
        if (!is_removed_[i]) Simplify(i);
      }
      ForgetWhatFollows();
    }
  }

  const Node& NodeOf(int32_t i) const { return *step_.nodes[order_[i]]; }

  // A constant reads nothing. It waits for the constants that it was computed from, as far as these
  // wait for something themselves.
  void AddEdgesInto(int32_t i) {
    const std::vector<int32_t>& sources = inputs_[order_[i]];
    const size_t num_data = NumDataInputs(step_, order_[i]);
    for (size_t k = 0; k < sources.size(); ++k) {
      const int32_t source = place_[sources[k]];
      const bool is_control = k >= num_data;
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
    if (waits_for_[i].insert(source).second) written_[i].push_back(source);
    releases_[source].insert(i);
  }

  // The last one takes its place.
  void WaitNoLonger(int32_t i, int32_t source) {
    if (waits_for_[i].erase(source) == 0) return;
    *std::find(written_[i].begin(), written_[i].end(), source) = written_[i].back();
    written_[i].pop_back();
  }

  void Simplify(int32_t i) {
    if (is_static_[i] && waits_for_[i].empty()) ForgetWaitsFor(i);
    if (!is_idle_[i] && MayIdle(i)) MakeIdle(i);
    if (is_idle_[i] && AddsNoEdges(i)) Remove(i);
  }

  void MakeIdle(int32_t i) {
    is_idle_[i] = true;
    for (const int32_t source : reads_[i]) {
      read_by_[source].erase(i);
      Wait(i, source);
      waiting_.push_back(source);
    }
    reads_[i].clear();
  }

  // It is there from the start.
  void ForgetWaitsFor(int32_t constant) {
    for (const int32_t reader : releases_[constant]) {
      WaitNoLonger(reader, constant);
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

  bool AddsNoEdges(int32_t i) const {
    const size_t in = waits_for_[i].size(), out = releases_[i].size();
    return in * out <= in + out;
  }

  void Remove(int32_t i) {
    const std::set<int32_t> sources = std::move(waits_for_[i]);
    const std::vector<int32_t> written = std::move(written_[i]);
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
      for (const int32_t source : written) {
        if (reads_[reader].count(source) == 0) Wait(reader, source);
      }
      WaitNoLonger(reader, i);
      waiting_.push_back(reader);
    }
  }

  // Drops what follows from other edges: all at once, by the edges that there were before.
  void ForgetWhatFollows() {
    std::vector<absl::flat_hash_set<int32_t>> follows(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) follows[i] = WhatFollows(static_cast<int32_t>(i));
    for (size_t i = 0; i < order_.size(); ++i) {
      if (follows[i].empty()) continue;
      const auto node = static_cast<int32_t>(i);
      for (size_t slot = written_[i].size(); slot-- > 0;) {  // from behind, as TensorFlow does
        const int32_t source = written_[i][slot];
        if (!follows[i].contains(source)) continue;
        WaitNoLonger(node, source);
        releases_[source].erase(node);
      }
    }
  }

  // Of what a node waits for: what others of its inputs wait for, too. Places rise along edges.
  // Only the first nodes that are found between the two are looked at, the last places first.
  absl::flat_hash_set<int32_t> WhatFollows(int32_t i) const {
    absl::flat_hash_set<int32_t> follows;
    if (waits_for_[i].empty() || waits_for_[i].size() + reads_[i].size() == 1) return follows;
    const int32_t first = *waits_for_[i].begin();
    std::vector<int32_t> between;
    absl::flat_hash_set<int32_t> seen;
    const auto visit = [&](int32_t node) {
      for (const std::set<int32_t>* inputs : {&waits_for_[node], &reads_[node]}) {
        for (auto it = inputs->lower_bound(first); it != inputs->end(); ++it) {
          if (node != i && waits_for_[i].count(*it) > 0) follows.insert(*it);
          if (seen.insert(*it).second) between.push_back(*it);
        }
      }
    };
    visit(i);
    for (size_t looked = 0; looked < kMostBetween && !between.empty(); ++looked) {
      if (follows.size() == waits_for_[i].size()) break;
      const int32_t node = between.back();
      between.pop_back();
      visit(node);
    }
    return follows;
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
  const InputLists& inputs_;           // by position
  std::vector<int32_t> place_;         // by position
  // Of what follows everything is by place.
  std::vector<bool> is_static_, is_fixed_;
  std::vector<bool> is_idle_;  // is a NoOp
  std::vector<bool> is_removed_;
  std::vector<int32_t> neighbour_;
  std::vector<std::set<int32_t>> reads_, read_by_;       // data
  std::vector<std::set<int32_t>> waits_for_, releases_;  // control
  std::vector<std::vector<int32_t>> written_;            // what it waits for, in its order
  std::vector<int32_t> waiting_;                         // to be looked at
};

}  // namespace

RemovedOps FindRemovedOps(const Step& step, const std::vector<bool>& is_static,
                          const std::vector<bool>& is_fixed, const std::vector<int32_t>& order,
                          const InputLists& inputs) {
  return Removal(step, is_static, is_fixed, order, inputs).Run();
}

}  // namespace hplacer
