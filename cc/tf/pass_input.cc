#include "tf/pass_input.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorflow/core/util/device_name_utils.h"
#include "tf/bridge.h"
#include "tf/fail_open.h"

namespace hplacer {

using tensorflow::DeviceNameUtils;
using tensorflow::GraphOptimizationPassOptions;

std::string GraphLabel(const GraphOptimizationPassOptions& options) {
  if (!options.is_function_graph) return "session graph";
  if (options.function_def == nullptr) return "function";
  std::string name = options.function_def->signature().name();
  const size_t last = name.rfind('_');
  if (last != std::string::npos && last + 1 < name.size() &&
      name.find_first_not_of("0123456789", last + 1) == std::string::npos) {
    name.resize(last);
  }
  return absl::StrCat("function ", absl::StripPrefix(name, "__inference_"));
}

void ReportFailure(const GraphOptimizationPassOptions& options, const std::string& reason) {
  const std::string failure = WhatFails([&] {
    PassReport report;
    report.label = GraphLabel(options);
    report.outcome = "failed";
    report.reason = reason;
    Bridge::Get().AddReport(std::move(report));
  });
  if (failure.empty()) return;
  std::fprintf(stderr, "hplacer: TensorFlow's own placement is kept: %s\n", reason.c_str());
}

std::vector<SessionDevice> SessionDevices(const GraphOptimizationPassOptions& options,
                                          const std::vector<std::string>& wanted) {
  const tensorflow::Device* home = options.is_function_graph && options.default_function_device
                                       ? options.default_function_device
                                       : options.device_set->client_device();
  std::vector<SessionDevice> devices;
  for (const tensorflow::Device* device : options.device_set->devices()) {
    const std::string& type = device->device_type();
    if (absl::StartsWith(type, "XLA_") || type == "TPU_SYSTEM" || type == "COMPOSITE" ||
        absl::StartsWith(type, "REMOTE")) {
      continue;
    }
    SessionDevice entry;
    entry.name = device->name();
    entry.type = type;
    entry.description = device->attributes().physical_device_desc();
    entry.memory_bytes = device->attributes().memory_limit();
    if (wanted.empty()) {
      entry.may_plan = home == nullptr || DeviceNameUtils::IsSameAddressSpace(
                                              home->parsed_name(), device->parsed_name());
    } else {
      entry.may_plan = false;
      for (const std::string& spec : wanted) {
        DeviceNameUtils::ParsedName parsed;
        const std::string full = absl::StartsWith(spec, "/") ? spec : "/device:" + spec;
        entry.may_plan |= DeviceNameUtils::ParseFullName(full, &parsed) &&
                          DeviceNameUtils::IsCompleteSpecification(parsed, device->parsed_name());
      }
    }
    devices.push_back(std::move(entry));
  }
  std::sort(devices.begin(), devices.end(),
            [](const SessionDevice& a, const SessionDevice& b) { return a.name < b.name; });
  return devices;
}

namespace {

// "name: Tesla V100-SXM2-16GB" of a GPU; nothing of a CPU, which has no description.
std::string_view Model(const SessionDevice& device) {
  const std::string_view description = device.description;
  const size_t begin = description.find("name: ");
  if (begin == std::string_view::npos) return {};
  return description.substr(begin, description.find(',', begin) - begin);
}

bool IsCpu(const SessionDevice& device) { return device.type == tensorflow::DEVICE_CPU; }

}  // namespace

int KeepOneKind(std::vector<SessionDevice>* devices) {
  const SessionDevice* first = nullptr;
  for (const SessionDevice& device : *devices) {
    if (!device.may_plan) continue;
    if (first == nullptr || (IsCpu(*first) && !IsCpu(device))) first = &device;
  }
  if (first == nullptr) return 0;
  int left = 0;
  for (SessionDevice& device : *devices) {
    device.may_plan &= device.type == first->type && Model(device) == Model(*first);
    left += device.may_plan;
  }
  return left;
}

bool AllowsSoftPlacement(const GraphOptimizationPassOptions& options) {
  const auto* session = options.session_options;
  return session == nullptr || session->config.allow_soft_placement();
}

UnitsInput MakeUnitsInput(const GraphOptimizationPassOptions& options, const Step* step,
                          const std::vector<SessionDevice>* devices) {
  const bool is_function = options.is_function_graph;
  const bool is_named = is_function && options.function_def != nullptr;
  return {options.graph->get(),
          step,
          options.flib_def,
          options.device_set,
          is_function ? options.default_function_device : nullptr,
          devices,
          AllowsSoftPlacement(options),
          is_named ? options.function_def->signature().name() : std::string()};
}

}  // namespace hplacer
