// A placement problem: one training step as a graph of costed ops, and the machine it runs on.
//
// `ProblemSpec` is what a loader fills in: plain arrays, nothing checked. `Problem::Build` checks
// every rule of the problem format, sorts and deduplicates the edges, and derives the index arrays
// that the simulator and the planners walk. A `Problem` never changes afterwards, so that any
// number of threads may read one.
//
//   ProblemSpec --Build--> Problem --> Simulate, PlaceEtf, ...
//        arrays             CSR         pure functions of (problem, ...)
//
// Vocabulary. A *tensor* is one output of one op; tensor ids number all outputs, op by op. An
// *edge* is a distinct (tensor, consumer) pair; edge ids number them in (src, output, dst) order. A
// *unit* is what a planner places: a colocation group, or an op without one. Its *candidates* are
// the devices where each of its ops is allowed and has a kernel. Devices whose `device_cores` have
// one name, as the CPU devices of a process, are a *pool*: together they have the slots of one of
// them. Every other device is a pool by itself.
//
// Decisions where the format leaves room:
//  * An op without a kernel, with an empty `allowed_devices`, or allowed only where it has no
//    kernel is legal: the problem loads, its placements are infeasible.
//  * `allowed_devices` is a set: order and repetitions mean nothing.
//  * The default device of an op may be one where it is not allowed, or has no kernel.
//  * Bounds that must stay below 2^63: the sum over ops of the largest cost, plus for each tensor
//    and for each op's signals the duration at the highest latency, the most work and the lowest
//    rates of all links, times min(consumers, devices - 1), plus the latest start of a device; and
//    the sum of all persistent, temporary and output bytes (a device holds a tensor once).
//
// Sizes are bytes, times are nanoseconds.

#ifndef HPLACER_ENGINE_PROBLEM_PROBLEM_H_
#define HPLACER_ENGINE_PROBLEM_PROBLEM_H_

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/problem/op_order.h"
#include "engine/problem/step_graph.h"

namespace hplacer {

// The problem or the placement is malformed. The message starts with the path of the faulty field
// as in a problem file: "ops[17].cost_ns: ...".
class ProblemError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr int64_t kNoKernel = -1;         // in cost_ns
inline constexpr int32_t kNoAlias = -1;          // in output_alias_src
inline constexpr int32_t kPersistentAlias = -2;  // in output_alias_src
inline constexpr int32_t kNoGroup = -1;          // in colocation_group
inline constexpr int32_t kNotSame = -1;          // in same_as
inline constexpr int32_t kNothingRead = -1;      // in order_inputs
inline constexpr int32_t kInterOpThreads = 16;   // where nobody says how many

// n ops, T outputs, m devices of K kinds, L links. Arrays named `*_ptr` are CSR offsets.
// `device_cores` may be left empty: each device has its own. So may the times of devices and the
// work of links that version 1 of the format does not know: they are 0.
struct ProblemSpec {
  std::string name;

  std::vector<std::string> device_kinds;     // [K]
  std::vector<std::string> device_names;     // [m]
  std::vector<int32_t> device_kind;          // [m] index into device_kinds
  std::vector<int64_t> device_memory_bytes;  // [m]
  std::vector<int32_t> device_slots;         // [m] ops that run at once
  std::vector<std::string> device_cores;     // [m] devices of one name share their slots; "": own
  std::vector<int64_t> device_start_ns;      // [m] before it, no op starts on the device
  // [m] how long the work of a transfer waits at most for a slot, for each op that could run.
  std::vector<int64_t> device_turn_ns;
  // [m] how much longer the work of a transfer takes at most after ops that filled the caches.
  std::vector<int64_t> device_cold_ns;
  // [m] what it takes the host to launch an op there; 0: ops are not launched ahead.
  std::vector<int64_t> device_launch_ns;
  // Which of the orders that nobody knows the launches follow: see simulator.h.
  int64_t launch_seed = 0;
  int32_t inter_op_threads = kInterOpThreads;  // of each task's host, that run ops
  std::vector<int32_t> link_src, link_dst;     // [L] devices
  std::vector<std::string> link_channel;       // [L] links of one name share one channel
  std::vector<int64_t> link_latency_ns;        // [L]
  std::vector<int64_t> link_bytes_per_s;       // [L]
  // [L] what a transfer takes of a slot of its source, then of its destination, and at which rate
  // it works on the bytes there; a rate of 0: bytes are no work.
  std::vector<int64_t> link_send_ns, link_send_bytes_per_s;
  std::vector<int64_t> link_receive_ns, link_receive_bytes_per_s;

