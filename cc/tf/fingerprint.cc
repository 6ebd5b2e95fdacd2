#include "tf/fingerprint.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "tensorflow/c/c_api.h"
#include "tensorflow/core/framework/types.h"
#include "tf/hash.h"
#include "tf/node_hasher.h"
#include "tf/parallel.h"

namespace hplacer {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;

std::string Hex(uint64_t hash) { return absl::StrFormat("%016x", hash); }

class Fingerprinter {
 public:
  explicit Fingerprinter(const FingerprintInput& input)
      : graph_(*input.graph), step_(*input.step), input_(input) {}

  Fingerprint Run(std::vector<uint64_t>* node_hashes) {
    VisitNodes();
    HashInputs();
    HashConsumers();
    Fingerprint result;
    uint64_t graph = step_.nodes.size();
    for (const uint64_t hash : down_) graph += Mix(31, hash);
    result.parts.emplace_back("graph", Hex(graph));
    uint64_t targets = 0;
    for (const Node* target : step_.targets)
      targets += Mix(37, down_[step_.position[target->id()]]);
    result.parts.emplace_back("targets", Hex(targets));
    uint64_t machine = 0;
    for (const SessionDevice& device : *input_.devices) {
      machine = HashBytes(device.name, Mix(machine, device.may_plan));
      machine = HashBytes(device.type, machine);
    }
    result.parts.emplace_back("machine", Hex(machine));
    result.parts.emplace_back("constraints", Hex(Constraints()));
    result.parts.emplace_back("format", std::string("hplacer-plan/1 tensorflow-") + TF_Version());
    result.key = Key(result);
    *node_hashes = std::move(down_);
    return result;
  }

 private:
  struct ClassMember {
    uint64_t group;  // hash of the class name
    const Node* node;
  };

  // One visit of all nodes, since reading them is bound by memory latency: the local hashes of the
  // step's, and who takes part in colocation.
  void VisitNodes() {
    up_.resize(step_.nodes.size());
    num_inputs_.resize(step_.nodes.size());
    name_hash_.resize(graph_.num_node_ids());
    std::mutex mutex;
    ParallelFor(graph_.num_node_ids(), [&](size_t begin, size_t end) {
      NodeHasher hasher(input_.library);
      std::vector<const Node*> classed, binding;
      for (size_t id = begin; id < end; ++id) {
        const Node* node = graph_.FindNodeId(static_cast<int>(id));
        if (node == nullptr || !node->IsOp()) continue;
        name_hash_[id] = HashBytes(node->name());
        if (node->def().attr().contains("_class")) classed.push_back(node);
        const int32_t position = step_.position[id];
        if (position < 0) continue;
        up_[position] = hasher.Hash(*node);
        num_inputs_[position] = node->num_inputs();
        if (std::any_of(node->output_types().begin(), node->output_types().end(), Binds)) {
          binding.push_back(node);
        }
      }
      std::lock_guard<std::mutex> lock(mutex);
      classed_.insert(classed_.end(), classed.begin(), classed.end());
      binding_.insert(binding_.end(), binding.begin(), binding.end());
    });
  }

  void HashInputs() {
    std::vector<uint64_t> inputs;
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      uint64_t controls = 0;
      inputs.assign(num_inputs_[i], 0);
      for (size_t e = step_.first_edge[i]; e < step_.first_edge[i + 1]; ++e) {
        const StepEdge& edge = step_.edges[e];
        if (edge.dst_input == Graph::kControlSlot) {
          controls += Mix(up_[edge.source], 41);
        } else {
          inputs[edge.dst_input] = Mix(up_[edge.source], edge.src_output);
        }
      }
      uint64_t hash = up_[i];
      for (const uint64_t source : inputs) hash = Mix(hash, source);
      up_[i] = Mix(hash, controls);
    }
  }

  // In reverse order every node is reached after all of its consumers have added to it.
  void HashConsumers() {
    down_.assign(step_.nodes.size(), 0);
    for (size_t i = step_.nodes.size(); i-- > 0;) {
      down_[i] = Mix(up_[i], down_[i]);
      for (size_t e = step_.first_edge[i]; e < step_.first_edge[i + 1]; ++e) {
        const StepEdge& edge = step_.edges[e];
        down_[edge.source] += Mix(down_[i], Mix(edge.src_output + 1, edge.dst_input + 1));
      }
    }
  }

