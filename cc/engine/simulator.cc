#include "engine/simulator.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <system_error>
#include <thread>

#include "engine/infeasibility.h"

namespace hplacer {
namespace {

constexpr int32_t kNoBuffer = -1;

struct Timed {
  int64_t time_ns;
  int32_t id;
  bool operator>(const Timed& other) const {
    return time_ns != other.time_ns ? time_ns > other.time_ns : id > other.id;
  }
};

// Pops in the order (time, id).
class TimedQueue {
 public:
  void Clear() { heap_.clear(); }
  bool empty() const { return heap_.empty(); }
  const Timed& top() const { return heap_.front(); }
  void Push(int64_t time_ns, int32_t id) {
    heap_.push_back({time_ns, id});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  int32_t Pop() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const int32_t id = heap_.back().id;
    heap_.pop_back();
    return id;
  }

 private:
  std::vector<Timed> heap_;
};

// The devices or channels that a round may let start something, each once.
class WorkList {
 public:
  explicit WorkList(int32_t size) : listed_(size, 0) {}
  void Add(int32_t index) {
    if (listed_[index]) return;
    listed_[index] = 1;
    items_.push_back(index);
  }
  template <typename Visit>
  void Drain(Visit visit) {
    std::sort(items_.begin(), items_.end());
    for (int32_t index : items_) {
      listed_[index] = 0;
      visit(index);
    }
    items_.clear();
  }

 private:
  std::vector<uint8_t> listed_;
  std::vector<int32_t> items_;
};

// The state of one step. An object is reused for many placements, to keep its arrays.
class StepSimulation {
 public:
  explicit StepSimulation(const Problem& problem)
      : problem_(problem),
        spec_(problem.spec()),
        n_(problem.num_ops()),
        edge_buffer_(problem.num_edges()),
        tensor_readers_(problem.num_tensors()),
        transfer_ptr_(n_ + 1),
        stamp_(problem.num_devices()),
        ready_(problem.num_devices()),
        issued_(problem.num_channels()),
        startable_devices_(problem.num_devices()),
        startable_channels_(problem.num_channels()) {}

  // Returns whether there is a trace.
  bool Run(const int32_t* placement) {
    placement_ = placement;
    if (!EnumerateTransfers()) return false;
    Reset();
    for (;;) {
      startable_channels_.Drain([this](int32_t channel) { StartTransfer(channel); });
      startable_devices_.Drain([this](int32_t device) { StartOps(device); });
      if (events_.empty()) return true;
      BeginRound();
      for (int32_t event : round_) {
        if (event < n_) {
          FinishOp(event);
        } else {
          FinishTransfer(event - n_);
        }
      }
    }
  }

  // Valid after Run has returned true, until the next Run.
  int64_t makespan_ns() const { return makespan_ns_; }
  const std::vector<int64_t>& start_ns() const { return start_ns_; }
  const std::vector<int64_t>& finish_ns() const { return finish_ns_; }
  const std::vector<int64_t>& peak_bytes() const { return peak_bytes_; }
  const std::vector<Transfer>& transfers() const { return transfers_; }

 private:
  bool EnumerateTransfers() {
    transfers_.clear();
    std::fill(stamp_.begin(), stamp_.end(), kNoBuffer);
    for (int32_t op = 0; op < n_; ++op) {
      if (problem_.CostNs(op, placement_[op]) == kNoKernel) return false;
      transfer_ptr_[op] = static_cast<int32_t>(transfers_.size());
      if (!EnumerateSignals(op)) return false;
      for (int32_t tensor = problem_.FirstTensor(op); tensor < problem_.FirstTensor(op + 1);
           ++tensor) {
        if (!EnumerateSends(op, tensor)) return false;
      }
    }
    transfer_ptr_[n_] = static_cast<int32_t>(transfers_.size());
    return true;
  }

