// The state machine of one step: what runs, what is sent, what is held, round after round.
//
// simulator.h describes the model. An object is reused for many runs, of any problem, to keep its
// arrays; its result is valid until the next run.
//
// Transfers are made when their source op finishes and kept in that order, so that an op's stay
// together; `Transfers` puts them into the order (src op, output, dst device). A channel's queue
// orders them by (src op, index), which is the same order.
//
// Buffers. A tensor's memory on a device is a buffer: the tensor's own on its op's device, one per
// transfer on a receiver. An alias resolves to the root buffer on its op's device, which is the
// received copy if the aliased tensor came from elsewhere, or to none for persistent memory. A
// received copy is always a buffer of its own, of full size.
//
// A transfer with work has a record of it beside its own, and waits in its pools' queues of work.
// Work on top of an op moves the end of the op; the event of its old end is found to be out of date
// when it comes, and comes again.
//
// Within a round memory is only freed while events are applied and only allocated afterwards, and
// readiness, queues and reader counts do not depend on the order of a round's events. Hence that
// order is visible in nothing but the record of memory changes and, where there are barriers, who
// is the last of a group. Elsewhere it is not kept without kRecord. Nor are an op's temp and
// outputs apart: they are allocated in one sum.
//
// Speed: placements are random, so branches on who is local or ready are mispredicted. Where it is
// cheap, both cases are computed and one is kept.

#ifndef HPLACER_ENGINE_SIMULATOR_STEP_SIMULATION_H_
#define HPLACER_ENGINE_SIMULATOR_STEP_SIMULATION_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/problem/mix_bits.h"
#include "engine/problem/op_order.h"
#include "engine/problem/problem.h"
#include "engine/problem/step_graph.h"
#include "engine/simulator/host_threads.h"
#include "engine/simulator/memory_trace.h"
#include "engine/simulator/simulator.h"
#include "engine/simulator/step_queues.h"

namespace hplacer {

// Ends a run as soon as it is certain that the step will last `ns` or longer.
struct StepCutoff {
  int64_t ns;
  // [n] how long the step goes on at least after the op has finished, under the run's placement.
  const int64_t* tail_ns;
  const int64_t* load_ns;  // [pools] the costs of the ops on its devices
};

// EventKey: see EventQueue. kRecord: keep the memory changes.
template <typename EventKey, bool kRecord>
class StepSimulation {
 public:
  // Whether the problem's times fit into EventKey.
  static bool Fits(const Problem& problem);

  // Returns whether there is a trace. The placement must be in range. The problem must outlive the
  // use of the result.
  bool Run(const Problem& problem, const int32_t* placement) {
    return Run(problem, placement, nullptr);
  }
  // With a cutoff there is no trace either if the run ended early.
  // `order` is added to the problem's launch seed.
  bool Run(const Problem& problem, const int32_t* placement, const StepCutoff* cutoff,
           int64_t order = 0);

  // By the last run.
  bool has_drawn() const { return has_drawn_ || host_threads_.has_drawn(); }  // of the launch seed
  int32_t num_started() const { return num_started_; }
  int64_t makespan_ns() const { return makespan_ns_; }
  const std::vector<int64_t>& peak_bytes() const { return peak_bytes_; }
  void CopyTimes(std::vector<int64_t>* start_ns, std::vector<int64_t>* finish_ns) const;
  std::vector<Transfer> Transfers() const;
  // As they started: ops, and ~i for the i-th of Transfers().
  void CopyOrder(std::vector<int32_t>* order) const;
  // Frees what only a run needs, so that a large result does not stand beside it.
  void DropRunState();
  // In the order of the changes; empty without kRecord.
  const std::vector<MemoryChange>& memory_changes() const { return memory_changes_; }

 private:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kEndOfItems = std::numeric_limits<int32_t>::min();
  // TensorFlow keeps more edges than these in a hash table (tensorflow/core/graph/edgeset.h).
  static constexpr int32_t kMostInOrder = 8;
  static constexpr int32_t kNoGate = -1;
  // Instead of an item: a follower that waits for others, too.
  static constexpr int32_t kNotReady = std::numeric_limits<int32_t>::min();

