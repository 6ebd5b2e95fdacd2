// Writes a plan's devices into a graph: checked as a whole first, then all or nothing.
#ifndef HPLACER_TF_ASSIGNMENT_H_
#define HPLACER_TF_ASSIGNMENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tf/captured_step.h"
#include "tf/fingerprint.h"
#include "tf/step.h"

namespace hplacer {

struct NodeDevices {
  std::vector<std::pair<tensorflow::Node*, const std::string*>> devices;
  bool differs = false;  // some nodes have other names or devices than in the assignment
};

// Step positions by node name; valid as long as the step's nodes.
using NameIndex = absl::flat_hash_map<std::string_view, int32_t>;
NameIndex IndexNames(const Step& step);

// Finds the node of every entry of `assignment`: by name where name and hash agree, else by hash,
// and where alike nodes (of one hash) have different devices, all of them by hash and rank.
// FailedPrecondition, with nothing changed, if a device is not among the session's, an entry has no
// node, or alike nodes cannot be told apart: the assignment has no ranks or another structure.
//
//   entry (name, hash, rank, device)        graph                        result
//   ("a", 7, 0, CPU:1)                      a:7                          a -> CPU:1
//   ("a", 7, 0, CPU:1)                      renamed_a:7                  renamed_a -> CPU:1
//   ("a", 7, 0, CPU:0) ("b", 7, 1, CPU:1)   x:7 (rank 1) y:7 (rank 0)    x -> CPU:1, y -> CPU:0
absl::Status ResolveAssignment(const FingerprintInput& input,
                               const std::vector<uint64_t>& node_hashes,
                               const Assignment& assignment, const NameIndex& position,
                               NodeDevices* resolved);

// The assignment under the names of this graph's nodes, without hashes.
Assignment RenamedAssignment(const NodeDevices& resolved);

// Requests the devices; if something is thrown, as good as none of them.
//
//   before: node "a" requests ""         after: node "a" requests "/job:.../device:CPU:1"
void ApplyDevices(const NodeDevices& resolved);

}  // namespace hplacer

#endif  // HPLACER_TF_ASSIGNMENT_H_
