#include "tf/pruned_order.h"

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

std::vector<int32_t> TopologicalOrder(const std::vector<int32_t>& rank, Followers* followers) {
  const auto count = static_cast<int32_t>(followers->size());
  std::vector<int32_t> pending(count, 0);
  for (const auto& of_one : *followers) {
    for (const Follower& follower : of_one) ++pending[follower.id];
  }
  std::vector<int32_t> order;
  for (int32_t id = 0; id < count; ++id) {
    if (pending[id] == 0) order.push_back(id);
  }
  absl::c_sort(order, [&rank](int32_t a, int32_t b) { return rank[a] < rank[b]; });
  for (size_t next = 0; next < order.size(); ++next) {
    auto& of_one = (*followers)[order[next]];
    absl::c_sort(of_one, [&rank](Follower a, Follower b) { return rank[a.id] < rank[b.id]; });
    for (const Follower& follower : of_one) {
      if (--pending[follower.id] == 0) order.push_back(follower.id);
    }
  }
  return order;
}

std::vector<int32_t> RemappedRanks(const std::vector<int32_t>& order, Followers* followers) {
  enum class Visited : uint8_t { kNot, kEntered, kLeft };
  const size_t count = order.size();
  std::vector<int32_t> place(count);
  std::vector<bool> follows(count, false);
  for (size_t i = 0; i < count; ++i) place[order[i]] = static_cast<int32_t>(i);
  for (auto& of_one : *followers) {
    absl::c_sort(of_one, [&place](Follower a, Follower b) {
      return std::make_pair(a.output, place[a.id]) < std::make_pair(b.output, place[b.id]);
    });
    for (const Follower& follower : of_one) follows[follower.id] = true;
  }
  std::vector<int32_t> rank(count, -1);
  std::vector<Visited> visited(count, Visited::kNot);
  auto next = static_cast<int32_t>(count);
  std::vector<int32_t> stack;
  for (size_t i = count; i-- > 0;) {
    if (!follows[order[i]]) stack.push_back(order[i]);
    while (!stack.empty()) {
      const int32_t id = stack.back();
      if (visited[id] == Visited::kNot) {
        visited[id] = Visited::kEntered;
        for (const Follower& follower : (*followers)[id]) {
          if (visited[follower.id] == Visited::kNot) stack.push_back(follower.id);
        }
        continue;
      }
      stack.pop_back();
      if (visited[id] == Visited::kLeft) continue;
      visited[id] = Visited::kLeft;
      rank[id] = --next;
    }
  }
  return rank;
}

}  // namespace hplacer