  std::vector<std::string> op_names;         // [n]
  std::vector<std::string> op_types;         // [n]
  std::vector<int64_t> cost_ns;              // [n * K] row-major, or kNoKernel
  std::vector<int64_t> output_ptr;           // [n + 1]
  std::vector<int64_t> output_bytes;         // [T]
  std::vector<int32_t> output_alias_src;     // [T] an op, kNoAlias or kPersistentAlias
  std::vector<int32_t> output_alias_output;  // [T] output of that op, else ignored
  std::vector<int64_t> temp_bytes;           // [n]
  std::vector<int64_t> persistent_bytes;     // [n]
  std::vector<int32_t> edges;                // [E * 3] (src, output, dst)
  std::vector<int32_t> control_edges;        // [C * 2] (src, dst)
  std::vector<int64_t> allowed_ptr;          // [n + 1]
  std::vector<int32_t> allowed_device;       // [A]
  std::vector<uint8_t> allowed_given;        // [n] 0: every device with a kernel is allowed
  std::vector<int32_t> colocation_group;     // [n] index into colocation_group_names or kNoGroup
  std::vector<std::string> colocation_group_names;
  // [n] the first op that is the same constant, or kNotSame; or empty. TensorFlow merges those of
  // one device.
  std::vector<int32_t> same_as;
  // [n] where TensorFlow's own Placer would put each op, or empty. Planning does not look at it.
  std::vector<int32_t> default_device;
  // What the order of ops follows from, see op_order.h: N nodes by name. Or empty: then it is that
  // of their numbers. The output of what is only waited for is kNothingRead.
  std::vector<int32_t> order_op;         // [N] the op that a node is a part of
  std::vector<int64_t> order_input_ptr;  // [N + 1]
  std::vector<int32_t> order_inputs;     // [I * 2] (node, output), what only waits last
  std::vector<int32_t> order_targets;    // nodes that are fetched
};

class Problem {
 public:
  // Throws ProblemError. Leaves nothing behind on failure.
  static Problem Build(ProblemSpec spec);

  // The arrays as given, but with edges, control_edges and allowed_device sorted and distinct, and
  // device_cores of all devices.
  const ProblemSpec& spec() const { return spec_; }

  int32_t num_ops() const { return static_cast<int32_t>(spec_.op_names.size()); }
  int32_t num_devices() const { return static_cast<int32_t>(spec_.device_names.size()); }
  int32_t num_kinds() const { return static_cast<int32_t>(spec_.device_kinds.size()); }
  int32_t num_tasks() const { return num_tasks_; }
  int32_t num_pools() const { return static_cast<int32_t>(pool_slots_.size()); }
  int32_t num_tensors() const { return static_cast<int32_t>(spec_.output_bytes.size()); }
  int32_t num_edges() const { return static_cast<int32_t>(consumers_.size()); }
  int32_t num_channels() const { return static_cast<int32_t>(channel_names_.size()); }
  int32_t num_units() const { return static_cast<int32_t>(unit_op_ptr_.size()) - 1; }

  // Duration of `op` on `device`, or kNoKernel.
  int64_t CostNs(int32_t op, int32_t device) const {
    return spec_.cost_ns[static_cast<int64_t>(op) * num_kinds() + spec_.device_kind[device]];
  }
  bool IsAllowed(int32_t op, int32_t device) const;

