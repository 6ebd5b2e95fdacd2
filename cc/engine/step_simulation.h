// The state machine of one step: what runs, what is sent, what is held, round after round.
//
// simulator.h describes the model. An object is reused for many placements, to keep its arrays; its
// result is valid until the next run.
//
// Transfers are made when their source op finishes and kept in that order, so that an op's stay
// together; `transfers()` puts them into the order (src op, output, dst device). A channel's queue
// orders them by (src op, index), which is the same order.
//
// Buffers. A tensor's memory on a device is a buffer: the tensor's own on its op's device, one per
// transfer on a receiver. An alias resolves to the root buffer on its op's device, which is the
// received copy if the aliased tensor came from elsewhere, or to none for persistent memory. A
// received copy is always a buffer of its own, of full size.
//
// Within a round memory is only freed while events are applied and only allocated afterwards, and
// readiness, queues and reader counts do not depend on the order of a round's events, hence that
// order is visible in nothing but the record of memory changes. Without kRecord it is not kept, and
// an op's temp and outputs are allocated in one sum.

#ifndef HPLACER_ENGINE_STEP_SIMULATION_H_
#define HPLACER_ENGINE_STEP_SIMULATION_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/memory_trace.h"
#include "engine/problem.h"
#include "engine/simulator.h"
#include "engine/step_graph.h"
#include "engine/step_queues.h"

namespace hplacer {

template <bool kRecord>
class StepSimulation {
 public:
  explicit StepSimulation(const Problem& problem);

  // Returns whether there is a trace. The placement must be in range.
  bool Run(const int32_t* placement);

  int64_t makespan_ns() const { return makespan_ns_; }
  const std::vector<int64_t>& peak_bytes() const { return peak_bytes_; }
  std::vector<int64_t> TakeStartNs() { return std::move(start_ns_); }
  std::vector<int64_t> TakeFinishNs() { return std::move(finish_ns_); }
  std::vector<Transfer> Transfers() const;
  // In the order of the changes; empty without kRecord.
  const std::vector<MemoryChange>& memory_changes() const { return memory_changes_; }

 private:
  static constexpr int32_t kNoBuffer = INT32_MIN;
  static constexpr int32_t kNoGate = -1;

  // Events and buffers are numbered by op or tensor, those of a send by ~send.
  static bool IsSend(int32_t id) { return id < 0; }

  struct OpState {
    int32_t pending;  // inputs that have not arrived
    int32_t device;
  };
  // Written when the tensor's op finishes. Consumers and sends read `root`; its readers are counted
  // in the root's state.
  struct TensorState {
    int64_t bytes;
    int32_t readers;
    int32_t root;  // a tensor, ~send or kNoBuffer
    int32_t device;
    int32_t first_send;
  };
  struct Send {
    int32_t op, tensor;  // tensor: or kSignal
    int32_t src_device, dst_device, channel;
    int32_t gate;  // or kNoGate
    int64_t issue_ns, start_ns, finish_ns;
    int64_t bytes;
    int32_t readers;  // of the copy
  };

  bool Reset(const int32_t* placement);
  bool ResetOps(const int32_t* placement);
  void ResetMemory();
  void ResetBarriers();
  void BeginRound();
  void SortRound();
  void StartOps(int32_t device);
  void AllocateOutputs(int32_t op, int32_t device);
  void StartTransfer(int32_t channel);
  void FinishOp(int32_t op);
  void FinishTransfer(int32_t send);

  void PublishTensor(int32_t op, int32_t tensor, int32_t device);
  void OpenGates(int32_t op, int32_t device);
  void AddSend(int32_t op, int32_t tensor, int32_t device, int32_t to, int64_t bytes,
               int32_t readers);

  bool HasControl(int32_t op) const;
  template <typename Visit>
  void ForEachControl(int32_t op, Visit visit) const;
  void ControlArrived(int32_t op, int32_t device);
  void InputArrived(int32_t op);
  void MakeReady(int32_t op, int32_t device);

  int32_t BufferOn(int32_t tensor, int32_t device) const;
  void EndRead(int32_t buffer, int32_t device);
  MemoryUse Output(int32_t tensor, MemoryKind kind = MemoryKind::kOutput) const;
  void Allocate(int32_t device, int64_t bytes, MemoryUse use);
  void Free(int32_t device, int64_t bytes, MemoryUse use);

  const Problem& problem_;
  const StepGraph& graph_;

  int64_t now_ns_ = 0, makespan_ns_ = 0;
  bool unlinked_ = false;                         // a transfer has no link
  std::vector<int64_t> start_ns_, finish_ns_;     // [n] finish: the duration until the op starts
  std::vector<OpState> ops_;                      // [n]
  std::vector<TensorState> tensors_;              // [T]
  std::vector<Send> sends_;                       // in the order of issue
  std::vector<int32_t> first_send_;               // [n]
  std::vector<int64_t> used_bytes_, peak_bytes_;  // [m]
  std::vector<int32_t> free_slots_;               // [m]
  std::vector<uint8_t> channel_busy_;             // [channels]

  std::vector<ArrivalQueue<int32_t>> ready_;    // [m] ops
  std::vector<ArrivalQueue<uint64_t>> issued_;  // [channels] (src op, send)
  IndexSet startable_devices_, startable_channels_;
  EventQueue events_;
  std::vector<int32_t> round_;

  std::vector<IndexSet> barrier_devices_;  // [barriers] where its successors are
  std::vector<int32_t> barrier_pending_;   // [barriers * m]
  // A gate holds an op's control successors on one other device until all its sends have arrived.
  std::vector<int32_t> gate_pending_;

  // Scratch of FinishOp.
  IndexSet targets_, control_targets_;  // devices
  std::vector<int32_t> consumers_on_;   // [m] zeros between uses
  std::vector<int32_t> gate_to_;        // [m] kNoGate between uses

  std::vector<MemoryChange> memory_changes_;
};

extern template class StepSimulation<false>;
extern template class StepSimulation<true>;

}  // namespace hplacer

#endif  // HPLACER_ENGINE_STEP_SIMULATION_H_