  struct OpState {
    int64_t finish_ns;  // the duration until it starts
    int32_t pending;    // inputs that have not arrived
    int32_t device;
    // Until it starts, where in reads_ the buffer of its next data input goes; once it has
    // finished, its first send.
    int32_t cursor;
    int32_t next;  // item of the thread that has come upon it; then this thread
  };
  // Of tensors, made when their op finishes; then one of no bytes for aliases of persistent memory;
  // then the copies that sends make, in their order.
  struct Buffer {
    int64_t bytes;
    int32_t readers;  // under all names
    int32_t root;     // the buffer where the readers are counted
  };
  struct Send {
    int32_t op, tensor;  // tensor: or kSignal
    int32_t src_device, dst_device, channel;
    int32_t src_buffer;
    int32_t reader;  // one of the consumers
    int32_t gate;    // or kNoGate
    int64_t issue_ns, start_ns;
    int64_t finish_ns;  // the duration until it starts
    int64_t bytes;
  };
  // Of the host. Items, ops and ~sends, are what it has come upon: a list by their `next`.
  struct Thread {
    int32_t first, last;  // items; first may be kEndOfItems
    int32_t op;           // that it launches, or waits to
    int32_t device;       // of its items
    bool is_new;          // woken by a transfer, and has run nothing yet
  };
  // What launches on a device, for one thread of the host at a time.
  struct Launcher {
    Fifo threads;            // that wait for it
    int32_t thread = kNone;  // that it works for
  };
  // What follows a launched op or an arrived tensor on a device that launches.
  struct Found {
    uint64_t key;  // items are taken up in its order
    int32_t item;  // an op, ~send or kNotReady
  };
  // What TensorFlow merges on a device: those of a class of constants that became ready at once.
  struct Merged {
    int32_t op;           // that stands for them, or kNone
    int32_t first, last;  // the others: a list by their `next`; first may be kEndOfItems
  };
  // What only copies from or to a device that launches have, by send.
  struct Copy {
    int32_t stream;    // or kNone: it is no such copy
    int32_t next;      // item of the thread that has come upon it
    int64_t ready_ns;  // when the compute streams that it waits for are done
    int64_t sent_ns;   // when it waited for the channel; kNone: not yet
    bool has_tensor;   // false: a signal, whose constant the thread has not come upon
  };
  enum class Part : uint8_t { kSend, kCarry, kReceive };
  // What only transfers on links with work need, by send.
  struct Work {
    int64_t due_ns;  // when it has waited for a slot as long as it may
    int64_t sent_ns, carried_ns;
    int32_t link;
    int32_t on_op;  // that it interrupts, or kNone
    Part part;
  };

  static int64_t MaxEvents(const Problem& problem);
  void Reset(int64_t order);
  bool ResetOps(const int32_t* placement);
  void ResetLaunches(int64_t order);
  void ResetOrder(const int32_t* placement);
  void ResetMemory();
  void ResetBarriers();
  void ApplyRound();
  void Apply(int32_t event);
  void SortRound();
  void StartOps(int32_t pool);
  void CheckCutoff(int32_t pool);
  void PrefetchFinish(int32_t op) const;
  void AllocateAtStart(int32_t op, int32_t device);
  void AllocateOutputs(int32_t op, int32_t device);
  void StartTransfer(int32_t channel);
  void FinishOp(int32_t op);
  void FinishTransferPart(int32_t index);
  void Arrive(int32_t index);

  void HoldDevices();
  void WakeUp(int32_t alarm);
  void StartDevice(int32_t device);
  void StartDueWork(int32_t pool);
  void StartOtherWork(int32_t pool);
  int32_t OpToInterrupt(int32_t pool) const;
  void StartWork(int32_t pool, int32_t on_op);
  void FinishWork(int32_t index);
  void WaitForSlot(int32_t index, Part part);
  void SetDue(int32_t pool);
  void WaitForChannel(int32_t index);
  void SetAlarm(int32_t pool);

