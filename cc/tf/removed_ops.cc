#include "tf/removed_ops.h"

#include <iterator>
#include <string>
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
  static const auto* const op_types = new absl::flat_hash_set<std::string>(
      {"Assert", "CheckNumerics", "ControlTrigger", "TPUCompile", "TPUExecute", "_Arg",
       "_ParallelConcatUpdate", "_Retval"});
  return op_types->contains(node.type_string()) ||
         absl::StartsWith(node.type_string(), "Submodel") || node.IsControlFlow() ||
         !tensorflow::grappler::IsFreeOfSideEffect(node.def());
}

class Removal {
 public:
  Removal(const Step& step, const std::vector<bool>& is_static, std::vector<bool> is_fixed)
      : step_(step),
        is_static_(is_static),
        is_fixed_(std::move(is_fixed)),
        is_idle_(step.nodes.size(), false),
        reads_(step.nodes.size()),
        read_by_(step.nodes.size()),
        releases_(step.nodes.size()) {
    found_.is_removed.assign(step.nodes.size(), false);
    found_.neighbour.assign(step.nodes.size(), -1);
    found_.waits_for.resize(step.nodes.size());
    for (const Node* target : step.targets) {
      const int32_t i = step.position[target->id()];
      is_fixed_[i] = true;
      for (size_t k = step.first_edge[i]; k < step.first_edge[i + 1]; ++k) {
        is_fixed_[step.edges[k].source] = true;
      }
    }
  }

  RemovedOps Run() && {
    const auto count = static_cast<int32_t>(step_.nodes.size());
    for (int32_t i = 0; i < count; ++i) AddEdgesInto(i);
    for (int32_t i = 0; i < count; ++i) waiting_.push_back(i);
    while (!waiting_.empty()) {
      const int32_t i = waiting_.back();
      waiting_.pop_back();
      if (!found_.is_removed[i]) Simplify(i);
    }
    for (int32_t i = 0; i < count; ++i) {
      found_.neighbour[i] = RunningNeighbour(i);
      if (found_.is_removed[i]) continue;
      ForgetWhatFollows(i);
    }
    return std::move(found_);
  }

 private:
  // A constant reads nothing. It waits for the constants that it was computed from, as far as these
  // wait for something themselves.
  void AddEdgesInto(int32_t i) {
    for (size_t k = step_.first_edge[i]; k < step_.first_edge[i + 1]; ++k) {
      const StepEdge& edge = step_.edges[k];
      const bool is_control = edge.dst_input == Graph::kControlSlot;
      if (is_static_[i] && !is_static_[edge.source] && !is_control) continue;
      if (is_control || is_static_[i]) {
        Wait(i, edge.source);
      } else {
        reads_[i].insert(edge.source);
        read_by_[edge.source].insert(i);
      }
    }
  }

  void Wait(int32_t i, int32_t source) {
    found_.waits_for[i].insert(source);
    releases_[source].insert(i);
  }

  void Simplify(int32_t i) {
    if (is_static_[i] && found_.waits_for[i].empty()) ForgetWaitsFor(i);
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
      found_.waits_for[reader].erase(constant);
      waiting_.push_back(reader);
    }
    releases_[constant].clear();
  }

  // Whether all that counts of the op is when it ends.
  bool MayIdle(int32_t i) const {
    const Node& node = *step_.nodes[i];
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
    const size_t in = found_.waits_for[i].size(), out = releases_[i].size();
    return in * out <= in + out;
  }

  void Remove(int32_t i) {
    const std::set<int32_t> sources = std::move(found_.waits_for[i]);
    const std::set<int32_t> readers = std::move(releases_[i]);
    found_.is_removed[i] = true;
    if (readers.size() == 1 && sources.size() != 1) {
      found_.neighbour[i] = *readers.begin();
    } else if (!sources.empty()) {
      found_.neighbour[i] = *sources.begin();
    } else if (!readers.empty()) {
      found_.neighbour[i] = *readers.begin();
    }
    for (const int32_t source : sources) {
      releases_[source].erase(i);
      waiting_.push_back(source);
    }
    for (const int32_t reader : readers) {
      found_.waits_for[reader].erase(i);
      waiting_.push_back(reader);
      for (const int32_t source : sources) {
        if (reads_[reader].count(source) == 0) Wait(reader, source);
      }
    }
  }

  // It waits for a source only if no other one that it has waits for that, too.
  void ForgetWhatFollows(int32_t i) {
    std::set<int32_t>& sources = found_.waits_for[i];
    for (auto source = sources.begin(); source != sources.end();) {
      source = IsAfterOnAnotherWay(i, *source) ? sources.erase(source) : std::next(source);
    }
  }

  // Positions rise along edges. Only the first nodes that are found between the two are looked at.
  bool IsAfterOnAnotherWay(int32_t i, int32_t source) {
    std::vector<int32_t> between;
    absl::flat_hash_set<int32_t> seen;
    const auto visit = [&](int32_t node, bool is_end) {
      for (const std::set<int32_t>* inputs : {&reads_[node], &found_.waits_for[node]}) {
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
    if (!found_.is_removed[i]) return -1;
    int32_t other = found_.neighbour[i];
    // Each was removed after the one before it.
    while (other >= 0 && found_.is_removed[other]) other = found_.neighbour[other];
    return other;
  }

  const Step& step_;
  const std::vector<bool>& is_static_;
  std::vector<bool> is_fixed_;
  std::vector<bool> is_idle_;             // is a NoOp
  std::vector<std::set<int32_t>> reads_;  // data
  std::vector<std::set<int32_t>> read_by_;
  std::vector<std::set<int32_t>> releases_;  // the other direction of waits_for
  RemovedOps found_;
  std::vector<int32_t> waiting_;  // to be looked at
};

}  // namespace

RemovedOps FindRemovedOps(const Step& step, const std::vector<bool>& is_static,
                          std::vector<bool> is_fixed) {
  return Removal(step, is_static, std::move(is_fixed)).Run();
}

}  // namespace hplacer