  // Nodes outside of the step that share a colocation group with it (through "_class" or through
  // resource and reference edges) narrow where the group may go: each kind of them counts once.
  uint64_t Constraints() {
    const std::vector<ClassMember> members = ClassMembers();
    uint64_t class_sum = 0;
    absl::flat_hash_map<uint64_t, std::vector<const Node*>> mixed;  // also has outside members
    absl::flat_hash_map<const Node*, std::vector<uint64_t>> classes_of;
    for (size_t begin = 0, end = 0; begin < members.size(); begin = end) {
      uint64_t sum = 0;
      bool is_mixed = false;
      for (; end < members.size() && members[end].group == members[begin].group; ++end) {
        const bool inside = step_.Contains(members[end].node);
        if (inside) sum += Mix(47, down_[step_.position[members[end].node->id()]]);
        is_mixed |= !inside;
      }
      if (sum != 0) class_sum += Mix(53, sum);
      for (size_t i = begin; is_mixed && i < end; ++i) {
        mixed[members[i].group].push_back(members[i].node);
        classes_of[members[i].node].push_back(members[i].group);
      }
    }
    std::vector<const Node*> frontier = binding_;
    for (const auto& [node, groups] : classes_of) {
      if (step_.Contains(node)) frontier.push_back(node);
    }
    absl::flat_hash_set<const Node*> outside;
    const auto reach = [&](const Node* node) {
      if (node->IsOp() && !step_.Contains(node) && outside.insert(node).second) {
        frontier.push_back(node);
      }
    };
    while (!frontier.empty()) {
      const Node* node = frontier.back();
      frontier.pop_back();
      for (const Edge* edge : node->out_edges()) {
        if (BindsEnds(*edge)) reach(edge->dst());
      }
      if (!step_.Contains(node)) {
        for (const Edge* edge : node->in_edges()) {
          if (BindsEnds(*edge)) reach(edge->src());
        }
      }
      const auto it = classes_of.find(node);
      if (it == classes_of.end()) continue;
      for (const uint64_t group : it->second) {
        for (const Node* member : mixed[group]) reach(member);
      }
    }
    absl::flat_hash_set<uint64_t> distinct;
    NodeHasher hasher(input_.library);
    for (const Node* node : outside) distinct.insert(hasher.Hash(*node));
    uint64_t outside_sum = 0;
    for (const uint64_t value : distinct) outside_sum += Mix(59, value);
    return Mix(Mix(Mix(43, input_.allow_soft_placement), class_sum), outside_sum);
  }

  // All (colocation class, member), sorted by class; "loc:@x" also holds the node x.
  std::vector<ClassMember> ClassMembers() const {
    constexpr std::string_view kPrefix = "loc:@";
    std::vector<ClassMember> members;
    for (const Node* node : classed_) {
      for (const auto& name : node->def().attr().at("_class").list().s()) {
        if (name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
        members.push_back({HashBytes(std::string_view(name).substr(kPrefix.size())), node});
      }
    }
    if (members.empty()) return members;
    absl::flat_hash_set<uint64_t> groups;
    for (const ClassMember& member : members) groups.insert(member.group);
    for (int id = 0; id < graph_.num_node_ids(); ++id) {
      if (groups.contains(name_hash_[id]))
        members.push_back({name_hash_[id], graph_.FindNodeId(id)});
    }
    std::sort(members.begin(), members.end(),
              [](const ClassMember& a, const ClassMember& b) { return a.group < b.group; });
    return members;
  }

  static std::string Key(const Fingerprint& fingerprint) {
    uint64_t low = 61;
    uint64_t high = 67;
    for (const auto& [name, value] : fingerprint.parts) {
      low = HashBytes(value, HashBytes(name, low));
      high = HashBytes(value, HashBytes(name, high));
    }
    return Hex(high) + Hex(low);
  }

  const Graph& graph_;
  const Step& step_;
  const FingerprintInput& input_;
  std::vector<uint64_t> name_hash_;   // by node id; 0: no op
  std::vector<const Node*> classed_;  // op nodes with a colocation class
  std::vector<const Node*> binding_;  // of the step, with a resource or reference output
  std::vector<int32_t> num_inputs_;   // by position
  std::vector<uint64_t> up_;          // by position: the node and its ancestors
  std::vector<uint64_t> down_;        // by position: and its consumers
};

}  // namespace

Fingerprint ComputeFingerprint(const FingerprintInput& input, std::vector<uint64_t>* node_hashes) {
  return Fingerprinter(input).Run(node_hashes);
}

}  // namespace hplacer