  bool Launches(int32_t device) const { return has_launches_ && launch_ns_[device] > 0; }
  bool HasThreads(int32_t device) const { return has_launches_ && has_threads_[device]; }
  int32_t& NextOf(int32_t item) { return item < 0 ? copies_[~item].next : ops_[item].next; }
  void PushItem(int32_t item, Thread* thread);
  void WakeThread(int32_t op, bool is_new);
  void StartThread(int32_t thread, const HostThreads::Task& task);
  bool StartWaiting();
  void RunThreads(int32_t pool);
  void RunThread(int32_t thread);
  void Launch(int32_t device);
  void Enqueue(int32_t op, int32_t device);
  void PutOnStream(int32_t op, int32_t device);
  void TakeUpFollowers(int32_t device);
  void PassRemoved(int32_t device);
  bool IsRemoved(int32_t op, int32_t device, bool follows_transfer) const;
  bool HasInputsOn(int32_t device, int32_t op) const;
  bool IsMerged(int32_t op, int32_t device);
  void PutMergedOnStream(int32_t op, int32_t device);
  // Of an op, or of the first of those elsewhere that a send is for.
  uint64_t KeyOf(int32_t op) const {
    return static_cast<uint64_t>(PlaceOf(op)) << 32 | static_cast<uint32_t>(op);
  }
  int32_t PlaceOf(int32_t op) const { return places_ == nullptr ? op : places_[op]; }
  void GrowFound(int32_t count);
  void AddFound(uint64_t key, int32_t item);
  void TakeUpFound(int32_t device);
  void TakeUp(int32_t item, int32_t* other);
  void SortFound();
  void SortFoundByTable(int32_t device, int32_t num_followers);
  void CountEdges();
  uint64_t EdgesBefore(int32_t device, int32_t place) const;
  void FinishLaunch(int32_t op);
  void IssueCopy(int32_t index);
  void ContinueCopies(int32_t stream);
  void Carry(int32_t index);

  void HandOn(int32_t op, int32_t device);
  void PublishLaunched(int32_t op, int32_t tensor, int32_t device);
  void PublishTensor(int32_t op, int32_t tensor, int32_t device);
  int32_t RootOf(int32_t tensor, int32_t alias, int32_t device) const;
  bool IsLastOfGroup(const StepGraph::Control& control, int32_t device);
  void OpenGates(int32_t op, int32_t device);
  int32_t FirstSuccessor(const StepGraph::Control& control, int32_t device) const;
  int32_t AddSend(int32_t src_buffer, int32_t op, int32_t tensor, int32_t device, int32_t to);
  void StartSend(int32_t index);
  void WorkOnSend(int32_t index);

  template <typename Visit>
  void ForEachSuccessor(const StepGraph::Control& control, Visit visit) const;
  void ControlArrived(int32_t op, int32_t device);
  void TensorArrived(int32_t op, int32_t buffer, int32_t device);
  void MakeReady(int32_t op, int32_t device, uint64_t waits = 0);
  void NoteUnready(int32_t begin, int32_t end, int32_t device);

  int32_t NoBuffer() const { return num_tensors_; }
  int32_t CopyBuffer(int32_t send) const { return num_tensors_ + 1 + send; }
  MemoryUse UseOf(int32_t buffer) const;
  void EndReads(int32_t begin, int32_t end, int32_t device);
  void EndRead(int32_t buffer, int32_t device);
  void Allocate(int32_t device, int64_t bytes, MemoryUse use);
  void Free(int32_t device, int64_t bytes, MemoryUse use);

  const Problem* problem_ = nullptr;
  const StepGraph* graph_ = nullptr;
  // Of these two, without their indirections.
  const StepGraph::Op* op_records_ = nullptr;
  const StepGraph::Tensor* tensor_records_ = nullptr;
  const int32_t* consumers_ = nullptr;
  const int32_t* device_pool_ = nullptr;
  const int32_t* device_task_ = nullptr;
  int32_t num_tensors_ = 0;

  const StepCutoff* cutoff_ = nullptr;
  bool was_cut_off_ = false;
  int32_t num_started_ = 0;
  std::vector<int64_t> unstarted_ns_;  // [pools] with a cutoff: the costs of the ops to start

  int64_t now_ns_ = 0, makespan_ns_ = 0;
  bool unlinked_ = false;                         // a transfer has no link
  std::vector<OpState> ops_;                      // [n]
  std::vector<int32_t> reads_;                    // [E] buffers that ops read, grouped by op
  std::vector<Buffer> buffers_;                   // [T + 1 + sends]
  std::vector<Send> sends_;                       // in the order of issue
  std::vector<int32_t> order_;                    // ops and ~sends as they start
  std::vector<int64_t> used_bytes_, peak_bytes_;  // [m]
  std::vector<int32_t> free_slots_;               // [pools]
  std::vector<uint8_t> channel_busy_;             // [channels]

