#include "tf/repeated_ops.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensorflow/core/grappler/op_types.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "tf/neutral_ops.h"
#include "tf/ordered_inputs.h"

namespace hplacer {
namespace {

using tensorflow::Node;

constexpr size_t kMostBytes = 4096;  // of an attribute that is compared, such as a constant's value

class Repetitions {
 public:
  Repetitions(const Step& step, const Units& units, const RemovedOps& removed,
              const std::vector<bool>& is_static, const std::vector<int32_t>& handed_on,
              const std::vector<OpCosts>& costs, const std::vector<int32_t>& by_op)
      : step_(step),
        units_(units),
        removed_(removed),
        is_static_(is_static),
        handed_on_(handed_on),
        costs_(costs),
        by_op_(by_op),
        first_(by_op.size()) {
    absl::c_iota(first_, 0);
  }

  std::vector<int32_t> Join() && {
    const auto count = static_cast<int32_t>(step_.nodes.size());
    std::vector<int32_t> unit_size(units_.allowed.size(), 0);
    for (const int32_t unit : units_.unit_of) ++unit_size[unit];
    std::vector<int32_t> runs_as(count);
    for (const int32_t i : by_op_) {
      const int32_t equal = FirstEqual(i);
      const int32_t unit = units_.unit_of[i];
      const bool joins =
          equal != i && Computes(i) &&
          (unit == units_.unit_of[equal] || (unit_size[unit] == 1 && MakesNoMoreThanItReads(i)));
      runs_as[i] = joins ? equal : i;
      first_[i] = Computes(i) ? runs_as[i] : equal;
    }
    return runs_as;
  }

  RepeatedOps Find(const std::vector<int32_t>& runs_as) && {
    const auto count = static_cast<int32_t>(step_.nodes.size());
    std::vector<int32_t> number_of_equal(count, 0);  // by the first one
    for (const int32_t i : by_op_) {
      first_[i] = runs_as[i] == i ? FirstEqual(i) : first_[runs_as[i]];
      if (Computes(i)) ++number_of_equal[first_[i]];
    }
    RepeatedOps found;
    found.is_repeated.resize(count);
    found.same_constant.resize(count);
    for (const int32_t i : by_op_) {
      const size_t devices = units_.allowed[units_.unit_of[i]].size();
      found.is_repeated[i] = Computes(i) && first_[i] != i &&
                             static_cast<size_t>(number_of_equal[first_[i]]) > devices;
      found.same_constant[i] = FirstSameConstant(i);
    }
    return found;
  }

 private:
  // Whether merging it with an equal one spares anything.
  bool Computes(int32_t i) const {
    return !is_static_[i] && !removed_.is_removed[i] && costs_[i].launches > 0 &&
           HandedOn(i) == kComputes;
  }

  int32_t HandedOn(int32_t i) const {
    return step_.nodes[i]->IsIdentity() || costs_[i].keeps_shape ? 0 : handed_on_[i];
  }

  bool MayBeMerged(int32_t i) const {
    const Node& node = *step_.nodes[i];
    return units_.frame_of[i] < 0 && !removed_.is_removed[i] && removed_.waits_for[i].empty() &&
           !absl::c_linear_search(step_.targets, &node) && !node.IsControlFlow() && !node.IsArg() &&
           !node.IsRetval() && tensorflow::grappler::IsFreeOfSideEffect(node.def());
  }

  bool MakesNoMoreThanItReads(int32_t i) const {
    std::map<std::pair<int32_t, int32_t>, int64_t> reads;  // each tensor once
    for (size_t k = step_.first_edge[i]; k < step_.first_edge[i + 1]; ++k) {
      const StepEdge& edge = step_.edges[k];
      if (edge.dst_input == tensorflow::Graph::kControlSlot || is_static_[edge.source]) continue;
      reads[{first_[edge.source], edge.src_output}] =
          costs_[edge.source].output_bytes[edge.src_output];
    }
    int64_t bytes = 0;
    for (const auto& [tensor, size] : reads) bytes += size;
    for (const int64_t size : costs_[i].output_bytes) bytes -= size;
    return bytes >= 0;
  }