  // Signals go to the devices of control successors that get no tensor of `op`.
  bool EnumerateSignals(int32_t op) {
    const int32_t begin = problem_.control_out_ptr()[op];
    const int32_t end = problem_.control_out_ptr()[op + 1];
    if (begin == end) return true;
    constexpr int32_t kServed = -2;
    served_.assign(1, placement_[op]);
    const int32_t last_edge = problem_.consumer_ptr()[problem_.FirstTensor(op + 1)];
    for (int32_t edge = problem_.consumer_ptr()[problem_.FirstTensor(op)]; edge < last_edge;
         ++edge) {
      served_.push_back(placement_[problem_.consumers()[edge]]);
    }
    for (int32_t device : served_) stamp_[device] = kServed;
    targets_.clear();
    for (int32_t c = begin; c < end; ++c) {
      const int32_t device = placement_[problem_.control_out()[c]];
      if (stamp_[device] == kServed) continue;
      stamp_[device] = kServed;
      served_.push_back(device);
      targets_.push_back(device);
    }
    for (int32_t device : served_) stamp_[device] = kNoBuffer;
    return AddTransfers(op, kSignal, 0);
  }

  bool EnumerateSends(int32_t op, int32_t tensor) {
    const int32_t begin = problem_.consumer_ptr()[tensor];
    const int32_t end = problem_.consumer_ptr()[tensor + 1];
    int32_t local_readers = 0;
    targets_.clear();
    for (int32_t edge = begin; edge < end; ++edge) {
      const int32_t device = placement_[problem_.consumers()[edge]];
      edge_buffer_[edge] = tensor;
      if (device == placement_[op]) {
        ++local_readers;
      } else if (stamp_[device] == kNoBuffer) {
        stamp_[device] = 0;
        targets_.push_back(device);
      }
    }
    tensor_readers_[tensor] = local_readers + static_cast<int32_t>(targets_.size());
    if (targets_.empty()) return true;
    const int32_t first = static_cast<int32_t>(transfers_.size());
    const bool linked =
        AddTransfers(op, tensor - problem_.FirstTensor(op), spec_.output_bytes[tensor]);
    for (size_t i = 0; i < targets_.size(); ++i) {
      stamp_[targets_[i]] = problem_.num_tensors() + first + static_cast<int32_t>(i);
    }
    for (int32_t edge = begin; edge < end; ++edge) {
      const int32_t device = placement_[problem_.consumers()[edge]];
      if (device != placement_[op]) edge_buffer_[edge] = stamp_[device];
    }
    for (int32_t device : targets_) stamp_[device] = kNoBuffer;
    return linked;
  }

  // One transfer to each of targets_, which it sorts.
  bool AddTransfers(int32_t op, int32_t output, int64_t bytes) {
    std::sort(targets_.begin(), targets_.end());
    for (int32_t device : targets_) {
      const int32_t link = problem_.Link(placement_[op], device);
      if (link < 0) return false;
      transfers_.push_back(
          {op, output, placement_[op], device, problem_.link_channel()[link], -1, -1, -1, bytes});
    }
    return true;
  }

  void Reset() {
    const int32_t num_tensors = problem_.num_tensors();
    const int32_t num_buffers = num_tensors + static_cast<int32_t>(transfers_.size());
    now_ns_ = makespan_ns_ = 0;
    pending_ = problem_.in_degree();
    start_ns_.assign(n_, -1);
    finish_ns_.assign(n_, -1);
    root_.resize(num_buffers);
    for (int32_t buffer = 0; buffer < num_buffers; ++buffer) root_[buffer] = buffer;
    readers_.assign(num_buffers, 0);
    for (int32_t buffer : edge_buffer_) {
      if (buffer >= num_tensors) ++readers_[buffer];
    }
    used_bytes_.assign(problem_.num_devices(), 0);
    for (int32_t op = 0; op < n_; ++op) used_bytes_[placement_[op]] += spec_.persistent_bytes[op];
    peak_bytes_ = used_bytes_;
    free_slots_ = spec_.device_slots;
    channel_busy_.assign(problem_.num_channels(), 0);
    for (int32_t op = 0; op < n_; ++op) {
      if (pending_[op] == 0) MakeReady(op);
    }
  }

  // Takes all events of the smallest time, in the order of their ids.
  void BeginRound() {
    now_ns_ = events_.top().time_ns;
    round_.clear();
    while (!events_.empty() && events_.top().time_ns == now_ns_) round_.push_back(events_.Pop());
  }

  void MakeReady(int32_t op) {
    ready_[placement_[op]].Push(now_ns_, op);
    startable_devices_.Add(placement_[op]);
  }

  void InputArrived(int32_t op) {
    if (--pending_[op] == 0) MakeReady(op);
  }