  // Of problems with launches.
  bool has_launches_ = false;
  const int64_t* launch_ns_ = nullptr;  // [m]
  std::vector<uint8_t> has_threads_;    // [m] a device of its task launches
  uint64_t launch_seed_ = 0;            // with the order, mixed
  bool has_drawn_ = false;
  std::vector<int32_t> pool_device_;  // [pools] the last of its devices
  OpOrder op_order_;
  const int32_t* places_ = nullptr;  // of ops in TensorFlow's order; nullptr: their numbers
  HostThreads host_threads_;         // a host for each task
  std::vector<Thread> threads_;
  bool is_arriving_ = false;  // what becomes ready now does so by a transfer
  int32_t thread_ = kNone;    // the one that acts
  std::vector<Found> found_;  // the first num_found_ are: since the last TakeUpFound
  int32_t num_found_ = 0;
  int32_t num_followers_ = 0;
  // The edges of a device's ops, one after the other in memory: counted where they are needed.
  struct OpEdges {
    int32_t place;
    int32_t num_before;
  };
  std::vector<std::vector<OpEdges>> edges_;  // [m]
  bool has_edges_ = false;
  std::vector<int32_t> table_;  // indices into found_, or kNone
  std::vector<Found> in_table_;
  std::vector<Merged> merged_;                       // [classes * m]
  std::vector<std::vector<int32_t>> woken_threads_;  // [pools]
  std::vector<Launcher> launchers_;                  // [m]
  std::vector<int64_t> stream_free_ns_;              // [m] when all that was launched is done
  // [3 m] the sends of a device to those that do not launch, from these, and to those that launch:
  // one after the other, the first of them is on its way.
  std::vector<Fifo> copy_streams_;
  std::vector<Copy> copies_;  // [sends]

  // Of problems with work.
  bool has_work_ = false;
  std::vector<Work> works_;                     // [sends]
  std::vector<ArrivalQueue<uint64_t>> work_;    // [pools] (src op, send)
  std::vector<int64_t> due_;                    // [pools] so many of the first are due
  std::vector<std::vector<int32_t>> new_work_;  // [pools] sends without a due_ns
  std::vector<std::vector<int32_t>> running_;   // [pools] ops that are not interrupted
  std::vector<int32_t> num_running_;            // [pools] with these
  std::vector<uint8_t> has_alarm_;              // [pools]
  std::vector<int64_t> worked_ns_;              // [pools] ops since the last work of a transfer
  std::vector<int64_t> op_start_ns_;            // [n]
  // Of problems with devices that start later: ops that are ready before.
  std::vector<std::vector<int32_t>> held_;  // [m]
  std::vector<uint8_t> is_held_;            // [m], empty if no device is

  std::vector<ArrivalQueue<int32_t>> ready_;    // [pools] ops
  std::vector<ArrivalQueue<uint64_t>> issued_;  // [channels] (src op, send)
  IndexSet startable_pools_, startable_channels_;
  // An op, ~send, or from n on an alarm: of a pool's work, then of a device's start.
  EventQueue<EventKey> events_;
  std::vector<int32_t> round_;

  std::vector<IndexSet> barrier_devices_;  // [barriers] where its successors are
  // [barriers * m] sources there that have not finished; what successors there wait for: sources
  // there, and one of each other device.
  std::vector<int32_t> barrier_sources_, barrier_pending_;
  // A gate holds an op's control successors on one other device until all its sends have arrived.
  std::vector<int32_t> gate_pending_;

  // Scratch of FinishOp.
  struct Receiver {
    int32_t readers;  // 0 between uses
    int32_t reader;   // one of them; where the source launches, the first
    int32_t gate;     // kNoGate between uses
  };
  IndexSet targets_, control_targets_;  // devices
  std::vector<Receiver> receivers_;     // [m]

  std::vector<MemoryChange> memory_changes_;
};

// Short keys for all problems that they fit, long ones for the others.
using ShortEventKey = uint64_t;
using LongEventKey = unsigned __int128;

extern template class StepSimulation<ShortEventKey, false>;
extern template class StepSimulation<LongEventKey, false>;
extern template class StepSimulation<LongEventKey, true>;

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SIMULATOR_STEP_SIMULATION_H_
