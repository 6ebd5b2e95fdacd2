// Small problems for tests, built call by call.
//
//   ProblemBuilder b;
//   const int32_t cpu = b.Device(/*slots=*/4), gpu = b.Device();
//   b.Link(cpu, gpu, "down", /*latency_ns=*/10);
//   const int32_t a = b.Op(100, {4096}), c = b.Op(50);
//   b.Edge(a, 0, c);
//
// All devices have one kind and links move one byte per nanosecond unless told otherwise.

#ifndef HPLACER_TESTS_CC_PROBLEM_BUILDER_H_
#define HPLACER_TESTS_CC_PROBLEM_BUILDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

class ProblemBuilder {
 public:
  ProblemBuilder() {
    spec.device_kinds = {"kind"};
    spec.output_ptr = {0};
    spec.allowed_ptr = {0};
  }

  int32_t Device(int32_t slots = 1, int64_t memory_bytes = 1'000'000) {
    const auto id = static_cast<int32_t>(spec.device_names.size());
    spec.device_names.push_back("d" + std::to_string(id));
    spec.device_kind.push_back(0);
    spec.device_memory_bytes.push_back(memory_bytes);
    spec.device_slots.push_back(slots);
    return id;
  }

  void Link(int32_t src, int32_t dst, const std::string& channel, int64_t latency_ns = 0,
            int64_t bytes_per_s = 1'000'000'000) {
    spec.link_src.push_back(src);
    spec.link_dst.push_back(dst);
    spec.link_channel.push_back(channel);
    spec.link_latency_ns.push_back(latency_ns);
    spec.link_bytes_per_s.push_back(bytes_per_s);
  }

  int32_t Op(int64_t cost_ns, const std::vector<int64_t>& output_bytes = {}, int64_t temp_bytes = 0,
             int64_t persistent_bytes = 0) {
    const auto id = static_cast<int32_t>(spec.op_names.size());
    spec.op_names.push_back("op" + std::to_string(id));
    spec.op_types.push_back("T");
    spec.cost_ns.push_back(cost_ns);
    for (int64_t bytes : output_bytes) {
      spec.output_bytes.push_back(bytes);
      spec.output_alias_src.push_back(kNoAlias);
      spec.output_alias_output.push_back(0);
    }
    spec.output_ptr.push_back(static_cast<int64_t>(spec.output_bytes.size()));
    spec.temp_bytes.push_back(temp_bytes);
    spec.persistent_bytes.push_back(persistent_bytes);
    spec.allowed_ptr.push_back(static_cast<int64_t>(spec.allowed_device.size()));
    spec.allowed_given.push_back(0);
    spec.colocation_group.push_back(kNoGroup);
    return id;
  }

  // Restricts the op made last.
  void Allow(const std::vector<int32_t>& devices) {
    spec.allowed_device.insert(spec.allowed_device.end(), devices.begin(), devices.end());
    spec.allowed_ptr.back() = static_cast<int64_t>(spec.allowed_device.size());
    spec.allowed_given.back() = 1;
  }

  void Colocate(const std::vector<int32_t>& ops) {
    const auto group = static_cast<int32_t>(spec.colocation_group_names.size());
    spec.colocation_group_names.push_back("g" + std::to_string(group));
    for (int32_t op : ops) spec.colocation_group[op] = group;
  }

  // `op`'s output k is a view of output j of `src`.
  void Alias(int32_t op, int32_t k, int32_t src, int32_t j = 0) {
    spec.output_alias_src[spec.output_ptr[op] + k] = src;
    spec.output_alias_output[spec.output_ptr[op] + k] = j;
  }

  void Edge(int32_t src, int32_t output, int32_t dst) {
    spec.edges.insert(spec.edges.end(), {src, output, dst});
  }
  void Control(int32_t src, int32_t dst) {
    spec.control_edges.insert(spec.control_edges.end(), {src, dst});
  }

  Problem Build() const { return Problem::Build(spec); }

  ProblemSpec spec;
};

}  // namespace hplacer

#endif  // HPLACER_TESTS_CC_PROBLEM_BUILDER_H_
