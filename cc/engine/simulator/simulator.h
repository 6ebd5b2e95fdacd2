// The step simulator: how long one step takes under a placement, and how much memory it needs.
//
// A pure function (problem, placement) -> trace, in the spirit of FlexFlow's simulator (Jia et al.,
// "Beyond Data and Model Parallelism for Deep Neural Networks", MLSys 2019): const inputs, result
// out, no I/O, no randomness, integer nanoseconds and bytes. Every queue has a total order, so that
// two runs, and two implementations of the same semantics, agree exactly.
//
// Model. Each device runs up to `slots` ops at once, each channel one transfer at a time. Devices
// of one pool, which share their cores, run up to that many together, as the CPU devices of a
// process do with its one thread pool. An op is ready when all its inputs, data and control, have
// arrived on its device, and not before the device's `start_ns`. Ready ops of a pool, of whichever
// of its devices, start in the order (time when ready, op), or when a thread asks; transfers of a
// channel in the order (time when sent, src op, output, dst device). A finished op sends each
// output once to every other device with a consumer, and a signal of 0 bytes to a device that only
// waits for it by control edges. Of ops of one device that have the same control successors the
// last to finish, of equal ones the highest, ends the wait of other devices: what it sends there
// stands for all of them. Time moves in rounds: a round takes all events of the smallest time known
// when it begins, applies finished ops, then finished transfers, then starts transfers, then work
// and ops. What a round creates belongs to a later round, even at the same time.
//
// Launches. The host launches the ops of a GPU ahead, and the GPU runs them in that order. So it is
// where a device has a `launch_ns`. The rules are those of TensorFlow's executor and of its copies
// (common_runtime/executor.cc; common_runtime/gpu/gpu_util.cc and pluggable_device_util.cc alike):
//  * An op is ready when its inputs on its device have been launched, and the others are there.
//    Threads of the host launch what is ready, each what it comes upon: what follows the op that it
//    launched, in TensorFlow's order of ops, but first what reads it and then what only waits for
//    it. That order depends on the placement (op_order.h), or is that of numbers. One more thread
//    wakes up for every op that is ready from the beginning, or that a transfer makes ready.
//  * TensorFlow removes an op that is free, and hands on what it reads or only waits, if nothing
//    elsewhere follows it and edges do not become more: one op follows it; or all its inputs are on
//    its device, and inputs times followers are not more than inputs plus followers. What follows
//    it follows the op before it, or the transfer.
//  * TensorFlow merges ops of a device that are the same constant (Grappler's
//    common_subgraph_elimination.cc). Of free ops of one `same_as` that become ready at once, a
//    thread comes upon the first, and what follows any of them follows that one.
//  * The same threads run the ops of the task's other devices, such as a CPU. A thread waits for a
//    slot, and goes on with what follows once the op is done; an op that is free needs no slot. Of
//    the followers there that take time it keeps the last one, if it has nothing else to do, and
//    wakes up one more thread for every other.
//  * Where more than eight follow an op, or an arrived tensor, TensorFlow has their edges in a hash
//    table by addresses (tensorflow/core/graph/edgeset.h, FlatRep). The smallest power of two is
//    its size of which they fill less than 0.8. Of address a, the slot is (a + a / 64) / 256, or if
//    that is taken 1, then 2, then 3 more. An edge takes 32 bytes, and lies where its reader is:
//    those of a device's ops lie one after the other, in TensorFlow's order of ops. Where the first
//    one lies differs from process to process: a device's address is drawn by the `launch_seed`.
//    What follows on another device lies where it would here.
//  * The host of a task has `inter_op_threads` threads, each with a queue. What would wake up
//    another thread waits at the end of a queue that is drawn by the `launch_seed`; or in front of
//    its own, if a thread found it that goes on. In a later round, a thread that has nothing to do
//    any more takes the first of its own queue, or else the last of another one, as Eigen's pool
//    of threads does (NonBlockingThreadPool.h): of the next that has any, from a drawn one on.
//  * A device launches for one thread at a time, in the order in which they ask for it. A launch
//    takes `launch_ns`; an op that is free is not launched.
//  * What is launched runs as soon as what was launched on the device before it is done.
//  * A tensor for another device is sent by the thread in the turn of the first consumer there. A
//    signal is the tensor of a constant that waits for the op: the thread comes upon the constant
//    in the turn of the first successor there, and then upon what is sent, behind all that it has.
//    The copy waits until all is done that is launched by then on the source. If the destination
//    launches, too, it waits for that as well, as the memory there may be in use; but not if it has
//    no bytes and comes from a device that launches. Then it waits for its channel, which one of no
//    bytes does not need.
//  * The copies of a device go one after the other: those to devices that do not launch, those from
//    such devices, and those to devices that launch.
//  * Memory is the host's: that of an op that is launched or free is taken when a thread comes upon
//    it, its inputs are given up when it is launched, a copy's is taken when it is sent.
// Pools are asked in ascending order. Of a round, ops come before transfers, in the order of their
// numbers.
//
// Work of transfers. Software moves tensors between hosts, and needs processors for it: a transfer
// is first sent, by a slot of its source's pool, then carried by the channel, then received, by a
// slot of its destination's pool. Sending begins to wait when the source op has finished, receiving
// when the channel is done; work of no duration is done at once and needs no slot. A pool's work
// waits in the order (time when it began to wait, src op, output, dst device). When a pool starts
// what waits for it, it goes through these:
//   1. If the first of the work has waited as long as it may, all work that waits now is due. That
//      is a `turn_ns` of the pool for each op that runs or is ready there when the work begins to
//      wait, for no more ops than the task has threads, over the slots that they share; for no less
//      than one turn. Due work takes free slots, then interrupts ops that run: first the one that
//      has started first, of these the lowest. An interrupted op goes on when the work on its slot
//      is done.
//   2. Ready ops take free slots.
//   3. Other work takes free slots.
// The first work after ops takes `cold_ns` of the pool longer, or a quarter of what the ops took
// that have finished since the work before it, if that is less: ops fill the caches.
// So does an operating system: a thread that runs ops is not interrupted by one that has a message
// to handle, until it runs out of ops or its turn is over. Each thread with an op has a turn.
//
// Implementation: step_simulation.h, over the packed arrays of problem/step_graph.h.
//
// Decisions where the description leaves room:
//  * `StepTrace::transfers` is in the order (src op, output, dst device).
//  * A transfer of 0 bytes of a data tensor is a tensor, not a signal: it takes part in "the last
//    of these tensors to arrive".
//  * The peak of a device on which nothing is allocated is 0. Without a trace all peaks are 0 and
//    there are no transfers.
//  * An op outside `allowed_devices` that has a kernel there runs: the trace is full, infeasible.

