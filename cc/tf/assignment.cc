#include "tf/assignment.h"

#include <algorithm>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
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

// Entries whose names are unknown here: each hash must have one device, and nodes for it.
class HashResolver {
 public:
  HashResolver(const Step& step, const std::vector<uint64_t>& node_hashes,
               const std::vector<bool>& taken) {
    for (size_t i = 0; i < step.nodes.size(); ++i) {
      if (!taken[i]) free_[node_hashes[i]].push_back(step.nodes[i]);
    }
  }

  absl::Status Add(uint64_t hash, uint16_t device) {
    Wanted& wanted = wanted_[hash];
    if (wanted.count++ > 0 && wanted.device != device) {
      return absl::FailedPreconditionError(
          "several nodes are alike but have different devices in the plan, and their names "
          "changed");
    }
    wanted.device = device;
    return absl::OkStatus();
  }

  absl::Status Finish(const Assignment& assignment, NodeDevices* resolved) const {
    for (const auto& [hash, wanted] : wanted_) {
      const auto it = free_.find(hash);
      if (it == free_.end() || it->second.size() != wanted.count) {
        return absl::FailedPreconditionError("the plan has nodes that this graph does not have");
      }
      for (Node* node : it->second) {
        resolved->devices.emplace_back(node, &assignment.device_names[wanted.device]);
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Wanted {
    size_t count = 0;
    uint16_t device = 0;
  };
  absl::flat_hash_map<uint64_t, std::vector<Node*>> free_;
  absl::flat_hash_map<uint64_t, Wanted> wanted_;
};

}  // namespace

NameIndex IndexNames(const Step& step) {
  NameIndex position;
  position.reserve(step.nodes.size());
  for (size_t i = 0; i < step.nodes.size(); ++i) {
    position.emplace(step.nodes[i]->name(), static_cast<int32_t>(i));
  }
  return position;
}

absl::Status ResolveAssignment(const Step& step, const std::vector<uint64_t>& node_hashes,
                               const Assignment& assignment,
                               const std::vector<SessionDevice>& devices, const NameIndex& position,
                               NodeDevices* resolved) {
  if (absl::Status status = CheckDevices(assignment, devices); !status.ok()) return status;
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
  resolved->renamed = !renamed.empty();
  if (!resolved->renamed) return absl::OkStatus();
  HashResolver resolver(step, node_hashes, taken);
  for (const size_t entry : renamed) {
    absl::Status status = resolver.Add(assignment.hashes[entry], assignment.devices[entry]);
    if (!status.ok()) return status;
  }
  return resolver.Finish(assignment, resolved);
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
  // Each call changes its own node only, and copies a NodeDef that TensorFlow's base graph shares.
  ParallelFor(resolved.devices.size(), [&resolved](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const auto& [node, device] = resolved.devices[i];
      node->set_requested_device(*device);
    }
  });
}

}  // namespace hplacer
