// What crosses the border between the TensorFlow pass and the planner, free of TensorFlow types.
//
// CapturedStep is a training step as the planner sees it: the arrays of a Problem (the problem
// page's semantics), plus the graph nodes that each op stands for. Assignment is the way back:
// one device per node, by name and by fingerprint hash.
#ifndef HPLACER_TF_CAPTURED_STEP_H_
#define HPLACER_TF_CAPTURED_STEP_H_

#include <cstdint>
#include <string>
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

// One kind of device for the cost model; the rates are those of one slot.
struct KindRates {
  std::string name;
  std::string type;  // "CPU" or "GPU"
  double flops_per_s = 0;
  double memory_bytes_per_s = 0;
  int64_t launch_overhead_ns = 0;
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
  int num_kinds = 0;
  std::vector<int64_t> cost_ns;  // [op * num_kinds + kind], -1: no kernel
  std::vector<int64_t> output_ptr;
  std::vector<int64_t> output_bytes;
  std::vector<int32_t> output_alias_src;  // -1 none, -2 persistent, else op
  std::vector<int32_t> output_alias_output;
  std::vector<int64_t> temp_bytes;
  std::vector<int64_t> persistent_bytes;
  std::vector<int32_t> edges;          // triples (src, output, dst)
  std::vector<int32_t> control_edges;  // pairs (src, dst)
  std::vector<int64_t> allowed_ptr;
  std::vector<int32_t> allowed_device;
  std::vector<int32_t> unit;  // colocation group per op
  int num_units = 0;

  // The graph nodes that a plan may move, and the op that stands for each.
  std::vector<std::string> node_names;
  std::vector<uint64_t> node_hashes;
  std::vector<int32_t> node_op;

  std::vector<std::string> assumptions;  // what had to be assumed, one sentence each
};

// Final devices of nodes; columns of equal length. `names` joined by '\n'.
struct Assignment {
  std::string names;
  std::vector<uint64_t> hashes;
  std::vector<uint16_t> devices;  // index into device_names
  std::vector<std::string> device_names;
};

}  // namespace hplacer

#endif  // HPLACER_TF_CAPTURED_STEP_H_
