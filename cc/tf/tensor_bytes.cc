#include "tf/tensor_bytes.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "tensorflow/core/framework/types.h"

namespace hplacer {
namespace {

using tensorflow::AttrValue;
using tensorflow::Edge;
using tensorflow::Node;
using tensorflow::TensorShapeProto;

constexpr int64_t kHandleBytes = 8;
constexpr int64_t kMaxBytes = int64_t{1} << 50;

bool IsInitialiser(const std::string& op) {
  static const auto* const ops = new absl::flat_hash_set<std::string_view>(
      {"Assign", "AssignVariableOp", "InitializeTable", "InitializeTableV2", "LookupTableImport",
       "LookupTableImportV2"});
  return ops->contains(op);
}

// Of the first initialiser: an op that sets all of the memory.
std::vector<const Edge*> InitialValues(const Node& node) {
  const Node* initialiser = nullptr;
  for (const Edge* edge : node.out_edges()) {
    if (edge->IsControlEdge() || edge->dst_input() != 0) continue;
    if (!IsInitialiser(edge->dst()->type_string())) continue;
    if (initialiser == nullptr || edge->dst()->id() < initialiser->id()) initialiser = edge->dst();
  }
  std::vector<const Edge*> values;
  if (initialiser == nullptr) return values;
  for (const Edge* edge : initialiser->in_edges()) {
    if (!edge->IsControlEdge() && edge->dst_input() > 0) values.push_back(edge);
  }
  return values;
}

bool IsKnown(const TensorShapeProto& shape) {
  return !shape.unknown_rank() &&
         std::all_of(shape.dim().begin(), shape.dim().end(),
                     [](const TensorShapeProto::Dim& dim) { return dim.size() >= 0; });
}

int64_t HandleArgumentBytes(const Node& node) {
  const AttrValue* shapes = node.attrs().Find("_handle_shapes");
  const AttrValue* dtypes = node.attrs().Find("_handle_dtypes");
  if (shapes == nullptr || dtypes == nullptr) return 0;
  int64_t bytes = 0;
  for (int i = 0; i < shapes->list().shape_size() && i < dtypes->list().type_size(); ++i) {
    if (shapes->list().shape(i).unknown_rank()) continue;
    bytes += NumBytes(dtypes->list().type(i), shapes->list().shape(i));
  }
  return bytes;
}

// A dense table allocates its buckets at once.
int64_t DenseTableBytes(const Node& node) {
  const AttrValue* buckets = node.attrs().Find("initial_num_buckets");
  const AttrValue* key = node.attrs().Find("key_dtype");
  const AttrValue* value = node.attrs().Find("value_dtype");
  const AttrValue* shape = node.attrs().Find("value_shape");
  if (buckets == nullptr || key == nullptr || value == nullptr || shape == nullptr) return 0;
  TensorShapeProto keys;
  keys.add_dim()->set_size(std::max<int64_t>(buckets->i(), 0));
  TensorShapeProto values = keys;
  for (const auto& dim : shape->shape().dim()) *values.add_dim() = dim;
  return std::min(NumBytes(key->type(), keys) + NumBytes(value->type(), values), kMaxBytes);
}

}  // namespace

bool IsHandle(tensorflow::DataType dtype) {
  const tensorflow::DataType base = tensorflow::BaseType(dtype);
  return base == tensorflow::DT_RESOURCE || base == tensorflow::DT_VARIANT;
}

int64_t NumBytes(tensorflow::DataType dtype, const TensorShapeProto& shape) {
  if (IsHandle(dtype)) return kHandleBytes;
  int64_t bytes = std::max(tensorflow::DataTypeSize(tensorflow::BaseType(dtype)), 1);
  for (const auto& dim : shape.dim()) {
    if (dim.size() == 0) return 0;
    if (bytes > kMaxBytes / std::max<int64_t>(dim.size(), 1)) return kMaxBytes;
    bytes *= std::max<int64_t>(dim.size(), 1);
  }
  return bytes;
}

PersistentMemory FindPersistentMemory(const Node& node) {
  const std::string& op = node.type_string();
  if (node.IsArg()) return {HandleArgumentBytes(node), {}};
  if (op == "MutableDenseHashTableV2") return {DenseTableBytes(node), {}};
  if (absl::StrContains(op, "HashTable")) return {0, InitialValues(node)};
  if (op != "VarHandleOp" && op != "VariableV2" && op != "Variable" && op != "AutoReloadVariable") {
    return {};
  }
  const AttrValue* shape = node.attrs().Find("shape");
  const AttrValue* dtype = node.attrs().Find("dtype");
  if (shape == nullptr || dtype == nullptr) return {};
  PersistentMemory memory;
  if (!IsKnown(shape->shape())) memory.initial_values = InitialValues(node);
  if (memory.initial_values.empty() && !shape->shape().unknown_rank()) {
    memory.bytes = NumBytes(dtype->type(), shape->shape());
  }
  return memory;
}

}  // namespace hplacer