  // Pools are numbered by their first device.
  const std::vector<int32_t>& device_pool() const { return device_pool_; }  // [m]
  const std::vector<int32_t>& pool_slots() const { return pool_slots_; }    // [pools]
  // Tasks, by which the names of devices begin, are numbered by their first device.
  const std::vector<int32_t>& device_task() const { return device_task_; }  // [m]

  // Tensors of `op` are [FirstTensor(op), FirstTensor(op + 1)).
  int32_t FirstTensor(int32_t op) const { return static_cast<int32_t>(spec_.output_ptr[op]); }
  const std::vector<int32_t>& tensor_op() const { return tensor_op_; }  // [T]

  // Edges of tensor t are [consumer_ptr[t], consumer_ptr[t + 1]); consumers[edge] is the reader.
  const std::vector<int32_t>& consumer_ptr() const { return consumer_ptr_; }  // [T + 1]
  const std::vector<int32_t>& consumers() const { return consumers_; }        // [E]
  const std::vector<int32_t>& edge_tensor() const { return edge_tensor_; }    // [E]
  // Edges read by op i, in (src, output) order: read_edges[read_ptr[i]..read_ptr[i + 1]).
  const std::vector<int32_t>& read_ptr() const { return read_ptr_; }      // [n + 1]
  const std::vector<int32_t>& read_edges() const { return read_edges_; }  // [E]
  // For an output that aliases a tensor: the edge by which its op reads that tensor; else
  // kNoAlias or kPersistentAlias.
  const std::vector<int32_t>& alias_edge() const { return alias_edge_; }  // [T]

  const std::vector<int32_t>& control_out_ptr() const { return control_out_ptr_; }  // [n + 1]
  const std::vector<int32_t>& control_out() const { return control_out_; }          // [C]
  const std::vector<int32_t>& control_in_ptr() const { return control_in_ptr_; }    // [n + 1]
  const std::vector<int32_t>& control_in() const { return control_in_; }            // [C]
  // Distinct data and control edges into an op.
  const std::vector<int32_t>& in_degree() const { return in_degree_; }  // [n]

  // The link from one device to another, or -1.
  int32_t Link(int32_t src, int32_t dst) const {
    return link_of_pair_[static_cast<int64_t>(src) * num_devices() + dst];
  }
  // latency_ns + ceil(bytes * 10^9 / bytes_per_s): how long a transfer occupies the channel. One of
  // no bytes from or to a device whose ops are launched is no copy, and takes no time.
  int64_t ChannelNs(int32_t link, int64_t bytes) const;
  // Whether its transfers are from or to a device whose ops are launched.
  bool IsCopied(int32_t link) const {
    return has_launches_ && (spec_.device_launch_ns[spec_.link_src[link]] > 0 ||
                             spec_.device_launch_ns[spec_.link_dst[link]] > 0);
  }
  // The work of a transfer on a slot of its source and of its destination.
  int64_t SendNs(int32_t link, int64_t bytes) const {
    return has_work_ ? WorkNs(spec_.link_send_ns, spec_.link_send_bytes_per_s, link, bytes) : 0;
  }
  int64_t ReceiveNs(int32_t link, int64_t bytes) const {
    return has_work_ ? WorkNs(spec_.link_receive_ns, spec_.link_receive_bytes_per_s, link, bytes)
                     : 0;
  }
  // All three: how long a transfer takes if it waits for nothing.
  int64_t TransferNs(int32_t link, int64_t bytes) const {
    return SendNs(link, bytes) + ChannelNs(link, bytes) + ReceiveNs(link, bytes);
  }
  // Transfers take equally long on links of equal times, which are all that decides it.
  using Times = std::array<int64_t, 7>;
  Times LinkTimes(int32_t link) const {
    return {spec_.link_latency_ns[link],
            spec_.link_bytes_per_s[link],
            spec_.link_send_ns[link],
            spec_.link_send_bytes_per_s[link],
            spec_.link_receive_ns[link],
            spec_.link_receive_bytes_per_s[link],
            IsCopied(link)};
  }
  // Whether the transfers of any link are work for a device.
  bool has_work() const { return has_work_; }
  // Whether the ops of any device are launched.
  bool has_launches() const { return has_launches_; }
  // Those of the pool's devices, which are equal.
  const std::vector<int64_t>& pool_turn_ns() const { return pool_turn_ns_; }  // [pools]
  const std::vector<int64_t>& pool_cold_ns() const { return pool_cold_ns_; }  // [pools]
  const std::vector<int32_t>& link_channel() const { return link_channel_; }  // [L]
  // In the order in which links first name them.
  const std::vector<std::string>& channel_names() const { return channel_names_; }

