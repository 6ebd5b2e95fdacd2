#include "tf/assignment.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tf/node_order.h"
#include "tf/parallel.h"

namespace hplacer {
namespace {

using tensorflow::Node;

absl::Status CheckDevices(const Assignment& assignment, const std::vector<SessionDevice>& devices) {
  for (const std::string& name : assignment.device_names) {
    const bool known = std::any_of(devices.begin(), devices.end(),
                                   [&](const SessionDevice& d) { return d.name == name; });
    if (!known) {
      return absl::FailedPreconditionError(
          absl::StrCat("the plan uses device ", name, ", which this session does not have"));
    }
  }
  for (const uint16_t device : assignment.devices) {
    if (device >= assignment.device_names.size()) {
      return absl::FailedPreconditionError("the plan has a device index out of range");
    }
  }
  return absl::OkStatus();
}

// Gives the nodes that are not `taken` the devices of `entries`, by hash alone. False, with
// `resolved` incomplete, if that does not tell which node gets which.
bool ResolveByHash(const Step& step, const std::vector<uint64_t>& node_hashes,
                   const Assignment& assignment, const std::vector<size_t>& entries,
                   const std::vector<bool>& taken, NodeDevices* resolved) {
  struct Wanted {
    size_t count = 0;
    uint16_t device = 0;
  };
  absl::flat_hash_map<uint64_t, Wanted> wanted_of;
  for (const size_t entry : entries) {
    Wanted& wanted = wanted_of[assignment.hashes[entry]];
    if (wanted.count++ > 0 && wanted.device != assignment.devices[entry]) return false;
    wanted.device = assignment.devices[entry];
  }
  for (size_t i = 0; i < step.nodes.size(); ++i) {
    if (taken[i]) continue;
    const auto it = wanted_of.find(node_hashes[i]);
    if (it == wanted_of.end()) continue;
    if (it->second.count-- == 0) return false;  // more nodes than entries
    resolved->devices.emplace_back(step.nodes[i], &assignment.device_names[it->second.device]);
  }
  return std::all_of(wanted_of.begin(), wanted_of.end(),
                     [](const auto& wanted) { return wanted.second.count == 0; });
}

// Gives every entry the node of its hash and rank.
absl::Status ResolveByRank(const FingerprintInput& input, const std::vector<uint64_t>& node_hashes,
                           const Assignment& assignment, NodeDevices* resolved) {
  if (assignment.ranks.empty()) {
    return absl::FailedPreconditionError(
        "several nodes are alike but have different devices in the plan, their names changed, and "
        "the plan does not tell them apart");
  }
  const Step& step = *input.step;
  const NodeOrder order = FindNodeOrder(*input.graph, step, input.library, node_hashes);
  if (order.structure != assignment.structure) {
    return absl::FailedPreconditionError(
        "several nodes are alike but have different devices in the plan, their names changed, and "
        "this graph joins them in another way");
  }
  absl::flat_hash_map<std::pair<uint64_t, uint32_t>, Node*> node_of;
  node_of.reserve(step.nodes.size());
  for (size_t i = 0; i < step.nodes.size(); ++i) {
    node_of.emplace(std::make_pair(node_hashes[i], order.ranks[i]), step.nodes[i]);
  }
  resolved->devices.clear();
  for (size_t entry = 0; entry < assignment.hashes.size(); ++entry) {
    const auto it = node_of.find({assignment.hashes[entry], assignment.ranks[entry]});
    if (it == node_of.end()) {
      return absl::FailedPreconditionError("the plan has nodes that this graph does not have");
    }
    resolved->devices.emplace_back(it->second, &assignment.device_names[assignment.devices[entry]]);
    node_of.erase(it);
  }
  return absl::OkStatus();
}

}  // namespace

NameIndex IndexNames(const Step& step) {
  NameIndex position;
  position.reserve(step.nodes.size());
  for (size_t i = 0; i < step.nodes.size(); ++i) {
    position.emplace(step.nodes[i]->name(), static_cast<int32_t>(i));
  }
  return position;
}

absl::Status ResolveAssignment(const FingerprintInput& input,
                               const std::vector<uint64_t>& node_hashes,
                               const Assignment& assignment, const NameIndex& position,
                               NodeDevices* resolved) {
  if (absl::Status status = CheckDevices(assignment, *input.devices); !status.ok()) return status;
  const Step& step = *input.step;
  resolved->devices.clear();
  resolved->devices.reserve(assignment.hashes.size());
  std::vector<bool> taken(step.nodes.size(), false);
  std::vector<size_t> renamed;
  std::string_view names = assignment.names;
  for (size_t entry = 0; entry < assignment.hashes.size(); ++entry) {
    const std::string_view name = names.substr(0, names.find('\n'));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const auto it = position.find(name);
    if (it == position.end() || node_hashes[it->second] != assignment.hashes[entry] ||
        taken[it->second]) {
      renamed.push_back(entry);
      continue;
    }
    taken[it->second] = true;
    resolved->devices.emplace_back(step.nodes[it->second],
                                   &assignment.device_names[assignment.devices[entry]]);
  }
  resolved->differs = !renamed.empty();
  if (!resolved->differs ||
      ResolveByHash(step, node_hashes, assignment, renamed, taken, resolved)) {
    return absl::OkStatus();
  }
  return ResolveByRank(input, node_hashes, assignment, resolved);
}

Assignment RenamedAssignment(const NodeDevices& resolved) {
  Assignment named;
  absl::flat_hash_map<std::string_view, uint16_t> index;
  for (const auto& [node, device] : resolved.devices) {
    const auto [it, is_new] = index.emplace(*device, static_cast<uint16_t>(index.size()));
    if (is_new) named.device_names.push_back(*device);
    if (!named.names.empty()) named.names += '\n';
    named.names += node->name();
    named.devices.push_back(it->second);
  }
  return named;
}

void ApplyDevices(const NodeDevices& resolved) {
  std::vector<std::string> before(resolved.devices.size());
  std::vector<char> is_changed(resolved.devices.size(), 0);
  // Each call changes its own node only, and copies a NodeDef that TensorFlow's base graph shares.
  try {
    ParallelFor(resolved.devices.size(), [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const auto& [node, device] = resolved.devices[i];
        before[i] = node->requested_device();
        is_changed[i] = 1;
        node->set_requested_device(*device);
      }
    });
  } catch (...) {
    for (size_t i = 0; i < before.size(); ++i) {
      if (is_changed[i]) resolved.devices[i].first->set_requested_device(before[i]);
    }
    throw;
  }
}

}  // namespace hplacer
