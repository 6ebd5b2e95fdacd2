#include "tf/pruned_order.h"

#include <algorithm>

namespace hplacer {
namespace {

// What the search begins with: the targets, in a function what nobody reads.
std::vector<int32_t> Terminals(const Step& step, const InputLists& inputs) {
  std::vector<int32_t> terminals;
  for (const tensorflow::Node* target : step.targets) {
    terminals.push_back(step.position[target->id()]);
  }
  if (!terminals.empty()) return terminals;
  std::vector<bool> is_read(inputs.size(), false);
  for (const auto& sources : inputs) {
    for (const int32_t source : sources) is_read[source] = true;
  }
  for (size_t i = 0; i < is_read.size(); ++i) {
    if (!is_read[i]) terminals.push_back(static_cast<int32_t>(i));
  }
  return terminals;
}

}  // namespace

void SortByName(const Step& step, std::vector<int32_t>::iterator begin,
                std::vector<int32_t>::iterator end) {
  std::sort(begin, end, [&step](int32_t a, int32_t b) {
    return step.nodes[a]->name() < step.nodes[b]->name();
  });
}

size_t NumDataInputs(const Step& step, size_t position) {
  return std::count_if(
      step.edges.begin() + step.first_edge[position],
      step.edges.begin() + step.first_edge[position + 1],
      [](const StepEdge& edge) { return edge.dst_input != tensorflow::Graph::kControlSlot; });
}

InputLists OrderedInputs(const Step& step) {
  InputLists inputs(step.nodes.size());
  std::vector<StepEdge> edges;
  for (size_t i = 0; i < inputs.size(); ++i) {
    edges.assign(step.edges.begin() + step.first_edge[i],
                 step.edges.begin() + step.first_edge[i + 1]);
    const auto control = std::partition(edges.begin(), edges.end(), [](const StepEdge& edge) {
      return edge.dst_input != tensorflow::Graph::kControlSlot;
    });
    std::sort(edges.begin(), control,
              [](const StepEdge& a, const StepEdge& b) { return a.dst_input < b.dst_input; });
    for (const StepEdge& edge : edges) inputs[i].push_back(edge.source);
    SortByName(step, inputs[i].begin() + (control - edges.begin()), inputs[i].end());
  }
  return inputs;
}

std::vector<int32_t> PrunedRanks(const Step& step, const InputLists& inputs) {
  std::vector<int32_t> rank(inputs.size(), -1);
  int32_t next = static_cast<int32_t>(inputs.size());
  const auto search = [&](std::vector<int32_t> stack) {
    SortByName(step, stack.begin(), stack.end());
    while (!stack.empty()) {
      const int32_t node = stack.back();
      stack.pop_back();
      if (rank[node] >= 0) continue;
      rank[node] = --next;
      stack.insert(stack.end(), inputs[node].begin(), inputs[node].end());
    }
  };
  search(Terminals(step, inputs));
  // What only edges lead to that close a loop, or what is removed.
  std::vector<int32_t> others;
  for (size_t i = 0; i < rank.size(); ++i) {
    if (rank[i] < 0) others.push_back(static_cast<int32_t>(i));
  }
  search(std::move(others));
  return rank;
}

}  // namespace hplacer
