#include "engine/problem/problem_check.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace hplacer {
namespace {

void CheckSize(const char* field, size_t actual, size_t expected) {
  if (actual != expected) {
    Fail(field, "has " + std::to_string(actual) + " values, expected " + std::to_string(expected));
  }
}

void CheckOptionalSize(const char* field, size_t actual, size_t expected) {
  if (actual != 0) CheckSize(field, actual, expected);
}

// CSR offsets rise from 0 to `total`.
void CheckOffsets(const char* field, const std::vector<int64_t>& offsets, size_t rows,
                  size_t total) {
  CheckSize(field, offsets.size(), rows + 1);
  bool valid = offsets.front() == 0 && offsets.back() == static_cast<int64_t>(total);
  for (size_t i = 0; i < rows; ++i) valid = valid && offsets[i] <= offsets[i + 1];
  if (!valid) Fail(field, "offsets must rise from 0 to " + std::to_string(total));
}

void CheckAtLeast(int64_t minimum, int64_t value, const char* list, int64_t index,
                  const char* field) {
  if (value >= minimum) return;
  Fail(FieldPath(list, index, field),
       "must be at least " + std::to_string(minimum) + ", got " + std::to_string(value));
}

void CheckIndex(int64_t value, size_t size, const char* what, const char* list, int64_t index,
                const char* field = "") {
  if (value >= 0 && value < static_cast<int64_t>(size)) return;
  Fail(FieldPath(list, index, field), std::string(what) + " " + std::to_string(value) +
                                          " is out of range, there are " + std::to_string(size));
}

void CheckAtMost(int64_t maximum, size_t count, const char* field, const char* what) {
  if (static_cast<int64_t>(count) <= maximum) return;
  Fail(field, std::to_string(count) + what + ", the limit is " + std::to_string(maximum));
}

void CheckDistinct(const std::vector<std::string>& names, const char* list, const char* field) {
  std::unordered_set<std::string_view> seen;
  seen.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (!seen.insert(names[i]).second) {
      Fail(FieldPath(list, i, field), "the name '" + names[i] + "' is given twice");
    }
  }
}

void CheckSizes(const ProblemSpec& spec) {
  const size_t m = spec.device_names.size();
  const size_t links = spec.link_src.size();
  const size_t n = spec.op_names.size();
  const size_t tensors = spec.output_bytes.size();
  CheckSize("device_kind", spec.device_kind.size(), m);
  CheckSize("device_memory_bytes", spec.device_memory_bytes.size(), m);
  CheckSize("device_slots", spec.device_slots.size(), m);
  CheckOptionalSize("device_cores", spec.device_cores.size(), m);
  CheckOptionalSize("device_start_ns", spec.device_start_ns.size(), m);
  CheckOptionalSize("device_turn_ns", spec.device_turn_ns.size(), m);
  CheckOptionalSize("device_cold_ns", spec.device_cold_ns.size(), m);
  CheckOptionalSize("device_launch_ns", spec.device_launch_ns.size(), m);
  CheckSize("link_dst", spec.link_dst.size(), links);
  CheckSize("link_channel", spec.link_channel.size(), links);
  CheckSize("link_latency_ns", spec.link_latency_ns.size(), links);
  CheckSize("link_bytes_per_s", spec.link_bytes_per_s.size(), links);
  CheckOptionalSize("link_send_ns", spec.link_send_ns.size(), links);
  CheckOptionalSize("link_send_bytes_per_s", spec.link_send_bytes_per_s.size(), links);
  CheckOptionalSize("link_receive_ns", spec.link_receive_ns.size(), links);
  CheckOptionalSize("link_receive_bytes_per_s", spec.link_receive_bytes_per_s.size(), links);
  CheckSize("op_types", spec.op_types.size(), n);
  CheckSize("cost_ns", spec.cost_ns.size(), n * spec.device_kinds.size());
  CheckOffsets("output_ptr", spec.output_ptr, n, tensors);
  CheckSize("output_alias_src", spec.output_alias_src.size(), tensors);
  CheckSize("output_alias_output", spec.output_alias_output.size(), tensors);
  CheckSize("temp_bytes", spec.temp_bytes.size(), n);
  CheckSize("persistent_bytes", spec.persistent_bytes.size(), n);
  CheckSize("edges", spec.edges.size() % 3, 0);
  CheckSize("control_edges", spec.control_edges.size() % 2, 0);
  CheckOffsets("allowed_ptr", spec.allowed_ptr, n, spec.allowed_device.size());
  CheckSize("allowed_given", spec.allowed_given.size(), n);
  CheckSize("colocation_group", spec.colocation_group.size(), n);
  CheckOptionalSize("same_as", spec.same_as.size(), n);
  CheckOptionalSize("default_device", spec.default_device.size(), n);
  CheckSize("order_inputs", spec.order_inputs.size() % 2, 0);
  if (!spec.order_op.empty() || !spec.order_input_ptr.empty()) {
    CheckOffsets("order_input_ptr", spec.order_input_ptr, spec.order_op.size(),
                 spec.order_inputs.size() / 2);
  }
}