#ifndef HPLACER_ENGINE_SIMULATOR_SIMULATOR_H_
#define HPLACER_ENGINE_SIMULATOR_SIMULATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

inline constexpr int32_t kSignal = -1;  // Transfer::output of a control signal

struct Transfer {
  int32_t src_op;
  int32_t output;  // or kSignal
  int32_t src_device;
  int32_t dst_device;
  int32_t channel;
  int64_t issue_ns;    // the source op has finished
  int64_t sent_ns;     // waits for the channel; before, for a sender's slot or for streams
  int64_t start_ns;    // occupies the channel
  int64_t carried_ns;  // has left it
  int64_t finish_ns;   // has been received
  int64_t bytes;
};

struct StepScore {
  bool has_trace = false;  // every op has a kernel where it is, every transfer a link
  bool feasible = false;
  int64_t makespan_ns = -1;  // -1 without a trace
};

struct StepTrace : StepScore {
  int64_t launch_order = 0;                  // the one whose step this is
  std::vector<int64_t> start_ns, finish_ns;  // [n], empty without a trace
  std::vector<Transfer> transfers;
  std::vector<int64_t> peak_bytes;  // [m]
  // Sentences, one per kind of violation or device; empty if and only if feasible.
  std::vector<std::string> infeasible_because;
};

// Where the order of launches is drawn, the worst of so many orders counts: those of the problem's
// launch seed and of the next ones. TensorFlow's order is another one at each start, and a search
// finds what one order alone makes fast. A search on GPUs ends 2% lower under other orders than
// with one, in the same time.
inline constexpr int32_t kLaunchOrders = 3;

// Throws ProblemError if the placement has a wrong length or an index out of range.
StepTrace Simulate(const Problem& problem, const std::vector<int32_t>& placement,
                   int32_t launch_orders = kLaunchOrders);

// The transfers of an op, in the order of `StepTrace::transfers`, are [first[op], first[op + 1]).
std::vector<int32_t> FirstTransfers(const std::vector<Transfer>& transfers, int32_t num_ops);

// Scores `count` placements, row-major [count, n], on up to `threads` threads; the results do not
// depend on their number. Writes makespan_ns[count] (-1 without a trace), feasible[count] and
// peak_bytes[count, m]. Throws ProblemError like Simulate, before anything is written.
void SimulateBatch(const Problem& problem, const int32_t* placements, int64_t count, int threads,
                   int64_t* makespan_ns, bool* feasible, int64_t* peak_bytes,
                   int32_t launch_orders = kLaunchOrders);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SIMULATOR_SIMULATOR_H_
