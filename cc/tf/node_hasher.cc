#include "tf/node_hasher.h"

#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.pb.h"
#include "tensorflow/core/framework/types.h"
#include "tf/hash.h"

namespace hplacer {
namespace {

using tensorflow::AttrValue;
using tensorflow::FunctionDef;
using tensorflow::NodeDef;
using tensorflow::TensorProto;
using tensorflow::TensorShapeProto;

// Names, seeds and what else changes from run to run without changing what may be placed where.
bool IsIgnored(const std::string& name, bool is_argument) {
  static const auto* const ignored = new absl::flat_hash_set<std::string_view>(
      {"shared_name", "container", "seed", "seed2", "config_proto", "config", "frame_name",
       "tensor_array_name", "stack_name", "debug_name", "token"});
  if (name.empty() || ignored->contains(name)) return true;
  if (is_argument && name == "index") return true;  // follows the order of creation
  if (name[0] != '_' || name == "_XlaMustCompile" || name == "_noinline") return false;
  const bool is_shape =
      name == "_output_shapes" || name == "_handle_shapes" || name == "_handle_dtypes";
  return !(is_argument && is_shape);
}

uint64_t HashShape(const TensorShapeProto& shape) {
  uint64_t hash = Mix(11, shape.unknown_rank());
  for (const auto& dim : shape.dim()) hash = Mix(hash, static_cast<uint64_t>(dim.size()));
  return hash;
}

// Values count for integers, booleans and strings (shapes, axes, file names), not for
// floating-point numbers (initial values, learning rates).
uint64_t HashTensor(const TensorProto& proto) {
  uint64_t hash = Mix(static_cast<uint64_t>(proto.dtype()), HashShape(proto.tensor_shape()));
  const bool has_value =
      tensorflow::DataTypeIsInteger(proto.dtype()) || proto.dtype() == tensorflow::DT_BOOL;
  if (has_value) {
    tensorflow::Tensor tensor;
    if (tensor.FromProto(proto)) {
      const auto data = tensor.tensor_data();
      hash = HashBytes(std::string_view(data.data(), data.size()), hash);
    }
  } else if (proto.dtype() == tensorflow::DT_STRING) {
    for (const auto& value : proto.string_val()) hash = HashBytes(value, hash);
  }
  return hash;
}

}  // namespace

const NodeHasher::AttrName& NodeHasher::Name(const std::string& name) {
  const auto it = names_.find(name);
  if (it != names_.end()) return it->second;
  const AttrName known{HashBytes(name), IsIgnored(name, false), IsIgnored(name, true)};
  return names_.emplace(name, known).first->second;
}

uint64_t NodeHasher::HashValue(const AttrValue& value) {
  const auto tag = static_cast<uint64_t>(value.value_case());
  switch (value.value_case()) {
    case AttrValue::kS:
      return HashBytes(value.s(), tag);
    case AttrValue::kI:
      return Mix(tag, static_cast<uint64_t>(value.i()));
    case AttrValue::kF: {
      const float f = value.f();
      uint32_t bits;
      std::memcpy(&bits, &f, sizeof(bits));
      return Mix(tag, bits);
    }
    case AttrValue::kB:
      return Mix(tag, value.b());
    case AttrValue::kType:
      return Mix(tag, static_cast<uint64_t>(value.type()));
    case AttrValue::kShape:
      return Mix(tag, HashShape(value.shape()));
    case AttrValue::kTensor:
      return Mix(tag, HashTensor(value.tensor()));
    case AttrValue::kFunc: {
      uint64_t hash = Mix(tag, HashFunction(value.func().name()));
      uint64_t attrs = 0;
      for (const auto& [name, attr] : value.func().attr()) {
        const AttrName known = Name(name);
        if (!known.ignored) attrs += Mix(known.hash, HashValue(attr));
      }
      return Mix(hash, attrs);
    }
    case AttrValue::kList: {
      const auto& list = value.list();
      uint64_t hash = tag;
      for (const auto& s : list.s()) hash = HashBytes(s, hash);
      for (const auto i : list.i()) hash = Mix(hash, static_cast<uint64_t>(i));
      for (const float f : list.f()) {
        uint32_t bits;
        std::memcpy(&bits, &f, sizeof(bits));
        hash = Mix(hash, bits);
      }
      for (const bool b : list.b()) hash = Mix(hash, b);
      for (const auto type : list.type()) hash = Mix(hash, static_cast<uint64_t>(type));
      for (const auto& shape : list.shape()) hash = Mix(hash, HashShape(shape));
      for (const auto& tensor : list.tensor()) hash = Mix(hash, HashTensor(tensor));
      for (const auto& func : list.func()) hash = Mix(hash, HashFunction(func.name()));
      return hash;
    }
    default:
      return HashBytes(value.SerializeAsString(), tag);
  }
}

uint64_t NodeHasher::Hash(const NodeDef& node) {
  const bool is_argument = node.op() == "_Arg" || node.op() == "_Retval";
  uint64_t attrs = 0;
  for (const auto& [name, value] : node.attr()) {
    // A sum: protobuf maps have no order.
    const AttrName known = Name(name);
    if (is_argument ? known.ignored_for_arguments : known.ignored) continue;
    attrs += Mix(known.hash, HashValue(value));
  }
  // An op that is itself a call of a function is known by the body, not by its name.
  const bool is_call = library_ != nullptr && library_->Find(node.op()) != nullptr;
  return Mix(is_call ? HashFunction(node.op()) : HashBytes(node.op()), attrs);
}

uint64_t NodeHasher::Hash(const tensorflow::Node& node) {
  uint64_t hash = Hash(node.def());
  if (!node.requested_device().empty()) hash = HashBytes(node.requested_device(), Mix(hash, 1));
  if (node.has_assigned_device_name()) hash = HashBytes(node.assigned_device_name(), Mix(hash, 2));
  return hash;
}

uint64_t NodeHasher::HashFunction(const std::string& name) {
  const auto known = functions_.find(name);
  if (known != functions_.end()) return known->second;
  functions_[name] = 17;  // a recursive function meets this value inside its own body
  const FunctionDef* function = library_ == nullptr ? nullptr : library_->Find(name);
  const uint64_t hash = function == nullptr ? HashBytes(name) : HashBody(*function);
  functions_[name] = hash;
  return hash;
}

uint64_t NodeHasher::HashBody(const FunctionDef& function) {
  absl::flat_hash_map<std::string_view, uint64_t> value;  // by node or argument name
  uint64_t total = 0;
  for (int i = 0; i < function.signature().input_arg_size(); ++i) {
    const auto& arg = function.signature().input_arg(i);
    value[arg.name()] = Mix(Mix(23, i), static_cast<uint64_t>(arg.type()));
  }
  const auto input_hash = [&](std::string_view input) {
    const bool control = !input.empty() && input[0] == '^';
    if (control) input.remove_prefix(1);
    const size_t colon = input.find(':');
    const auto it = value.find(input.substr(0, colon));
    const uint64_t source = it == value.end() ? 0 : it->second;
    const std::string_view port =
        colon == std::string_view::npos ? std::string_view() : input.substr(colon);
    return Mix(Mix(source, control), HashBytes(port));
  };
  // Node order is free in a FunctionDef: hash in rounds until every input is known.
  std::vector<const NodeDef*> pending;
  for (const NodeDef& node : function.node_def()) pending.push_back(&node);
  while (!pending.empty()) {
    std::vector<const NodeDef*> later;
    absl::flat_hash_map<std::string_view, bool> waiting;
    for (const NodeDef* node : pending) waiting[node->name()] = true;
    for (const NodeDef* node : pending) {
      bool ready = true;
      for (const auto& input : node->input()) {
        std::string_view name = input;
        if (!name.empty() && name[0] == '^') name.remove_prefix(1);
        const auto it = waiting.find(name.substr(0, name.find(':')));
        if (it != waiting.end() && it->second) ready = false;
      }
      if (!ready) {
        later.push_back(node);
        continue;
      }
      uint64_t hash = Mix(Hash(*node), HashBytes(node->device()));
      uint64_t controls = 0;
      for (const auto& input : node->input()) {
        const uint64_t source = input_hash(input);
        if (absl::StartsWith(input, "^")) {
          controls += source;
        } else {
          hash = Mix(hash, source);
        }
      }
      hash = Mix(hash, controls);
      value[node->name()] = hash;
      waiting[node->name()] = false;
      total += Mix(29, hash);
    }
    if (later.size() == pending.size()) break;  // a loop: what is left counts by what is known
    pending = std::move(later);
  }
  uint64_t results = 0;
  for (const auto& arg : function.signature().output_arg()) {
    const auto it = function.ret().find(arg.name());
    if (it != function.ret().end()) results = Mix(results, input_hash(it->second));
  }
  return Mix(total, results);
}

}  // namespace hplacer