  // The first node that makes what `i` makes; of what hands on an input and waits for nothing else,
  // the one that made that.
  int32_t FirstEqual(int32_t i) {
    const int32_t handed_on = removed_.waits_for[i].empty() ? HandedOn(i) : kComputes;
    std::string key;
    // Each input as the first node that makes it, and the number of the output.
    std::map<int32_t, std::string> inputs;
    for (size_t k = step_.first_edge[i]; k < step_.first_edge[i + 1]; ++k) {
      const StepEdge& edge = step_.edges[k];
      if (edge.dst_input == tensorflow::Graph::kControlSlot) continue;
      if (edge.dst_input == handed_on && edge.src_output == 0) return first_[edge.source];
      inputs[edge.dst_input] = absl::StrCat(first_[edge.source], ":", edge.src_output);
    }
    if (!is_static_[i] && !MayBeMerged(i)) return i;
    if (!AppendNode(i, &key)) return i;
    std::vector<std::string> tensors;
    for (auto& [input, tensor] : inputs) tensors.push_back(std::move(tensor));
    if (Commutes(*step_.nodes[i])) absl::c_sort(tensors);
    absl::StrAppend(&key, " ", absl::StrJoin(tensors, " "));
    return by_key_.try_emplace(std::move(key), i).first->second;
  }

  int32_t FirstSameConstant(int32_t i) {
    std::vector<int32_t> waits_for = removed_.waits_for[i];
    if (!is_static_[i] || units_.frame_of[i] >= 0 || waits_for.empty()) return i;
    absl::c_sort(waits_for);
    return by_wait_.try_emplace({first_[i], std::move(waits_for)}, i).first->second;
  }

  // False if it is too large to compare.
  bool AppendNode(int32_t i, std::string* key) const {
    const Node& node = *step_.nodes[i];
    std::map<std::string, std::string> attributes;  // in an order
    for (const auto& [name, value] : node.attrs()) {
      if (name == "_output_shapes") continue;
      std::string& bytes = attributes[name];
      tensorflow::SerializeToStringDeterministic(value, &bytes);
      if (bytes.size() > kMostBytes) return false;
    }
    absl::StrAppend(key, node.type_string(), " on ",
                    absl::StrJoin(units_.allowed[units_.unit_of[i]], ","));
    for (const auto& [name, bytes] : attributes) {
      absl::StrAppend(key, " ", name, "=", bytes.size(), ":", bytes);
    }
    return true;
  }

  const Step& step_;
  const Units& units_;
  const RemovedOps& removed_;
  const std::vector<bool>& is_static_;
  const std::vector<int32_t>& handed_on_;
  const std::vector<OpCosts>& costs_;
  const std::vector<int32_t>& by_op_;
  std::vector<int32_t> first_;  // by position; itself, of those to come
  absl::flat_hash_map<std::string, int32_t> by_key_;
  std::map<std::pair<int32_t, std::vector<int32_t>>, int32_t> by_wait_;
};

}  // namespace

std::vector<int32_t> FindJoinedOps(const Step& step, const Units& units, const RemovedOps& removed,
                                   const std::vector<bool>& is_static,
                                   const std::vector<int32_t>& handed_on,
                                   const std::vector<OpCosts>& costs,
                                   const std::vector<int32_t>& by_op) {
  return Repetitions(step, units, removed, is_static, handed_on, costs, by_op).Join();
}

RepeatedOps FindRepeatedOps(const Step& step, const Units& units, const RemovedOps& removed,
                            const std::vector<bool>& is_static,
                            const std::vector<int32_t>& handed_on,
                            const std::vector<OpCosts>& costs, const std::vector<int32_t>& by_op,
                            const std::vector<int32_t>& runs_as) {
  return Repetitions(step, units, removed, is_static, handed_on, costs, by_op).Find(runs_as);
}

}  // namespace hplacer