  // Units are numbered by their first op.
  const std::vector<int32_t>& units() const { return units_; }                  // [n]
  const std::vector<int32_t>& unit_op_ptr() const { return unit_op_ptr_; }      // [U + 1]
  const std::vector<int32_t>& unit_ops() const { return unit_ops_; }            // [n] ascending
  const std::vector<int32_t>& candidate_ptr() const { return candidate_ptr_; }  // [U + 1]
  const std::vector<int32_t>& candidates() const { return candidates_; }        // ascending
  bool IsCandidate(int32_t unit, int32_t device) const {
    return is_candidate_[static_cast<size_t>(unit) * num_devices() + device];
  }

  const StepGraph& step_graph() const { return step_graph_; }
  // What the order of ops follows from; nullptr: it is that of their numbers.
  const std::shared_ptr<const OrderedGraph>& ordered_graph() const { return ordered_graph_; }
  const OrderedDevices& ordered_devices() const { return ordered_devices_; }
  // No step lasts longer: the bound described above.
  int64_t max_time_ns() const { return max_time_ns_; }

 private:
  explicit Problem(ProblemSpec spec) : spec_(std::move(spec)) {}

  static int64_t WorkNs(const std::vector<int64_t>& fixed_ns,
                        const std::vector<int64_t>& bytes_per_s, int32_t link, int64_t bytes);
  void FillDefaults();
  void IndexPools();
  void IndexTasks();
  void IndexChannels();
  void IndexEdges();
  void IndexControlEdges();
  void IndexAliases();
  // The edge by which `op` reads that output of `src`, or -1.
  int32_t FindRead(int32_t op, int32_t src, int32_t output) const;
  void IndexUnits();
  void IndexCandidates();
  void IndexOrder();
  void CheckAcyclic() const;
  std::string DescribeCycle(const std::vector<int32_t>& pending) const;
  void CheckBounds();

  ProblemSpec spec_;
  bool has_work_ = false, has_launches_ = false;
  int32_t num_tasks_ = 0;
  std::vector<int32_t> device_pool_, pool_slots_, device_task_;
  std::vector<int64_t> pool_turn_ns_, pool_cold_ns_;
  std::vector<int32_t> tensor_op_, consumer_ptr_, consumers_, edge_tensor_;
  std::vector<int32_t> read_ptr_, read_edges_, alias_edge_;
  std::vector<int32_t> control_out_ptr_, control_out_, control_in_ptr_, control_in_, in_degree_;
  std::vector<int32_t> link_of_pair_, link_channel_;
  std::vector<std::string> channel_names_;
  std::vector<int32_t> units_, unit_op_ptr_, unit_ops_, candidate_ptr_, candidates_;
  std::vector<bool> is_candidate_;  // [U * m]
  StepGraph step_graph_;
  std::shared_ptr<const OrderedGraph> ordered_graph_;
  OrderedDevices ordered_devices_;
  int64_t max_time_ns_ = 0;
};

// Throws ProblemError unless `placement` has one device index per op.
void CheckPlacement(const Problem& problem, const int32_t* placement, int64_t size);
inline void CheckPlacement(const Problem& problem, const std::vector<int32_t>& placement) {
  CheckPlacement(problem, placement.data(), static_cast<int64_t>(placement.size()));
}

// The place of each op in TensorFlow's order under a placement, [n]: see op_order.h. Throws
// ProblemError like CheckPlacement.
std::vector<int32_t> OpPlaces(const Problem& problem, const std::vector<int32_t>& placement);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_PROBLEM_PROBLEM_H_
