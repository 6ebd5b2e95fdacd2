#include "engine/step_simulation.h"

#include <algorithm>

namespace hplacer {

template <bool kRecord>
StepSimulation<kRecord>::StepSimulation(const Problem& problem)
    : problem_(problem),
      graph_(problem.step_graph()),
      tensors_(problem.num_tensors()),
      first_send_(problem.num_ops()),
      ready_(problem.num_devices()),
      issued_(problem.num_channels()),
      startable_devices_(problem.num_devices()),
      startable_channels_(problem.num_channels()),
      barrier_devices_(graph_.barriers.size(), IndexSet(problem.num_devices())),
      targets_(problem.num_devices()),
      control_targets_(problem.num_devices()),
      consumers_on_(problem.num_devices(), 0),
      gate_to_(problem.num_devices(), kNoGate) {}

template <bool kRecord>
bool StepSimulation<kRecord>::Run(const int32_t* placement) {
  if (!Reset(placement)) return false;
  for (;;) {
    startable_channels_.Drain([this](int32_t channel) { StartTransfer(channel); });
    startable_devices_.Drain([this](int32_t device) { StartOps(device); });
    if (events_.empty()) return true;
    BeginRound();
    for (int32_t event : round_) {
      if (IsSend(event)) {
        FinishTransfer(~event);
      } else {
        FinishOp(event);
      }
    }
    if (unlinked_) return false;
  }
}

template <bool kRecord>
std::vector<Transfer> StepSimulation<kRecord>::Transfers() const {
  std::vector<Transfer> transfers;
  transfers.reserve(sends_.size());
  for (int32_t op = 0; op < problem_.num_ops(); ++op) {
    for (size_t i = first_send_[op]; i < sends_.size() && sends_[i].op == op; ++i) {
      const Send& send = sends_[i];
      const int32_t output =
          send.tensor == kSignal ? kSignal : send.tensor - graph_.ops[op].first_tensor;
      transfers.push_back({op, output, send.src_device, send.dst_device, send.channel,
                           send.issue_ns, send.start_ns, send.finish_ns, send.bytes});
    }
  }
  return transfers;
}

// ---- the beginning ----

template <bool kRecord>
bool StepSimulation<kRecord>::Reset(const int32_t* placement) {
  now_ns_ = makespan_ns_ = 0;
  unlinked_ = false;
  sends_.clear();
  gate_pending_.clear();
  events_.Clear();
  for (auto& queue : ready_) queue.Clear();
  for (auto& queue : issued_) queue.Clear();
  startable_devices_.Clear();
  startable_channels_.Clear();
  free_slots_ = problem_.spec().device_slots;
  channel_busy_.assign(problem_.num_channels(), 0);
  if (!ResetOps(placement)) return false;
  ResetMemory();
  ResetBarriers();
  for (int32_t op : graph_.sources) MakeReady(op, ops_[op].device);
  return true;
}

// Returns whether every op has a kernel.
template <bool kRecord>
bool StepSimulation<kRecord>::ResetOps(const int32_t* placement) {
  const auto n = static_cast<size_t>(problem_.num_ops());
  const auto kinds = static_cast<size_t>(problem_.num_kinds());
  const int32_t* const device_kind = problem_.spec().device_kind.data();
  const int64_t* cost_ns = problem_.spec().cost_ns.data();
  start_ns_.resize(n);
  finish_ns_.resize(n);
  ops_.resize(n);
  int64_t all = 0;  // negative if any of them is
  for (size_t op = 0; op < n; ++op, cost_ns += kinds) {
    const int32_t device = placement[op];
    ops_[op] = {graph_.in_degree[op], device};
    finish_ns_[op] = cost_ns[device_kind[device]];
    all |= finish_ns_[op];
  }
  return all >= 0;
}

template <bool kRecord>
void StepSimulation<kRecord>::ResetMemory() {
  memory_changes_.clear();
  used_bytes_.assign(problem_.num_devices(), 0);
  peak_bytes_.assign(problem_.num_devices(), 0);
  for (const auto& [op, bytes] : graph_.persistent) {
    Allocate(ops_[op].device, bytes, {op, MemoryKind::kPersistent, 0});
  }
}

template <bool kRecord>
void StepSimulation<kRecord>::ResetBarriers() {
  const auto m = static_cast<size_t>(problem_.num_devices());
  barrier_pending_.resize(graph_.barriers.size() * m);
  for (size_t i = 0; i < graph_.barriers.size(); ++i) {
    const StepGraph::Barrier& barrier = graph_.barriers[i];
    std::fill_n(barrier_pending_.begin() + static_cast<ptrdiff_t>(i * m), m, barrier.num_sources);
    barrier_devices_[i].Clear();
    ForEachControl(barrier.example, [&](int32_t op) { barrier_devices_[i].Add(ops_[op].device); });
  }
}

// ---- rounds ----

template <bool kRecord>
void StepSimulation<kRecord>::BeginRound() {
  now_ns_ = events_.time_ns();
  round_.clear();
  do {
    round_.push_back(events_.Pop());
  } while (!events_.empty() && events_.time_ns() == now_ns_);
  if constexpr (kRecord) SortRound();
}

// Finished ops by id, then finished transfers by (src op, output, dst device).
template <bool kRecord>
void StepSimulation<kRecord>::SortRound() {
  std::sort(round_.begin(), round_.end(), [this](int32_t a, int32_t b) {
    if (!IsSend(a) || !IsSend(b)) return IsSend(a) || IsSend(b) ? IsSend(b) : a < b;
    return sends_[~a].op != sends_[~b].op ? sends_[~a].op < sends_[~b].op : ~a < ~b;
  });
}

template <bool kRecord>
void StepSimulation<kRecord>::StartOps(int32_t device) {
  ArrivalQueue<int32_t>& queue = ready_[device];
  queue.Seal();
  for (; free_slots_[device] > 0 && !queue.empty(); --free_slots_[device]) {
    const int32_t op = queue.Pop();
    start_ns_[op] = now_ns_;
    finish_ns_[op] += now_ns_;
    events_.Push(finish_ns_[op], op);
    if constexpr (kRecord) {
      Allocate(device, graph_.ops[op].temp_bytes, {op, MemoryKind::kTemp, 0});
      AllocateOutputs(op, device);
    } else {
      Allocate(device, graph_.ops[op].start_bytes, {});
    }
  }
}

template <bool kRecord>
void StepSimulation<kRecord>::AllocateOutputs(int32_t op, int32_t device) {
  for (int32_t tensor = graph_.ops[op].first_tensor; tensor < graph_.ops[op + 1].first_tensor;
       ++tensor) {
    if (graph_.tensors[tensor].alias != kNoAlias) continue;
    Allocate(device, graph_.tensors[tensor].bytes, Output(tensor));
  }
}

template <bool kRecord>
void StepSimulation<kRecord>::StartTransfer(int32_t channel) {
  ArrivalQueue<uint64_t>& queue = issued_[channel];
  queue.Seal();
  if (channel_busy_[channel] || queue.empty()) return;
  const auto index = static_cast<int32_t>(queue.Pop() & UINT32_MAX);
  Send& send = sends_[index];
  channel_busy_[channel] = 1;
  send.start_ns = now_ns_;
  send.finish_ns =
      now_ns_ + problem_.TransferNs(problem_.Link(send.src_device, send.dst_device), send.bytes);
  events_.Push(send.finish_ns, ~index);
  if (send.tensor == kSignal) return;
  Allocate(send.dst_device, send.bytes, Output(send.tensor, MemoryKind::kCopy));
}

template <bool kRecord>
void StepSimulation<kRecord>::FinishOp(int32_t op) {
  const StepGraph::Op& record = graph_.ops[op];
  const StepGraph::Op& next = graph_.ops[op + 1];
  const int32_t device = ops_[op].device;
  makespan_ns_ = now_ns_;
  ++free_slots_[device];
  startable_devices_.Add(device);
  Free(device, record.temp_bytes, {op, MemoryKind::kTemp, 0});
  first_send_[op] = static_cast<int32_t>(sends_.size());
  const bool has_control = HasControl(op);
  if (has_control) OpenGates(op, device);
  for (int32_t tensor = record.first_tensor; tensor < next.first_tensor; ++tensor) {
    PublishTensor(op, tensor, device);
  }
  for (int32_t r = record.first_read; r < next.first_read; ++r) {
    EndRead(BufferOn(graph_.read_tensors[r], device), device);
  }
  if (!has_control) return;
  control_targets_.Drain([this](int32_t to) { gate_to_[to] = kNoGate; });
  ControlArrived(op, device);
}

template <bool kRecord>
void StepSimulation<kRecord>::FinishTransfer(int32_t index) {
  const Send send = sends_[index];
  channel_busy_[send.channel] = 0;
  startable_channels_.Add(send.channel);
  if (send.tensor != kSignal) {
    EndRead(tensors_[send.tensor].root, send.src_device);
    const int32_t end = graph_.tensors[send.tensor + 1].first_consumer;
    for (int32_t edge = graph_.tensors[send.tensor].first_consumer; edge < end; ++edge) {
      const int32_t consumer = problem_.consumers()[edge];
      if (ops_[consumer].device == send.dst_device) InputArrived(consumer);
    }
  }
  if (send.gate != kNoGate && --gate_pending_[send.gate] == 0) {
    ControlArrived(send.op, send.dst_device);
  }
}

// ---- what a finished op produces ----

template <bool kRecord>
void StepSimulation<kRecord>::PublishTensor(int32_t op, int32_t tensor, int32_t device) {
  const StepGraph::Tensor& record = graph_.tensors[tensor];
  const int32_t end = graph_.tensors[tensor + 1].first_consumer;
  TensorState& state = tensors_[tensor];
  state = {record.bytes, 0, tensor, device, static_cast<int32_t>(sends_.size())};
  for (int32_t edge = record.first_consumer; edge < end; ++edge) {
    const int32_t consumer = problem_.consumers()[edge];
    OpState& reader = ops_[consumer];
    ++consumers_on_[reader.device];
    targets_.Add(reader.device);
    // Elsewhere the input is still pending, so that the count cannot reach 0.
    reader.pending -= reader.device == device;
    if (reader.pending == 0) MakeReady(consumer, device);
  }
  int32_t readers = consumers_on_[device];
  consumers_on_[device] = 0;
  targets_.Remove(device);
  targets_.Drain([&](int32_t to) {
    AddSend(op, tensor, device, to, record.bytes, consumers_on_[to]);
    consumers_on_[to] = 0;
    ++readers;
  });
  if (record.alias == kPersistentAlias) {
    state.root = kNoBuffer;
    return;
  }
  if (record.alias != kNoAlias) state.root = BufferOn(record.alias, device);
  if (state.root == kNoBuffer) return;
  int32_t& count = IsSend(state.root) ? sends_[~state.root].readers : tensors_[state.root].readers;
  count += readers;
  if (count == 0) Free(device, record.bytes, Output(tensor));
}

// Signals, and gates for the other devices where `op` has control successors.
template <bool kRecord>
void StepSimulation<kRecord>::OpenGates(int32_t op, int32_t device) {
  const int32_t barrier = graph_.ops[op].barrier;
  if (barrier != kNoBarrier) {
    control_targets_.AddAll(barrier_devices_[barrier]);
  } else {
    ForEachControl(op, [this](int32_t to) { control_targets_.Add(ops_[to].device); });
  }
  control_targets_.Remove(device);
  control_targets_.ForEach([this](int32_t to) {
    gate_to_[to] = static_cast<int32_t>(gate_pending_.size());
    gate_pending_.push_back(0);
  });
  targets_.AddAll(control_targets_);
  const int32_t end = graph_.tensors[graph_.ops[op + 1].first_tensor].first_consumer;
  for (int32_t edge = graph_.tensors[graph_.ops[op].first_tensor].first_consumer; edge < end;
       ++edge) {
    targets_.Remove(ops_[problem_.consumers()[edge]].device);
  }
  targets_.Drain([&](int32_t to) { AddSend(op, kSignal, device, to, 0, 0); });
}

template <bool kRecord>
void StepSimulation<kRecord>::AddSend(int32_t op, int32_t tensor, int32_t device, int32_t to,
                                      int64_t bytes, int32_t readers) {
  const int32_t link = problem_.Link(device, to);
  if (link < 0) {
    unlinked_ = true;
    return;
  }
  const int32_t channel = problem_.link_channel()[link];
  const auto index = static_cast<uint32_t>(sends_.size());
  if (gate_to_[to] != kNoGate) ++gate_pending_[gate_to_[to]];
  sends_.push_back(
      {op, tensor, device, to, channel, gate_to_[to], now_ns_, -1, -1, bytes, readers});
  issued_[channel].Push(now_ns_, static_cast<uint64_t>(op) << 32 | index);
  startable_channels_.Add(channel);
}

// ---- inputs ----

template <bool kRecord>
bool StepSimulation<kRecord>::HasControl(int32_t op) const {
  return graph_.ops[op].first_control < graph_.ops[op + 1].first_control;
}

template <bool kRecord>
template <typename Visit>
void StepSimulation<kRecord>::ForEachControl(int32_t op, Visit visit) const {
  for (int32_t c = graph_.ops[op].first_control; c < graph_.ops[op + 1].first_control; ++c) {
    visit(problem_.control_out()[c]);
  }
}

template <bool kRecord>
void StepSimulation<kRecord>::ControlArrived(int32_t op, int32_t device) {
  const int32_t barrier = graph_.ops[op].barrier;
  if (barrier != kNoBarrier &&
      --barrier_pending_[static_cast<size_t>(barrier) * used_bytes_.size() + device] > 0) {
    return;
  }
  ForEachControl(op, [&](int32_t successor) {
    if (ops_[successor].device == device) InputArrived(successor);
  });
}

template <bool kRecord>
void StepSimulation<kRecord>::InputArrived(int32_t op) {
  if (--ops_[op].pending == 0) MakeReady(op, ops_[op].device);
}

template <bool kRecord>
void StepSimulation<kRecord>::MakeReady(int32_t op, int32_t device) {
  ready_[device].Push(now_ns_, op);
  startable_devices_.Add(device);
}

// ---- memory ----

// What an op on `device` reads: the tensor's root where it was made, else the copy.
template <bool kRecord>
int32_t StepSimulation<kRecord>::BufferOn(int32_t tensor, int32_t device) const {
  const TensorState& state = tensors_[tensor];
  if (state.device == device) return state.root;
  int32_t send = state.first_send;
  while (sends_[send].dst_device != device) ++send;
  return ~send;
}

template <bool kRecord>
void StepSimulation<kRecord>::EndRead(int32_t buffer, int32_t device) {
  if (buffer == kNoBuffer) return;
  if (IsSend(buffer)) {
    Send& send = sends_[~buffer];
    if (--send.readers == 0) Free(device, send.bytes, Output(send.tensor, MemoryKind::kCopy));
  } else {
    TensorState& state = tensors_[buffer];
    if (--state.readers == 0) Free(device, state.bytes, Output(buffer));
  }
}

template <bool kRecord>
MemoryUse StepSimulation<kRecord>::Output(int32_t tensor, MemoryKind kind) const {
  if constexpr (!kRecord) return {};
  const int32_t op = problem_.tensor_op()[tensor];
  return {op, kind, tensor - graph_.ops[op].first_tensor};
}

template <bool kRecord>
void StepSimulation<kRecord>::Allocate(int32_t device, int64_t bytes, MemoryUse use) {
  used_bytes_[device] += bytes;
  peak_bytes_[device] = std::max(peak_bytes_[device], used_bytes_[device]);
  if constexpr (kRecord) {
    if (bytes > 0) memory_changes_.push_back({now_ns_, device, use, bytes, used_bytes_[device]});
  }
}

template <bool kRecord>
void StepSimulation<kRecord>::Free(int32_t device, int64_t bytes, MemoryUse use) {
  used_bytes_[device] -= bytes;
  if constexpr (kRecord) {
    if (bytes > 0) memory_changes_.push_back({now_ns_, device, use, -bytes, used_bytes_[device]});
  }
}

template class StepSimulation<false>;
template class StepSimulation<true>;

}  // namespace hplacer
