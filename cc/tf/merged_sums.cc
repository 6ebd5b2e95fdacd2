#include "tf/merged_sums.h"

#include <algorithm>
#include <string>

#include "absl/types/span.h"
#include "tf/neutral_ops.h"

namespace hplacer {
namespace {

using tensorflow::Graph;
using tensorflow::Node;

bool IsSum(const Node& node) {
  const std::string& op = node.type_string();
  return op == "AddN" || op == "AddV2" || op == "Add";
}

class Merging {
 public:
  Merging(const Step& step, const Units& units, const RemovedOps& removed,
          const std::vector<bool>& is_static, const std::vector<int32_t>& handed_on,
          const std::vector<OpCosts>& costs, const std::vector<int32_t>& runs_as)
      : step_(step),
        units_(units),
        costs_(costs),
        runs_as_(runs_as),
        reader_(step.nodes.size(), kNobody),
        unit_size_(units.allowed.size(), 0) {
    const size_t count = step.nodes.size();
    found_.into.assign(count, -1);
    found_.inputs.resize(count);
    std::vector<bool> is_waited_for(count, false);
    for (size_t i = 0; i < count; ++i) {
      ++unit_size_[units.unit_of[i]];
      for (const int32_t source : removed.waits_for[i]) is_waited_for[source] = true;
    }
    for (size_t i = 0; i < count; ++i) {
      if (!removed.is_removed[i] && !is_static[i]) AddReader(static_cast<int32_t>(i));
    }
    for (const Node* target : step.targets) {
      const int32_t position = step.position[target->id()];
      reader_[position] = kSeveral;
      for (const StepEdge& edge : EdgesInto(position)) reader_[runs_as_[edge.source]] = kSeveral;
    }
    for (size_t i = 0; i < count; ++i) {
      can_merge_.push_back(IsSum(*step.nodes[i]) && !removed.is_removed[i] && !is_static[i] &&
                           handed_on[i] == kComputes && units.frame_of[i] < 0 &&
                           removed.waits_for[i].empty() && !is_waited_for[i] &&
                           HasOneSize(static_cast<int32_t>(i)));
    }
  }

  MergedSums Run() && {
    // Positions are topological: the last sum of a tree comes first.
    for (auto root = static_cast<int32_t>(step_.nodes.size()) - 1; root >= 0; --root) {
      if (!can_merge_[root] || found_.into[root] >= 0) continue;
      std::vector<StepEdge> inputs = Absorb(root);
      if (inputs.size() > EdgesInto(root).size()) found_.inputs[root] = std::move(inputs);
    }
    return std::move(found_);
  }

 private:
  static constexpr int32_t kNobody = -1, kSeveral = -2;

  absl::Span<const StepEdge> EdgesInto(int32_t i) const {
    return absl::MakeConstSpan(step_.edges)
        .subspan(step_.first_edge[i], step_.first_edge[i + 1] - step_.first_edge[i]);
  }

  void AddReader(int32_t i) {
    for (const StepEdge& edge : EdgesInto(i)) {
      if (edge.dst_input == Graph::kControlSlot) continue;
      int32_t& reader = reader_[runs_as_[edge.source]];
      reader = reader == kNobody ? i : kSeveral;
    }
  }

  // Whether all inputs are as large as the sum.
  bool HasOneSize(int32_t i) const {
    const int64_t bytes = costs_[i].output_bytes[0];
    const auto edges = EdgesInto(i);
    return std::all_of(edges.begin(), edges.end(), [&](const StepEdge& edge) {
      return edge.dst_input == Graph::kControlSlot ||
             costs_[runs_as_[edge.source]].output_bytes[edge.src_output] == bytes;
    });
  }

  bool IsAbsorbed(int32_t i, int32_t root) const {
    const int32_t unit = units_.unit_of[i], into = units_.unit_of[root];
    return can_merge_[i] && reader_[i] >= 0 && units_.allowed[unit] == units_.allowed[into] &&
           (unit == into || unit_size_[unit] == 1);
  }

  // The inputs of the tree under `root`, from the first to the last. A chain may be long: no
  // recursion.
  std::vector<StepEdge> Absorb(int32_t root) {
    std::vector<StepEdge> inputs, waiting;
    const auto open = [&](int32_t i) {
      std::vector<StepEdge> edges;
      for (const StepEdge& edge : EdgesInto(i)) {
        if (edge.dst_input == Graph::kControlSlot) continue;
        edges.push_back({runs_as_[edge.source], edge.src_output, edge.dst_input});
      }
      std::sort(edges.begin(), edges.end(),
                [](const StepEdge& a, const StepEdge& b) { return a.dst_input > b.dst_input; });
      waiting.insert(waiting.end(), edges.begin(), edges.end());
    };
    open(root);
    while (!waiting.empty()) {
      const StepEdge edge = waiting.back();
      waiting.pop_back();
      if (IsAbsorbed(edge.source, root)) {
        found_.into[edge.source] = root;
        open(edge.source);
      } else {
        inputs.push_back(edge);
      }
    }
    return inputs;
  }

  const Step& step_;
  const Units& units_;
  const std::vector<OpCosts>& costs_;
  const std::vector<int32_t>& runs_as_;
  std::vector<int32_t> reader_;  // the one node that reads it, kNobody or kSeveral
  std::vector<int32_t> unit_size_;
  std::vector<bool> can_merge_;
  MergedSums found_;
};

}  // namespace

MergedSums FindMergedSums(const Step& step, const Units& units, const RemovedOps& removed,
                          const std::vector<bool>& is_static, const std::vector<int32_t>& handed_on,
                          const std::vector<OpCosts>& costs, const std::vector<int32_t>& runs_as) {
  return Merging(step, units, removed, is_static, handed_on, costs, runs_as).Run();
}

}  // namespace hplacer
