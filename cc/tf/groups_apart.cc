#include "tf/groups_apart.h"

#include <array>
#include <string>
#include <string_view>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace hplacer {
namespace {

using tensorflow::DeviceNameUtils;
using tensorflow::Edge;
using tensorflow::Node;

// The two that a NoOp waits for and their Identities that wait for it.
using Neighbours = std::array<const Node*, 4>;

// False if the node is no group of two.
bool FindNeighbours(const Node& node, Neighbours* neighbours) {
  if (node.type_string() != "NoOp") return false;
  size_t count = 0;
  for (const Edge* edge : node.in_edges()) {
    if (edge->src()->IsSource()) continue;
    if (count == 2) return false;
    (*neighbours)[count++] = edge->src();
  }
  if (count != 2) return false;
  for (const Edge* edge : node.out_edges()) {
    const Node* const reader = edge->dst();
    if (reader->IsSink()) continue;
    const Node* read = nullptr;
    if (count == neighbours->size() || !reader->IsIdentity()) return false;
    if (!reader->input_node(0, &read).ok()) return false;
    if (read != (*neighbours)[0] && read != (*neighbours)[1]) return false;
    (*neighbours)[count++] = reader;
  }
  return count == neighbours->size();
}

// Whether the node, which asks for the device of this name in part, may be there.
bool MayBeOn(const std::string& asked, const std::string& name) {
  DeviceNameUtils::ParsedName partial, full;
  return !DeviceNameUtils::ParseFullName(asked, &partial) ||
         !DeviceNameUtils::ParseFullName(name, &full) ||
         DeviceNameUtils::IsSpecification(partial, full);
}

}  // namespace

void SetGroupsApart(const std::vector<SessionDevice>& devices, NodeDevices* resolved) {
  absl::flat_hash_map<const Node*, const std::string*> planned;
  planned.reserve(resolved->devices.size());
  for (const auto& [node, device] : resolved->devices) planned.emplace(node, device);
  const auto device_of = [&planned](const Node* node) -> const std::string& {
    const auto it = planned.find(node);
    return it == planned.end() ? node->requested_device() : *it->second;
  };
  Neighbours neighbours;
  for (auto& [node, device] : resolved->devices) {
    if (!FindNeighbours(*node, &neighbours)) continue;
    const std::string& first = device_of(neighbours[0]);
    if (absl::c_all_of(neighbours, [&](const Node* n) { return device_of(n) == first; })) continue;
    const auto free = absl::c_find_if(devices, [&, task = TaskOf(*device)](const auto& other) {
      return other.may_plan && TaskOf(other.name) == task &&
             absl::c_none_of(neighbours,
                             [&](const Node* n) { return MayBeOn(device_of(n), other.name); });
    });
    if (free == devices.end()) continue;
    device = &free->name;
    resolved->differs = true;
  }
}

}  // namespace hplacer