void CheckNotNegative(const std::vector<int64_t>& values, const char* list, const char* field) {
  for (size_t i = 0; i < values.size(); ++i) CheckAtLeast(0, values[i], list, i, field);
}

template <typename Values>
void CheckSameCores(const ProblemSpec& spec, const Values& values, const char* field, size_t device,
                    size_t first) {
  if (values[device] == values[first]) return;
  Fail(FieldPath("devices", device, field),
       "is " + std::to_string(values[device]) + ", but '" + spec.device_names[first] +
           "', which has the same cores, has " + std::to_string(values[first]));
}

// What is launched on a device runs there one after the other.
void CheckLaunches(const ProblemSpec& spec, size_t device) {
  if (spec.device_launch_ns[device] == 0) return;
  const auto fail = [device](const std::string& what) {
    Fail(FieldPath("devices", device, "launch_ns"), "a device whose ops are launched " + what);
  };
  if (spec.device_slots[device] != 1) fail("has one slot");
  if (spec.device_cores.empty() || spec.device_cores[device].empty()) return;
  if (std::count(spec.device_cores.begin(), spec.device_cores.end(), spec.device_cores[device]) >
      1) {
    fail("has cores of its own");
  }
}

void CheckDevices(const ProblemSpec& spec) {
  CheckDistinct(spec.device_kinds, "device_kinds", "");
  CheckDistinct(spec.device_names, "devices", "name");
  for (size_t d = 0; d < spec.device_names.size(); ++d) {
    CheckIndex(spec.device_kind[d], spec.device_kinds.size(), "device kind", "devices", d, "kind");
    CheckAtLeast(0, spec.device_memory_bytes[d], "devices", d, "memory_bytes");
    CheckAtLeast(1, spec.device_slots[d], "devices", d, "slots");
  }
  CheckNotNegative(spec.device_start_ns, "devices", "start_ns");
  CheckNotNegative(spec.device_turn_ns, "devices", "turn_ns");
  CheckNotNegative(spec.device_cold_ns, "devices", "cold_ns");
  CheckNotNegative(spec.device_launch_ns, "devices", "launch_ns");
  for (size_t d = 0; d < spec.device_launch_ns.size(); ++d) CheckLaunches(spec, d);
  if (spec.inter_op_threads < 1) {
    Fail("inter_op_threads", "must be at least 1, got " + std::to_string(spec.inter_op_threads));
  }
  std::unordered_map<std::string_view, size_t> first_of_cores;
  for (size_t d = 0; d < spec.device_cores.size(); ++d) {
    if (spec.device_cores[d].empty()) continue;
    const size_t first = first_of_cores.emplace(spec.device_cores[d], d).first->second;
    CheckSameCores(spec, spec.device_slots, "slots", d, first);
    if (!spec.device_turn_ns.empty()) {
      CheckSameCores(spec, spec.device_turn_ns, "turn_ns", d, first);
    }
    if (!spec.device_cold_ns.empty()) {
      CheckSameCores(spec, spec.device_cold_ns, "cold_ns", d, first);
    }
  }
}

