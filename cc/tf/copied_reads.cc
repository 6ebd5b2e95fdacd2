#include "tf/copied_reads.h"

#include <string>

#include "absl/strings/match.h"

namespace hplacer {
namespace {

using tensorflow::Edge;
using tensorflow::Node;

bool HandsOnHandle(const Node& node) {
  return node.IsIdentity() || node.IsEnter() || node.IsSwitch();
}

// Each of them calls EnsureSparseVariableAccess.
bool UpdatesRows(const Node& node) {
  const std::string& type = node.type_string();
  return absl::StartsWith(type, "ResourceScatter") ||
         absl::StartsWith(type, "ResourceSparseApply") || type == "ResourceStridedSliceAssign";
}

bool HasRowsUpdated(const Node& handle) {
  for (const Edge* edge : handle.out_edges()) {
    if (edge->IsControlEdge()) continue;
    if (UpdatesRows(*edge->dst())) return true;
    if (HandsOnHandle(*edge->dst()) && HasRowsUpdated(*edge->dst())) return true;
  }
  return false;
}

}  // namespace

bool IsCopiedRead(const Node& node) {
  if (node.type_string() != "ReadVariableOp") return false;
  const Node* handle = nullptr;
  do {
    if (!(handle != nullptr ? *handle : node).input_node(0, &handle).ok()) return false;
  } while (HandsOnHandle(*handle));
  return HasRowsUpdated(*handle);
}

}  // namespace hplacer
