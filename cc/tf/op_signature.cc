#include "tf/op_signature.h"

#include <map>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tensorflow/core/framework/types.h"

namespace hplacer {
namespace {

using tensorflow::AttrValue;

bool IsNaming(const std::string& attr) {
  static const auto* const names =
      new absl::flat_hash_set<std::string_view>({"allowed_devices",
                                                 "config",
                                                 "config_proto",
                                                 "container",
                                                 "debug_name",
                                                 "device",
                                                 "executor_type",
                                                 "frame_name",
                                                 "message",
                                                 "name",
                                                 "output_shapes",
                                                 "parallel_iterations",
                                                 "recv_device",
                                                 "seed",
                                                 "seed2",
                                                 "send_device",
                                                 "send_device_incarnation",
                                                 "shared_name",
                                                 "stack_name",
                                                 "tensor_array_name",
                                                 "tensor_name",
                                                 "value"});
  return attr.empty() || attr[0] == '_' || names->contains(attr);
}

std::string ShapeText(const tensorflow::TensorShapeProto& shape) {
  if (shape.unknown_rank()) return "[...]";
  std::vector<int64_t> dims;
  for (const auto& dim : shape.dim()) dims.push_back(dim.size());
  return absl::StrCat("[", absl::StrJoin(dims, ","), "]");
}

std::string FloatText(float value) { return absl::StrFormat("%.9g", value); }
std::string BytesText(const std::string& value) {
  return absl::StrCat("\"", absl::CHexEscape(value), "\"");
}

template <typename Values, typename Text>
void Append(const Values& values, const Text& text, std::vector<std::string>* items) {
  for (const auto& value : values) items->push_back(text(value));
}

// Of a value that is not a function; tensors count by dtype and shape.
std::string ValueText(const AttrValue& value) {
  const auto type_text = [](int type) {
    return tensorflow::DataTypeString(static_cast<tensorflow::DataType>(type));
  };
  const auto tensor_text = [&](const tensorflow::TensorProto& tensor) {
    return absl::StrCat(type_text(tensor.dtype()), ShapeText(tensor.tensor_shape()));
  };
  switch (value.value_case()) {
    case AttrValue::kS:
      return BytesText(value.s());
    case AttrValue::kI:
      return absl::StrCat(value.i());
    case AttrValue::kF:
      return FloatText(value.f());
    case AttrValue::kB:
      return value.b() ? "true" : "false";
    case AttrValue::kType:
      return type_text(value.type());
    case AttrValue::kShape:
      return ShapeText(value.shape());
    case AttrValue::kTensor:
      return tensor_text(value.tensor());
    case AttrValue::kList: {
      std::vector<std::string> items;
      Append(value.list().s(), BytesText, &items);
      Append(value.list().i(), [](int64_t i) { return absl::StrCat(i); }, &items);
      Append(value.list().f(), FloatText, &items);
      Append(value.list().b(), [](bool b) { return std::string(b ? "true" : "false"); }, &items);
      Append(value.list().type(), type_text, &items);
      Append(value.list().shape(), ShapeText, &items);
      Append(value.list().tensor(), tensor_text, &items);
      return absl::StrCat("[", absl::StrJoin(items, ","), "]");
    }
    default:
      return "";
  }
}

}  // namespace

std::string OpSignature(const tensorflow::OpInfo& op) {
  std::map<std::string, std::string> attrs;
  for (const auto& [name, value] : op.attr()) {
    if (value.has_func() || value.list().func_size() > 0) return "";
    if (!IsNaming(name)) attrs.emplace(name, ValueText(value));
  }
  std::string text =
      absl::StrCat(op.op(), "{", absl::StrJoin(attrs, ",", absl::PairFormatter("=")), "}");
  const auto append = [&text](const auto& tensors) {
    for (const auto& tensor : tensors) {
      absl::StrAppend(&text, " ", tensorflow::DataTypeString(tensorflow::BaseType(tensor.dtype())),
                      ShapeText(tensor.shape()));
    }
  };
  append(op.inputs());
  text += " ->";
  append(op.outputs());
  return text;
}

}  // namespace hplacer
