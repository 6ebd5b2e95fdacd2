#include "tf/ordered_inputs.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "tensorflow/core/grappler/op_types.h"

namespace hplacer {
namespace {

// The node that makes what is at `position`: Identities that wait for nothing only hand it on.
const tensorflow::Node& Maker(const Step& step, int32_t position) {
  while (step.nodes[position]->IsIdentity() &&
         step.first_edge[position + 1] == step.first_edge[position] + 1) {
    position = step.edges[step.first_edge[position]].source;
  }
  return *step.nodes[position];
}

}  // namespace

void SortByName(const Step& step, std::vector<int32_t>::iterator begin,
                std::vector<int32_t>::iterator end) {
  std::sort(begin, end, [&step](int32_t a, int32_t b) {
    return step.nodes[a]->name() < step.nodes[b]->name();
  });
}

bool Commutes(const tensorflow::Node& node) {
  return node.num_inputs() > 1 && tensorflow::grappler::IsCommutative(node.def());
}

void SortCommuting(const Step& step, size_t position, std::vector<int32_t>* sources) {
  if (!Commutes(*step.nodes[position])) return;
  absl::c_stable_sort(*sources, [&step](int32_t a, int32_t b) {
    return Maker(step, a).name() < Maker(step, b).name();
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

}  // namespace hplacer
