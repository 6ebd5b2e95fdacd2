#include "tf/gpu_kernels.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hplacer {
namespace {

using nlohmann::json;
using tensorflow::AttrValue;
using tensorflow::KernelDef;

// Fills the allowed values of one attribute. False for a type that this TensorFlow does not know.
bool AddValues(char kind, const json& values, AttrValue::ListValue* list) {
  for (const json& value : values) {
    switch (kind) {
      case 't': {
        tensorflow::DataType type;
        if (!tensorflow::DataType_Parse(absl::StrCat("DT_", std::string(value)), &type)) {
          return false;
        }
        list->add_type(type);
        break;
      }
      case 's':
        list->add_s(value.get<std::string>());
        break;
      case 'b':
        list->add_b(value.get<bool>());
        break;
      default:
        list->add_i(value.get<int64_t>());
    }
  }
  return true;
}

bool IsKnown(const KernelDef& kernel) {
  const tensorflow::OpDef* op = nullptr;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef(kernel.op(), &op).ok()) return false;
  const auto has_attribute = [&](const auto& constraint) {
    return std::any_of(op->attr().begin(), op->attr().end(),
                       [&](const auto& attr) { return attr.name() == constraint.name(); });
  };
  const auto has_argument = [&](const std::string& name) {
    const auto is_it = [&](const auto& argument) { return argument.name() == name; };
    return std::any_of(op->input_arg().begin(), op->input_arg().end(), is_it) ||
           std::any_of(op->output_arg().begin(), op->output_arg().end(), is_it);
  };
  return std::all_of(kernel.constraint().begin(), kernel.constraint().end(), has_attribute) &&
         std::all_of(kernel.host_memory_arg().begin(), kernel.host_memory_arg().end(),
                     has_argument);
}

std::map<std::string, std::set<std::string>> AllowedValues(const KernelDef& kernel) {
  std::map<std::string, std::set<std::string>> allowed;
  for (const auto& constraint : kernel.constraint()) {
    std::set<std::string>& values = allowed[constraint.name()];
    const AttrValue::ListValue& list = constraint.allowed_values().list();
    for (const int type : list.type()) values.insert(absl::StrCat("type ", type));
    for (const std::string& text : list.s()) values.insert(absl::StrCat("text ", text));
    for (const bool flag : list.b()) values.insert(flag ? "true" : "false");
    for (const int64_t number : list.i()) values.insert(absl::StrCat(number));
  }
  return allowed;
}

// Whether some node could match both.
bool Overlap(const KernelDef& one, const KernelDef& other) {
  const auto mine = AllowedValues(one), theirs = AllowedValues(other);
  return std::all_of(mine.begin(), mine.end(), [&](const auto& attribute) {
    const auto found = theirs.find(attribute.first);
    if (found == theirs.end()) return true;
    return std::any_of(attribute.second.begin(), attribute.second.end(),
                       [&](const std::string& value) { return found->second.count(value) > 0; });
  });
}

std::vector<KernelDef> Read(const json& table) {
  using Key = std::tuple<std::string, std::string, std::string>;
  const auto key_of = [](const KernelDef& kernel) {
    return Key(kernel.op(), kernel.device_type(), kernel.label());
  };
  std::map<Key, std::vector<KernelDef>> registered;
  const tensorflow::KernelList all = tensorflow::GetAllRegisteredKernels();
  for (const KernelDef& kernel : all.kernel()) {
    registered[key_of(kernel)].push_back(kernel);
  }
  std::vector<KernelDef> missing;
  for (const auto& [op, groups] : table.at("kernels").items()) {
    for (const json& group : groups) {
      KernelDef common;
      common.set_op(op);
      common.set_device_type(group.at("device").get<std::string>());
      common.set_label(group.value("label", ""));
      common.set_priority(group.value("priority", 0));
      for (const json& name : group.value("host", json::array())) {
        common.add_host_memory_arg(name.get<std::string>());
      }
      for (const json& row : group.at("rows")) {
        KernelDef kernel = common;
        bool is_known = true;
        for (size_t i = 0; i < row.size(); ++i) {
          const std::string column = group.at("attrs").at(i);  // NAME:KIND
          auto* constraint = kernel.add_constraint();
          constraint->set_name(column.substr(0, column.size() - 2));
          is_known &= AddValues(column.back(), row[i],
                                constraint->mutable_allowed_values()->mutable_list());
        }
        const std::vector<KernelDef>& known = registered[key_of(kernel)];
        if (is_known && IsKnown(kernel) &&
            std::none_of(known.begin(), known.end(),
                         [&](const KernelDef& other) { return Overlap(kernel, other); })) {
          missing.push_back(std::move(kernel));
        }
      }
    }
  }
  return missing;
}

}  // namespace

absl::StatusOr<std::vector<KernelDef>> MissingGpuKernels(const std::string& table) {
  try {
    return Read(json::parse(table));
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not a table of kernels: ", error.what()));
  }
}

}  // namespace hplacer
