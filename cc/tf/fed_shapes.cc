#include "tf/fed_shapes.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/lib/gtl/edit_distance.h"
#include "tf/tensor_bytes.h"

namespace hplacer {
namespace {

using tensorflow::Node;
using tensorflow::PartialTensorShape;
using tensorflow::TensorShapeProto;

constexpr int64_t kDefaultBatchSize = 32;
constexpr size_t kMaxSuggestions = 5;

bool IsFed(const Node& node) {
  return node.IsArg() || absl::StartsWith(node.type_string(), "Placeholder") ||
         absl::StartsWith(node.type_string(), "IteratorGetNext");
}

// Of the outputs of a fed node, by output; unknown where the graph declares none.
std::vector<TensorShapeProto> DeclaredShapes(const Node& node) {
  std::vector<TensorShapeProto> shapes;
  const char* list = node.IsArg() ? "_output_shapes" : "output_shapes";
  if (const tensorflow::AttrValue* attr = node.attrs().Find(list)) {
    for (const auto& shape : attr->list().shape()) shapes.push_back(shape);
  } else if (const tensorflow::AttrValue* attr = node.attrs().Find("shape")) {
    shapes.push_back(attr->shape());
  }
  return shapes;
}

std::string TensorName(const Node& node, size_t output) {
  return absl::StrCat(node.name(), ":", output);
}

std::string WithOutput(const std::string& name) {
  const size_t colon = name.rfind(':');
  const bool has_output = colon != std::string::npos && colon + 1 < name.size() &&
                          name.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return has_output ? name : absl::StrCat(name, ":0");
}

// The names most like `name`, to be named in an error.
std::string Suggestions(const std::string& name, const std::vector<const Node*>& fed) {
  if (fed.empty()) return "this graph is fed with no tensor";
  std::vector<std::pair<int64_t, std::string>> ranked;
  for (const Node* node : fed) {
    const std::string& other = node->name();
    ranked.emplace_back(tensorflow::gtl::LevenshteinDistance(name, other, std::equal_to<char>()),
                        other);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < ranked.size() && i < kMaxSuggestions; ++i) {
    names.push_back(absl::StrCat("'", ranked[i].second, "'"));
  }
  const bool is_all = ranked.size() <= kMaxSuggestions;
  return absl::StrCat(is_all ? "the fed tensors are " : "the most similar fed tensors are ",
                      absl::StrJoin(names, ", "));
}

int64_t ChooseBatchSize(const std::vector<const Node*>& fed) {
  int64_t largest = 0;
  for (const Node* node : fed) {
    for (const TensorShapeProto& shape : DeclaredShapes(*node)) {
      if (shape.dim_size() > 0) largest = std::max<int64_t>(largest, shape.dim(0).size());
    }
  }
  return largest > 0 ? largest : kDefaultBatchSize;
}

// Whether the step has a shape of its own for what the node hands out.
bool HasFedShapes(const Node& node) {
  return IsFed(node) && (node.num_outputs() == 0 || !IsHandle(node.output_type(0)));
}

}  // namespace

std::vector<TensorShapeProto> KnownFedShapes(const Node& node) {
  if (!HasFedShapes(node)) return {};
  std::vector<TensorShapeProto> shapes = DeclaredShapes(node);
  while (static_cast<int>(shapes.size()) < node.num_outputs()) {
    shapes.emplace_back().set_unknown_rank(true);
  }
  return shapes;
}

bool FillShape(int64_t batch_size, TensorShapeProto* shape, int most_batches) {
  if (shape->unknown_rank()) {
    shape->Clear();
    return true;
  }
  int filled = 0;
  for (auto& dim : *shape->mutable_dim()) {
    if (dim.size() < 0) dim.set_size(filled++ < most_batches ? batch_size : 1);
  }
  return filled > 0;
}

absl::Status FedShapes::Resolve(const std::vector<Node*>& nodes, const NamedShapes& named,
                                int64_t batch_size) {
  std::vector<const Node*> fed;
  std::map<std::string, PartialTensorShape> declared;
  for (const Node* node : nodes) {
    if (!IsFed(*node)) continue;
    fed.push_back(node);
    const std::vector<TensorShapeProto> shapes = DeclaredShapes(*node);
    for (int k = 0; named.size() > 0 && k < node->num_outputs(); ++k) {
      if (IsHandle(node->output_type(k))) continue;
      const size_t i = static_cast<size_t>(k);
      declared.emplace(TensorName(*node, i),
                       i < shapes.size() ? PartialTensorShape(shapes[i]) : PartialTensorShape());
    }
  }
  for (const auto& [name, dims] : named) {
    const auto it = declared.find(WithOutput(name));
    if (it == declared.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a shape is given for '", name, "', which is not fed; ", Suggestions(name, fed)));
    }
    PartialTensorShape shape, merged;
    if (!PartialTensorShape::MakePartialShape(dims.data(), static_cast<int>(dims.size()), &shape)
             .ok() ||
        !it->second.MergeWith(shape, &merged).ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the shape [", absl::StrJoin(dims, ","), "] given for '", name,
                       "' contradicts the graph, which declares ", it->second.DebugString()));
    }
    merged.AsProto(&named_[it->first]);
  }
  batch_size_ = batch_size > 0 ? batch_size : ChooseBatchSize(fed);
  return absl::OkStatus();
}

std::vector<TensorShapeProto> FedShapes::Filled(const Node& node) {
  if (!HasFedShapes(node)) return {};
  std::vector<TensorShapeProto> shapes = DeclaredShapes(node);
  for (int k = 0; !named_.empty() && k < node.num_outputs(); ++k) {
    const auto it = named_.find(TensorName(node, static_cast<size_t>(k)));
    if (it == named_.end()) continue;
    while (static_cast<int>(shapes.size()) <= k) shapes.emplace_back().set_unknown_rank(true);
    shapes[k] = it->second;
  }
  bool filled = false;
  for (TensorShapeProto& shape : shapes) filled |= FillShape(batch_size_, &shape);
  num_filled_ += filled;
  return shapes;
}

}  // namespace hplacer