void CheckLinks(const ProblemSpec& spec) {
  const size_t m = spec.device_names.size();
  CheckNotNegative(spec.link_send_ns, "links", "send_ns");
  CheckNotNegative(spec.link_send_bytes_per_s, "links", "send_bytes_per_s");
  CheckNotNegative(spec.link_receive_ns, "links", "receive_ns");
  CheckNotNegative(spec.link_receive_bytes_per_s, "links", "receive_bytes_per_s");
  std::unordered_set<uint64_t> seen;
  for (size_t i = 0; i < spec.link_src.size(); ++i) {
    CheckIndex(spec.link_src[i], m, "device", "links", i, "src");
    CheckIndex(spec.link_dst[i], m, "device", "links", i, "dst");
    CheckAtLeast(0, spec.link_latency_ns[i], "links", i, "latency_ns");
    CheckAtLeast(1, spec.link_bytes_per_s[i], "links", i, "bytes_per_s");
    const std::string& src = spec.device_names[spec.link_src[i]];
    const std::string& dst = spec.device_names[spec.link_dst[i]];
    if (spec.link_src[i] == spec.link_dst[i]) {
      Fail(FieldPath("links", i), "joins device '" + src + "' to itself");
    }
    if (!seen.insert(static_cast<uint64_t>(spec.link_src[i]) * m + spec.link_dst[i]).second) {
      Fail(FieldPath("links", i), "a link from '" + src + "' to '" + dst + "' is given twice");
    }
  }
}

void CheckSameAs(const ProblemSpec& spec, size_t op) {
  const int32_t first = spec.same_as[op];
  if (first == kNotSame) return;
  CheckIndex(first, spec.op_names.size(), "op", "ops", op, "same_as");
  if (static_cast<size_t>(first) >= op || spec.same_as[first] != kNotSame) {
    Fail(FieldPath("ops", op, "same_as"),
         "is " + std::to_string(first) + ", expected an earlier op, which is no other's");
  }
}

void CheckOps(const ProblemSpec& spec) {
  CheckDistinct(spec.op_names, "ops", "name");
  CheckDistinct(spec.colocation_group_names, "colocation_group_names", "");
  const size_t kinds = spec.device_kinds.size();
  for (size_t i = 0; i < spec.op_names.size(); ++i) {
    for (size_t kind = 0; kind < kinds; ++kind) {
      if (spec.cost_ns[i * kinds + kind] < kNoKernel) {
        CheckAtLeast(0, spec.cost_ns[i * kinds + kind], "ops", i, "cost_ns");
      }
    }
    for (int64_t t = spec.output_ptr[i]; t < spec.output_ptr[i + 1]; ++t) {
      CheckAtLeast(0, spec.output_bytes[t], "ops", i, "output_bytes");
    }
    CheckAtLeast(0, spec.temp_bytes[i], "ops", i, "temp_bytes");
    CheckAtLeast(0, spec.persistent_bytes[i], "ops", i, "persistent_bytes");
    for (int64_t a = spec.allowed_ptr[i]; a < spec.allowed_ptr[i + 1]; ++a) {
      CheckIndex(spec.allowed_device[a], spec.device_names.size(), "device", "ops", i,
                 "allowed_devices");
    }
    if (!spec.allowed_given[i] && spec.allowed_ptr[i] != spec.allowed_ptr[i + 1]) {
      Fail(FieldPath("ops", i, "allowed_devices"), "has devices but allowed_given is false");
    }
    if (spec.colocation_group[i] != kNoGroup) {
      CheckIndex(spec.colocation_group[i], spec.colocation_group_names.size(), "group", "ops", i,
                 "colocation_group");
    }
    if (!spec.same_as.empty()) CheckSameAs(spec, i);
    if (!spec.default_device.empty()) {
      CheckIndex(spec.default_device[i], spec.device_names.size(), "device", "ops", i,
                 "default_device");
    }
  }
}

