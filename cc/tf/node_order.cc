#include "tf/node_order.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/strip.h"
#include "tf/canonical_order.h"
#include "tf/hash.h"
#include "tf/node_hasher.h"

namespace hplacer {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;

// What an arc stands for; kGroup: no arc, but a group of nodes.
enum Kind : uint64_t { kInput, kControl, kBackEdge, kColocated, kGroup };

// Nodes that TensorFlow colocates through "_class", or through resource and reference edges of
// nodes outside of the step; by node id. Edges inside of the step tell of themselves.
class ColocationGroups {
 public:
  ColocationGroups(const Graph& graph, const Step& step)
      : root_(graph.num_node_ids()), size_(graph.num_node_ids(), 1) {
    std::iota(root_.begin(), root_.end(), 0);
    absl::flat_hash_map<std::string_view, int> node_of_class;  // one of its members
    for (const Node* node : graph.op_nodes()) {
      const auto* const classes = node->attrs().Find("_class");
      if (classes == nullptr) continue;
      for (const std::string& name : classes->list().s()) {
        std::string_view group = name;
        if (!absl::ConsumePrefix(&group, "loc:@")) continue;
        Join(node->id(), node_of_class.emplace(group, node->id()).first->second);
      }
    }
    for (const Node* node : graph.op_nodes()) {
      if (const auto it = node_of_class.find(node->name()); it != node_of_class.end()) {
        Join(node->id(), it->second);
      }
      if (step.Contains(node)) continue;
      for (const Edge* edge : node->in_edges()) {
        if (edge->src()->IsOp() && BindsEnds(*edge)) Join(node->id(), edge->src()->id());
      }
      for (const Edge* edge : node->out_edges()) {
        if (edge->dst()->IsOp() && BindsEnds(*edge)) Join(node->id(), edge->dst()->id());
      }
    }
  }

  int Find(int id) {
    while (root_[id] != id) id = root_[id] = root_[root_[id]];
    return id;
  }

  int Size(int group) const { return size_[group]; }

 private:
  void Join(int a, int b) {
    a = Find(a);
    b = Find(b);
    if (a == b) return;
    if (size_[a] < size_[b]) std::swap(a, b);
    root_[b] = a;
    size_[a] += size_[b];
  }

  std::vector<int> root_;
  std::vector<int> size_;
};

// A vertex for each node of the step, in its order, and then one for each colocation group, which
// has the kinds of its nodes outside of the step as its colour, as the fingerprint counts them.
ColoredGraph ColorStep(const Graph& graph, const Step& step,
                       const tensorflow::FunctionLibraryDefinition* library,
                       const std::vector<uint64_t>& node_hashes) {
  ColoredGraph colored;
  colored.colors = node_hashes;
  colored.arcs.reserve(step.edges.size());
  for (size_t i = 0; i < step.nodes.size(); ++i) {
    const auto target = static_cast<int32_t>(i);
    for (size_t e = step.first_edge[i]; e < step.first_edge[i + 1]; ++e) {
      const StepEdge& edge = step.edges[e];
      const bool is_control = edge.dst_input == Graph::kControlSlot;
      const uint64_t slots = is_control ? 0 : Mix(edge.src_output, edge.dst_input);
      colored.arcs.push_back({edge.source, target, Mix(is_control ? kControl : kInput, slots)});
    }
    if (!step.nodes[i]->IsNextIteration()) continue;
    for (const Node* merge : step.nodes[i]->out_nodes()) {
      if (!merge->IsOp() || !step.Contains(merge)) continue;
      colored.arcs.push_back({target, step.position[merge->id()], Mix(kBackEdge, 0)});
    }
  }
  ColocationGroups groups(graph, step);
  std::vector<int32_t> vertex(graph.num_node_ids(), -1);  // by group
  for (const Node* node : step.nodes) {
    const int group = groups.Find(node->id());
    if (groups.Size(group) == 1) continue;
    if (vertex[group] < 0) {
      vertex[group] = static_cast<int32_t>(colored.colors.size());
      colored.colors.push_back(kGroup);
    }
    colored.arcs.push_back({step.position[node->id()], vertex[group], Mix(kColocated, 0)});
  }
  NodeHasher hasher(library);
  absl::flat_hash_set<std::pair<int, uint64_t>> outside;  // group and kind
  for (const Node* node : graph.op_nodes()) {
    const int group = groups.Find(node->id());
    if (vertex[group] < 0 || step.Contains(node)) continue;
    const uint64_t kind = hasher.Hash(*node);
    if (outside.emplace(group, kind).second) colored.colors[vertex[group]] += Mix(kGroup, kind);
  }
  return colored;
}

}  // namespace

NodeOrder FindNodeOrder(const Graph& graph, const Step& step,
                        const tensorflow::FunctionLibraryDefinition* library,
                        const std::vector<uint64_t>& node_hashes) {
  const CanonicalOrder order = FindCanonicalOrder(ColorStep(graph, step, library, node_hashes));
  NodeOrder result;
  result.structure = order.certificate;
  result.ranks.resize(node_hashes.size());
  absl::flat_hash_map<uint64_t, uint32_t> seen;
  for (const int32_t vertex : order.vertices) {
    if (static_cast<size_t>(vertex) < node_hashes.size()) {
      result.ranks[vertex] = seen[node_hashes[vertex]]++;
    }
  }
  return result;
}

}  // namespace hplacer
