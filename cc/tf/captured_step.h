// What crosses the border between the TensorFlow pass and the planner, free of TensorFlow types.
//
// CapturedStep is a training step as the planner sees it: the arrays of a Problem (the problem
// page's semantics), plus the graph nodes that each op stands for. Assignment is the way back:
// one device per node, by name, by fingerprint hash and by rank among nodes of one hash.
#ifndef HPLACER_TF_CAPTURED_STEP_H_
#define HPLACER_TF_CAPTURED_STEP_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hplacer {

// A device of the session, as TensorFlow describes it.
struct SessionDevice {
  std::string name;         // full name, "/job:localhost/replica:0/task:0/device:CPU:0"
  std::string type;         // "CPU", "GPU", ...
  std::string description;  // TensorFlow's physical description, may be empty
  int64_t memory_bytes = 0;
  bool may_plan = true;  // false: ops pinned here stay, no other op is sent here
};

// "/job:worker/replica:0/task:1" of a full device name.
inline std::string_view TaskOf(std::string_view device) {
  return device.substr(0, device.rfind("/device:"));
}

// One kind of device for the cost model; the rates are those of one slot.
struct KindRates {
  std::string name;
  std::string type;  // "CPU" or "GPU"
  // Peaks by dtype: "float64", "float32" (required), "bfloat16", "float16", "int8". A dtype that is
  // absent, integers and booleans take that of float32.
  std::map<std::string, double> flops_per_s;
  double memory_bytes_per_s = 0;
  int64_t launch_overhead_ns = 0;  // of an op with a kernel, the executor's part included
  // The executor's part: all that an op without a kernel costs (at most launch_overhead_ns).
  int64_t executor_overhead_ns = 1000;
  // Whether the host launches ops ahead of those that run. Then neither overhead is a part of an
  // op's time, but what one op launches after its first kernel bounds it from below.
  bool launches_ahead = false;
};

// The machine that the Python side detected for the session's devices.
struct MachineRates {
  std::vector<KindRates> kinds;
  std::vector<int32_t> device_kind;  // per SessionDevice
};

// A fingerprint: named parts in a fixed order, and the key that is derived from all of them.
struct Fingerprint {
  std::vector<std::pair<std::string, std::string>> parts;
  std::string key;  // 32 hex digits
};

struct CapturedStep {
  std::vector<std::string> op_names;
  std::vector<std::string> op_types;
  std::vector<std::string> op_signatures;  // see op_signature.h; "": a loop, a call
  int num_kinds = 0;
  std::vector<int64_t> cost_ns;  // [op * num_kinds + kind], -1: no kernel
  std::vector<int64_t> output_ptr;
  std::vector<int64_t> output_bytes;
  std::vector<int32_t> output_alias_src;  // -1 none, -2 persistent, else op
  std::vector<int32_t> output_alias_output;
  std::vector<int64_t> temp_bytes;
  std::vector<int64_t> persistent_bytes;
  // Per op: 1 if TensorFlow replaces it by a constant before the step, see static_ops.h. No data
  // edge leads into it.
  std::vector<uint8_t> is_static;
  // Per op: 1 if TensorFlow removes it before the step, see removed_ops.h and merged_sums.h, or if
  // a plan joins it with an equal one, see repeated_ops.h. It costs nothing, holds nothing, and has
  // no edges.
  std::vector<uint8_t> is_removed;
  // Per op: 1 if TensorFlow runs an equal one instead, see repeated_ops.h. It is removed, or costs
  // what an op without a kernel costs.
  std::vector<uint8_t> is_repeated;
  // Per op: the first op that is the same constant, see repeated_ops.h; -1: none.
  std::vector<int32_t> same_as;
  std::vector<int32_t> edges;          // triples (src, output, dst)
  std::vector<int32_t> control_edges;  // pairs (src, dst)
  std::vector<int64_t> allowed_ptr;
  std::vector<int32_t> allowed_device;
  std::vector<int32_t> unit;  // colocation group per op
  int num_units = 0;
  std::vector<int32_t> default_device;  // per op, where TensorFlow's placer puts it; or empty
  // What the order of ops follows from, as in a ProblemSpec.
  std::vector<int32_t> order_op;
  std::vector<int64_t> order_input_ptr;
  std::vector<int32_t> order_inputs;  // pairs (node, output)
  std::vector<int32_t> order_targets;

  // The graph nodes that a plan may move, and the op that stands for each.
  std::vector<std::string> node_names;
  std::vector<uint64_t> node_hashes;
  std::vector<uint32_t> node_ranks;  // tell nodes of one hash apart, see node_order.h
  uint64_t structure = 0;            // under which ranks hold
  std::vector<int32_t> node_op;

  std::vector<std::string> assumptions;  // what had to be assumed, one sentence each
};

// Final devices of nodes; columns of equal length. `names` joined by '\n'.
struct Assignment {
  std::string names;
  std::vector<uint64_t> hashes;
  std::vector<uint32_t> ranks;    // of nodes of one hash, see node_order.h; empty: not known
  uint64_t structure = 0;         // under which ranks hold
  std::vector<uint16_t> devices;  // index into device_names
  std::vector<std::string> device_names;
};

}  // namespace hplacer

#endif  // HPLACER_TF_CAPTURED_STEP_H_