void CheckEdges(const ProblemSpec& spec) {
  const size_t n = spec.op_names.size();
  for (size_t e = 0; e * 3 < spec.edges.size(); ++e) {
    const int32_t src = spec.edges[e * 3], output = spec.edges[e * 3 + 1];
    const int32_t dst = spec.edges[e * 3 + 2];
    CheckIndex(src, n, "source op", "edges", e);
    CheckIndex(dst, n, "destination op", "edges", e);
    CheckIndex(output, spec.output_ptr[src + 1] - spec.output_ptr[src], "output", "edges", e);
    if (src == dst) Fail(FieldPath("edges", e), "op '" + spec.op_names[src] + "' reads itself");
  }
  for (size_t c = 0; c * 2 < spec.control_edges.size(); ++c) {
    const int32_t src = spec.control_edges[c * 2], dst = spec.control_edges[c * 2 + 1];
    CheckIndex(src, n, "source op", "control_edges", c);
    CheckIndex(dst, n, "destination op", "control_edges", c);
    if (src == dst) {
      Fail(FieldPath("control_edges", c), "op '" + spec.op_names[src] + "' waits for itself");
    }
  }
}

void CheckOrder(const ProblemSpec& spec) {
  const size_t num_nodes = spec.order_op.size();
  for (size_t node = 0; node < num_nodes; ++node) {
    CheckIndex(spec.order_op[node], spec.op_names.size(), "op", "order.nodes", node, "op");
    bool has_waited = false;
    for (int64_t i = spec.order_input_ptr[node]; i < spec.order_input_ptr[node + 1]; ++i) {
      CheckIndex(spec.order_inputs[i * 2], num_nodes, "node", "order.nodes", node, "inputs");
      CheckAtLeast(kNothingRead, spec.order_inputs[i * 2 + 1], "order.nodes", node, "inputs");
      const bool waits = spec.order_inputs[i * 2 + 1] == kNothingRead;
      if (has_waited && !waits) {
        Fail(FieldPath("order.nodes", node, "inputs"), "what is read must come first");
      }
      has_waited = waits;
    }
  }
  for (size_t i = 0; i < spec.order_targets.size(); ++i) {
    CheckIndex(spec.order_targets[i], num_nodes, "node", "order.targets", i);
  }
}

}  // namespace

std::string FieldPath(const char* list, int64_t index, const char* field) {
  std::string path = std::string(list) + "[" + std::to_string(index) + "]";
  return *field == '\0' ? path : path + "." + field;
}

void Fail(const std::string& path, const std::string& message) {
  throw ProblemError(path + ": " + message);
}

void CheckCounts(const ProblemSpec& spec) {
  const size_t ops = spec.op_names.size(), kinds = spec.device_kinds.size();
  CheckAtMost(kMaxDevices, kinds, "device_kinds", " device kinds");
  CheckAtMost(kMaxDevices, spec.device_names.size(), "devices", " devices");
  CheckAtMost(kMaxCount, ops, "ops", " ops");
  CheckAtMost(kMaxCount, ops * kinds, "ops", " pairs of an op and a device kind");
  CheckAtMost(kMaxCount, spec.output_bytes.size(), "ops", " outputs");
  CheckAtMost(kMaxCount, spec.edges.size() / 3, "edges", " edges");
  CheckAtMost(kMaxCount, spec.control_edges.size() / 2, "control_edges", " edges");
  CheckAtMost(kMaxCount, spec.order_op.size(), "order.nodes", " nodes");
  CheckAtMost(kMaxCount, spec.order_inputs.size() / 2, "order.nodes", " inputs");
}

void CheckSpec(const ProblemSpec& spec) {
  CheckCounts(spec);
  CheckSizes(spec);
  CheckDevices(spec);
  CheckLinks(spec);
  CheckOps(spec);
  CheckEdges(spec);
  CheckOrder(spec);
}

}  // namespace hplacer