  void StartOps(int32_t device) {
    TimedQueue& queue = ready_[device];
    for (; free_slots_[device] > 0 && !queue.empty(); --free_slots_[device]) {
      const int32_t op = queue.Pop();
      start_ns_[op] = now_ns_;
      events_.Push(now_ns_ + problem_.CostNs(op, device), op);
      Allocate(device, spec_.temp_bytes[op]);
      for (int32_t tensor = problem_.FirstTensor(op); tensor < problem_.FirstTensor(op + 1);
           ++tensor) {
        if (problem_.alias_edge()[tensor] == kNoAlias) {
          Allocate(device, spec_.output_bytes[tensor]);
        }
      }
    }
  }

  void StartTransfer(int32_t channel) {
    TimedQueue& queue = issued_[channel];
    if (channel_busy_[channel] || queue.empty()) return;
    const int32_t index = queue.Pop();
    Transfer& transfer = transfers_[index];
    channel_busy_[channel] = 1;
    transfer.start_ns = now_ns_;
    const int32_t link = problem_.Link(transfer.src_device, transfer.dst_device);
    events_.Push(now_ns_ + problem_.TransferNs(link, transfer.bytes), n_ + index);
    if (transfer.output != kSignal) Allocate(transfer.dst_device, transfer.bytes);
  }

  void FinishOp(int32_t op) {
    const int32_t device = placement_[op];
    makespan_ns_ = finish_ns_[op] = now_ns_;
    ++free_slots_[device];
    startable_devices_.Add(device);
    used_bytes_[device] -= spec_.temp_bytes[op];
    for (int32_t tensor = problem_.FirstTensor(op); tensor < problem_.FirstTensor(op + 1);
         ++tensor) {
      AddReaders(device, tensor);
      NotifyConsumers(tensor, device);
    }
    for (int32_t r = problem_.read_ptr()[op]; r < problem_.read_ptr()[op + 1]; ++r) {
      RemoveReader(device, edge_buffer_[problem_.read_edges()[r]]);
    }
    NotifyControlSuccessors(op, device);
    for (int32_t i = transfer_ptr_[op]; i < transfer_ptr_[op + 1]; ++i) {
      transfers_[i].issue_ns = now_ns_;
      issued_[transfers_[i].channel].Push(now_ns_, i);
      startable_channels_.Add(transfers_[i].channel);
    }
  }

  void FinishTransfer(int32_t index) {
    Transfer& transfer = transfers_[index];
    transfer.finish_ns = now_ns_;
    channel_busy_[transfer.channel] = 0;
    startable_channels_.Add(transfer.channel);
    const int32_t op = transfer.src_op;
    if (transfer.output != kSignal) {
      const int32_t tensor = problem_.FirstTensor(op) + transfer.output;
      RemoveReader(transfer.src_device, tensor);
      NotifyConsumers(tensor, transfer.dst_device);
    }
    if (problem_.control_out_ptr()[op] == problem_.control_out_ptr()[op + 1]) return;
    for (int32_t i = transfer_ptr_[op]; i < transfer_ptr_[op + 1]; ++i) {
      const bool under_way = transfers_[i].finish_ns < 0;
      if (under_way && transfers_[i].dst_device == transfer.dst_device) return;
    }
    NotifyControlSuccessors(op, transfer.dst_device);
  }

  void NotifyConsumers(int32_t tensor, int32_t device) {
    const int32_t end = problem_.consumer_ptr()[tensor + 1];
    for (int32_t edge = problem_.consumer_ptr()[tensor]; edge < end; ++edge) {
      const int32_t op = problem_.consumers()[edge];
      if (placement_[op] == device) InputArrived(op);
    }
  }

  void NotifyControlSuccessors(int32_t op, int32_t device) {
    for (int32_t c = problem_.control_out_ptr()[op]; c < problem_.control_out_ptr()[op + 1]; ++c) {
      const int32_t successor = problem_.control_out()[c];
      if (placement_[successor] == device) InputArrived(successor);
    }
  }

  void Allocate(int32_t device, int64_t bytes) {
    used_bytes_[device] += bytes;
    peak_bytes_[device] = std::max(peak_bytes_[device], used_bytes_[device]);
  }

  // The op of `tensor` has finished on `device`: the tensor's readers join its root buffer.
  void AddReaders(int32_t device, int32_t tensor) {
    const int32_t alias_edge = problem_.alias_edge()[tensor];
    if (alias_edge == kPersistentAlias) {
      root_[tensor] = kNoBuffer;
    } else if (alias_edge != kNoAlias) {
      root_[tensor] = root_[edge_buffer_[alias_edge]];
    }
    if (root_[tensor] == kNoBuffer) return;
    int32_t& readers = readers_[root_[tensor]];
    readers += tensor_readers_[tensor];
    if (readers == 0) Free(device, root_[tensor]);
  }

  void RemoveReader(int32_t device, int32_t buffer) {
    const int32_t root = root_[buffer];
    if (root != kNoBuffer && --readers_[root] == 0) Free(device, root);
  }

  void Free(int32_t device, int32_t root) {
    const int32_t num_tensors = problem_.num_tensors();
    used_bytes_[device] -=
        root < num_tensors ? spec_.output_bytes[root] : transfers_[root - num_tensors].bytes;
  }

  const Problem& problem_;
  const ProblemSpec& spec_;
  const int32_t n_;
  const int32_t* placement_ = nullptr;

  int64_t now_ns_ = 0, makespan_ns_ = 0;
  std::vector<int64_t> start_ns_, finish_ns_;  // [n]
  std::vector<int32_t> pending_;               // [n] inputs that have not arrived
  // Buffers 0..T-1 are the tensors on their op's device, T + i the copy made by transfer i.
  std::vector<int32_t> edge_buffer_;              // [E] what the edge's consumer reads
  std::vector<int32_t> root_;                     // [buffers] or kNoBuffer
  std::vector<int32_t> readers_;                  // [buffers] under all names
  std::vector<int32_t> tensor_readers_;           // [T] local consumers and sends
  std::vector<int64_t> used_bytes_, peak_bytes_;  // [m]
  std::vector<int32_t> transfer_ptr_;             // [n + 1] transfers of an op
  std::vector<Transfer> transfers_;
  std::vector<int32_t> stamp_;              // [m] kNoBuffer between uses
  std::vector<int32_t> targets_, served_;   // devices, while enumerating
  std::vector<int32_t> free_slots_;         // [m]
  std::vector<uint8_t> channel_busy_;       // [channels]
  std::vector<TimedQueue> ready_, issued_;  // per device, per channel
  TimedQueue events_;                       // finishes of ops, then of n + transfers
  std::vector<int32_t> round_;
  WorkList startable_devices_, startable_channels_;
};

}  // namespace

StepTrace Simulate(const Problem& problem, const std::vector<int32_t>& placement) {
  CheckPlacement(problem, placement);
  StepSimulation simulation(problem);
  StepTrace trace;
  trace.peak_bytes.assign(problem.num_devices(), 0);
  trace.has_trace = simulation.Run(placement.data());
  if (trace.has_trace) {
    trace.makespan_ns = simulation.makespan_ns();
    trace.start_ns = simulation.start_ns();
    trace.finish_ns = simulation.finish_ns();
    trace.transfers = simulation.transfers();
    trace.peak_bytes = simulation.peak_bytes();
  }
  trace.infeasible_because = DescribeInfeasibility(problem, placement, trace.peak_bytes);
  trace.feasible = trace.infeasible_because.empty();
  return trace;
}

void SimulateBatch(const Problem& problem, const int32_t* placements, int64_t count, int threads,
                   int64_t* makespan_ns, bool* feasible, int64_t* peak_bytes) {
  const int64_t n = problem.num_ops(), m = problem.num_devices();
  for (int64_t row = 0; row < count; ++row) {
    CheckPlacement(problem, {placements + row * n, placements + (row + 1) * n});
  }
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    StepSimulation simulation(problem);
    for (int64_t row = next++; row < count; row = next++) {
      const int32_t* placement = placements + row * n;
      const bool has_trace = simulation.Run(placement);
      makespan_ns[row] = has_trace ? simulation.makespan_ns() : -1;
      std::fill_n(peak_bytes + row * m, m, 0);
      if (has_trace) {
        std::copy_n(simulation.peak_bytes().begin(), m, peak_bytes + row * m);
      }
      feasible[row] = has_trace && HonoursConstraints(problem, placement) &&
                      FitsMemory(problem, peak_bytes + row * m);
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // The system grants no more threads; those that there are do all the work.
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace hplacer
