#include "engine/simulator/step_simulation.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace hplacer {
namespace {

// In a key of what is found: it only waits for the op, so it comes behind what reads.
constexpr uint64_t kWaits = uint64_t{1} << 63;
// Ops fill the caches in so many times what they then cost the work of a transfer: on an AMD EPYC,
// ops of 0.6, 1.6 and 4.4 ms cost it 0.1, 0.3 and 0.4 ms, and longer ones no more.
constexpr int64_t kFills = 4;
// Of an edge in TensorFlow's memory (tensorflow/core/graph/graph.h).
constexpr uint64_t kEdgeBytes = 32;

}  // namespace

template <typename EventKey, bool kRecord>
bool StepSimulation<EventKey, kRecord>::Fits(const Problem& problem) {
  return EventQueue<EventKey>::Fits(MaxEvents(problem), problem.max_time_ns());
}

template <typename EventKey, bool kRecord>
bool StepSimulation<EventKey, kRecord>::Run(const Problem& problem, const int32_t* placement,
                                            const StepCutoff* cutoff, int64_t order) {
  problem_ = &problem;
  cutoff_ = cutoff;
  graph_ = &problem.step_graph();
  op_records_ = graph_->ops.data();
  tensor_records_ = graph_->tensors.data();
  consumers_ = problem.consumers().data();
  device_pool_ = problem.device_pool().data();
  device_task_ = problem.device_task().data();
  num_tensors_ = problem.num_tensors();
  Reset(order);
  if (!ResetOps(placement)) return false;
  ResetOrder(placement);
  ResetMemory();
  ResetBarriers();
  for (int32_t op : graph_->sources) MakeReady(op, ops_[op].device);
  TakeUpFound(kNone);
  for (;;) {
    startable_channels_.Drain([this](int32_t channel) { StartTransfer(channel); });
    startable_pools_.Drain([this](int32_t pool) {
      if (has_work_) StartDueWork(pool);
      StartOps(pool);
      if (has_work_) StartOtherWork(pool);
    });
    if (has_launches_) {
      startable_channels_.Drain([this](int32_t channel) { StartTransfer(channel); });
    }
    if (was_cut_off_ || unlinked_) return false;
    if (has_launches_ && StartWaiting()) continue;
    if (events_.empty()) return true;
    now_ns_ = events_.time_ns();
    ApplyRound();
    if (unlinked_) return false;
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::CopyTimes(std::vector<int64_t>* start_ns,
                                                  std::vector<int64_t>* finish_ns) const {
  start_ns->resize(ops_.size());
  finish_ns->resize(ops_.size());
  for (size_t op = 0; op < ops_.size(); ++op) {
    const int64_t duration_ns = problem_->CostNs(static_cast<int32_t>(op), ops_[op].device);
    (*start_ns)[op] = has_work_ ? op_start_ns_[op] : ops_[op].finish_ns - duration_ns;
    (*finish_ns)[op] = ops_[op].finish_ns;
  }
}

template <typename EventKey, bool kRecord>
std::vector<Transfer> StepSimulation<EventKey, kRecord>::Transfers() const {
  std::vector<Transfer> transfers;
  transfers.reserve(sends_.size());
  for (int32_t op = 0; op < problem_->num_ops(); ++op) {
    for (size_t i = ops_[op].cursor; i < sends_.size() && sends_[i].op == op; ++i) {
      const Send& send = sends_[i];
      const int32_t output =
          send.tensor == kSignal ? kSignal : send.tensor - op_records_[op].first_tensor;
      const bool is_copy = has_launches_ && copies_[i].stream != kNone;
      const int64_t sent_ns = is_copy     ? copies_[i].sent_ns
                              : has_work_ ? works_[i].sent_ns
                                          : send.issue_ns;
      const int64_t carried_ns = has_work_ ? works_[i].carried_ns : send.finish_ns;
      // The host hands on what it has launched before it has run.
      const int64_t issue_ns = is_copy ? ops_[op].finish_ns : send.issue_ns;
      transfers.push_back({op, output, send.src_device, send.dst_device, send.channel, issue_ns,
                           sent_ns, send.start_ns, carried_ns, send.finish_ns, send.bytes});
    }
  }
  return transfers;
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::CopyOrder(std::vector<int32_t>* order) const {
  std::vector<int32_t> first(ops_.size() + 1, 0);  // of the transfers of each op
  for (const Send& send : sends_) ++first[send.op + 1];
  for (size_t op = 0; op < ops_.size(); ++op) first[op + 1] += first[op];
  *order = order_;
  for (int32_t& event : *order) {
    if (event < 0) event = ~(first[sends_[~event].op] + ~event - ops_[sends_[~event].op].cursor);
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::DropRunState() {
  std::vector<Buffer>().swap(buffers_);
  std::vector<int32_t>().swap(reads_);
}

// ---- the beginning ----

// No more ops run at once than there are, nor than there are slots; no more work than slots.
template <typename EventKey, bool kRecord>
int64_t StepSimulation<EventKey, kRecord>::MaxEvents(const Problem& problem) {
  int64_t slots = 0;
  for (int32_t count : problem.pool_slots()) slots += count;
  const int64_t work = problem.has_work() ? slots + problem.num_pools() : 0;
  const int64_t copies = problem.has_launches() ? 3 * int64_t{problem.num_devices()} : 0;
  return std::min<int64_t>(slots, problem.num_ops()) + work + problem.num_channels() + copies +
         problem.num_devices();
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::Reset(int64_t order) {
  const int32_t num_devices = problem_->num_devices(), num_pools = problem_->num_pools();
  const int32_t num_channels = problem_->num_channels();
  now_ns_ = makespan_ns_ = 0;
  unlinked_ = was_cut_off_ = false;
  num_started_ = 0;
  // A step without a link ends before it takes up what it has found, one without memory anywhere.
  num_found_ = 0;
  thread_ = kNone;
  is_arriving_ = false;
  order_.clear();
  if (cutoff_ != nullptr) {
    unstarted_ns_.assign(cutoff_->load_ns, cutoff_->load_ns + num_pools);
  }
  sends_.clear();
  gate_pending_.clear();
  events_.Reset(MaxEvents(*problem_));
  ready_.resize(num_pools);
  for (auto& queue : ready_) queue.Clear();
  issued_.resize(num_channels);
  for (auto& queue : issued_) queue.Clear();
  startable_pools_.Reset(num_pools);
  startable_channels_.Reset(num_channels);
  free_slots_ = problem_->pool_slots();
  channel_busy_.assign(num_channels, 0);
  has_work_ = problem_->has_work();
  if (has_work_) {
    works_.clear();
    work_.resize(num_pools);
    for (auto& queue : work_) queue.Clear();
    due_.assign(num_pools, 0);
    new_work_.resize(num_pools);
    for (auto& work : new_work_) work.clear();
    running_.resize(num_pools);
    for (auto& ops : running_) ops.clear();
    num_running_.assign(num_pools, 0);
    has_alarm_.assign(num_pools, 0);
    worked_ns_.assign(num_pools, 0);
    op_start_ns_.resize(problem_->num_ops());
  }
  has_launches_ = problem_->has_launches();
  has_drawn_ = has_edges_ = false;
  if (has_launches_) ResetLaunches(order);
  HoldDevices();
  targets_.Reset(num_devices);
  control_targets_.Reset(num_devices);
  receivers_.assign(num_devices, {0, 0, kNoGate});
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::ResetLaunches(int64_t order) {
  const auto num_devices = static_cast<size_t>(problem_->num_devices());
  launch_ns_ = problem_->spec().device_launch_ns.data();
  const auto seed =
      static_cast<uint64_t>(problem_->spec().launch_seed) + static_cast<uint64_t>(order);
  launch_seed_ = MixBits(seed);
  host_threads_.Reset(problem_->num_tasks(), problem_->spec().inter_op_threads, seed);
  threads_.clear();
  pool_device_.resize(problem_->num_pools());
  for (int32_t d = 0; d < problem_->num_devices(); ++d) pool_device_[device_pool_[d]] = d;
  std::vector<uint8_t> launches(problem_->num_tasks(), 0);
  for (size_t d = 0; d < num_devices; ++d) launches[device_task_[d]] |= launch_ns_[d] > 0;
  has_threads_.resize(num_devices);
  for (size_t d = 0; d < num_devices; ++d) has_threads_[d] = launches[device_task_[d]];
  woken_threads_.resize(problem_->num_pools());
  for (auto& woken : woken_threads_) woken.clear();
  launchers_.resize(num_devices);
  for (Launcher& launcher : launchers_) {
    launcher.threads.Clear();
    launcher.thread = kNone;
  }
  stream_free_ns_.assign(num_devices, 0);
  copy_streams_.resize(3 * num_devices);
  for (Fifo& stream : copy_streams_) stream.Clear();
  copies_.clear();
  merged_.assign(graph_->num_classes * num_devices, {kNone, kEndOfItems, kEndOfItems});
}

// Returns whether every op has a kernel.
template <typename EventKey, bool kRecord>
bool StepSimulation<EventKey, kRecord>::ResetOps(const int32_t* placement) {
  const auto n = static_cast<size_t>(problem_->num_ops());
  const auto kinds = static_cast<size_t>(problem_->num_kinds());
  const int32_t* const device_kind = problem_->spec().device_kind.data();
  const int64_t* cost_ns = problem_->spec().cost_ns.data();
  const int32_t* const in_degree = graph_->in_degree.data();
  const int32_t* const read_ptr = problem_->read_ptr().data();
  ops_.resize(n);
  OpState* const ops = ops_.data();
  int64_t all = 0;  // negative if any of them is
  for (size_t op = 0; op < n; ++op, cost_ns += kinds) {
    const int32_t device = placement[op];
    const int64_t duration_ns = cost_ns[device_kind[device]];
    ops[op] = {duration_ns, in_degree[op], device, read_ptr[op], kEndOfItems};
    all |= duration_ns;
  }
  return all >= 0;
}

// Only where ops are launched does it matter.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::ResetOrder(const int32_t* placement) {
  places_ = nullptr;
  if (!has_launches_ || problem_->ordered_graph() == nullptr) return;
  places_ =
      op_order_.Places(problem_->ordered_graph(), problem_->ordered_devices(), placement).data();
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::ResetMemory() {
  reads_.resize(problem_->num_edges());
  buffers_.resize(problem_->num_tensors());
  buffers_.push_back({0, 0, NoBuffer()});
  memory_changes_.clear();
  used_bytes_.assign(problem_->num_devices(), 0);
  peak_bytes_.assign(problem_->num_devices(), 0);
  for (const auto& [op, bytes] : graph_->persistent) {
    Allocate(ops_[op].device, bytes, {op, MemoryKind::kPersistent, 0});
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::ResetBarriers() {
  const auto m = static_cast<size_t>(problem_->num_devices());
  barrier_devices_.resize(graph_->barriers.size());
  barrier_sources_.assign(graph_->barriers.size() * m, 0);
  barrier_pending_.resize(graph_->barriers.size() * m);
  if (graph_->barriers.empty()) return;
  for (size_t op = 0; op < ops_.size(); ++op) {
    const int32_t control = op_records_[op].control;
    if (control == kNoControl || graph_->controls[control].barrier == kNoBarrier) continue;
    ++barrier_sources_[graph_->controls[control].barrier * m + ops_[op].device];
  }
  for (size_t i = 0; i < graph_->barriers.size(); ++i) {
    const StepGraph::Control& control = graph_->controls[graph_->barriers[i]];
    const auto sources = barrier_sources_.begin() + i * m;
    const auto groups = static_cast<int32_t>(m - std::count(sources, sources + m, 0));
    for (size_t d = 0; d < m; ++d) {
      barrier_pending_[i * m + d] = sources[d] + groups - (sources[d] > 0);
    }
    barrier_devices_[i].Reset(problem_->num_devices());
    ForEachSuccessor(control, [&](int32_t op) { barrier_devices_[i].Add(ops_[op].device); });
  }
}

// ---- rounds ----

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::ApplyRound() {
  const auto is_now = [this] { return events_.time_ns() == now_ns_; };
  if (kRecord || has_launches_ || !barrier_devices_.empty()) {
    const int32_t first = events_.Pop();
    if (!is_now()) return Apply(first);
    round_.assign(1, first);
    while (is_now()) round_.push_back(events_.Pop());
    SortRound();
    for (int32_t event : round_) Apply(event);
  } else {
    do {
      Apply(events_.Pop());
    } while (is_now());
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::Apply(int32_t event) {
  if (event < 0) {
    FinishTransferPart(~event);
  } else if (event >= problem_->num_ops()) {
    WakeUp(event - problem_->num_ops());
  } else if (Launches(ops_[event].device)) {
    FinishLaunch(event);
  } else if (ops_[event].finish_ns > now_ns_) {
    events_.Push(ops_[event].finish_ns, event);  // it was interrupted
  } else {
    FinishOp(event);
  }
}

// Finished ops by id, then finished transfers by (src op, output, dst device). Alarms free nothing.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::SortRound() {
  const auto key = [this](int32_t event) {
    if (event >= 0) return static_cast<uint64_t>(event);
    const auto op = static_cast<uint64_t>(sends_[~event].op);
    return uint64_t{1} << 63 | op << 32 | static_cast<uint32_t>(~event);
  };
  std::sort(round_.begin(), round_.end(), [&key](int32_t a, int32_t b) { return key(a) < key(b); });
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::StartOps(int32_t pool) {
  if (has_launches_) RunThreads(pool);
  ArrivalQueue<int32_t>& queue = ready_[pool];
  queue.Seal();
  if (cutoff_ != nullptr) CheckCutoff(pool);
  if (has_launches_ && launch_ns_[pool_device_[pool]] > 0) return Launch(pool_device_[pool]);
  for (; free_slots_[pool] > 0 && !queue.empty(); --free_slots_[pool]) {
    const int32_t op = queue.Pop();
    OpState& state = ops_[op];
    const int32_t device = state.device;
    ++num_started_;
    order_.push_back(op);
    if (cutoff_ != nullptr) unstarted_ns_[pool] -= state.finish_ns;
    state.finish_ns += now_ns_;
    if (cutoff_ != nullptr && state.finish_ns + cutoff_->tail_ns[op] >= cutoff_->ns) {
      was_cut_off_ = true;
    }
    events_.Push(state.finish_ns, op);
    if (has_work_) {
      op_start_ns_[op] = now_ns_;
      running_[pool].push_back(op);
      ++num_running_[pool];
    }
    PrefetchFinish(op);
    AllocateAtStart(op, device);
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::AllocateAtStart(int32_t op, int32_t device) {
  if constexpr (kRecord) {
    Allocate(device, op_records_[op].temp_bytes, {op, MemoryKind::kTemp, 0});
    AllocateOutputs(op, device);
  } else {
    Allocate(device, op_records_[op].start_bytes, {});
  }
}

// The ops that a pool has not started yet take it their costs' sum over its slots from now on.
// Without any, now may be the end of a turn that nobody waits for, after the end of the step.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::CheckCutoff(int32_t pool) {
  const int64_t launched_ns = has_launches_ ? stream_free_ns_[pool_device_[pool]] : 0;
  const int64_t left_ns = cutoff_->ns - std::max(now_ns_, launched_ns);
  const int64_t unstarted_ns = unstarted_ns_[pool];
  if (unstarted_ns <= 0 || unstarted_ns < left_ns) return;
  if (unstarted_ns / problem_->pool_slots()[pool] >= left_ns) was_cut_off_ = true;
}

// What FinishOp will read first; large graphs do not stay in the cache.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::PrefetchFinish(int32_t op) const {
  const StepGraph::Op& record = op_records_[op];
  __builtin_prefetch(tensor_records_ + record.first_tensor);
  __builtin_prefetch(buffers_.data() + record.first_tensor, 1);
  __builtin_prefetch(consumers_ + record.first_consumer);
  __builtin_prefetch(reads_.data() + record.first_read);
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::AllocateOutputs(int32_t op, int32_t device) {
  for (int32_t tensor = op_records_[op].first_tensor; tensor < op_records_[op + 1].first_tensor;
       ++tensor) {
    if (tensor_records_[tensor].alias != kNoAlias) continue;
    Allocate(device, tensor_records_[tensor].bytes, UseOf(tensor));
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::StartTransfer(int32_t channel) {
  ArrivalQueue<uint64_t>& queue = issued_[channel];
  queue.Seal();
  if (channel_busy_[channel] || queue.empty()) return;
  const auto index = static_cast<int32_t>(queue.Pop() & UINT32_MAX);
  Send& send = sends_[index];
  channel_busy_[channel] = 1;
  send.start_ns = now_ns_;
  send.finish_ns += now_ns_;
  order_.push_back(~index);
  events_.Push(send.finish_ns, ~index);
  if (has_launches_ && copies_[index].stream != kNone) return;  // has its memory
  Allocate(send.dst_device, send.bytes, UseOf(CopyBuffer(index)));
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::FinishOp(int32_t op) {
  const int32_t device = ops_[op].device, pool = device_pool_[device];
  makespan_ns_ = std::max(makespan_ns_, now_ns_);
  ++free_slots_[pool];
  if (has_work_) {
    std::vector<int32_t>& running = running_[pool];
    *std::find(running.begin(), running.end(), op) = running.back();
    running.pop_back();
    --num_running_[pool];
    worked_ns_[pool] += problem_->CostNs(op, device);
  }
  startable_pools_.Add(pool);
  if (!HasThreads(device)) return HandOn(op, device);
  thread_ = ops_[op].next;
  num_followers_ = 0;
  HandOn(op, device);
  TakeUpFollowers(device);
  woken_threads_[pool].push_back(std::exchange(thread_, kNone));
}

// What others wait for, and what it held.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::HandOn(int32_t op, int32_t device) {
  const StepGraph::Op& record = op_records_[op];
  const StepGraph::Op& next = op_records_[op + 1];
  Free(device, record.temp_bytes, {op, MemoryKind::kTemp, 0});
  ops_[op].cursor = static_cast<int32_t>(sends_.size());
  const bool has_control = record.control != kNoControl;
  const bool signals = has_control && IsLastOfGroup(graph_->controls[record.control], device);
  if (signals) OpenGates(op, device);
  for (int32_t tensor = record.first_tensor; tensor < next.first_tensor; ++tensor) {
    if (thread_ != kNone) {
      PublishLaunched(op, tensor, device);
    } else {
      PublishTensor(op, tensor, device);
    }
  }
  EndReads(record.first_read, next.first_read, device);
  if (!has_control) return;
  if (signals) control_targets_.Drain([this](int32_t to) { receivers_[to].gate = kNoGate; });
  ControlArrived(op, device);
}

// The channel's part, or with work one of the others.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::FinishTransferPart(int32_t index) {
  if (has_work_ && works_[index].part != Part::kCarry) return FinishWork(index);
  const Send& send = sends_[index];
  const bool is_copy = has_launches_ && copies_[index].stream != kNone;
  if (is_copy && copies_[index].sent_ns == kNone) return ContinueCopies(copies_[index].stream);
  if (!is_copy || send.bytes > 0) {
    channel_busy_[send.channel] = 0;
    startable_channels_.Add(send.channel);
  }
  EndRead(send.src_buffer, send.src_device);
  if (is_copy) {
    copy_streams_[copies_[index].stream].Pop();
    ContinueCopies(copies_[index].stream);
  }
  if (!has_work_) return Arrive(index);
  works_[index].carried_ns = now_ns_;
  if (problem_->ReceiveNs(works_[index].link, send.bytes) == 0) return Arrive(index);
  WaitForSlot(index, Part::kReceive);
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::Arrive(int32_t index) {
  is_arriving_ = true;
  const Send& send = sends_[index];
  const int32_t buffer = CopyBuffer(index);
  num_followers_ = buffers_[buffer].readers;
  if (buffers_[buffer].readers == 1) {
    TensorArrived(send.reader, buffer, send.dst_device);
  } else if (send.tensor != kSignal) {
    const int32_t end = tensor_records_[send.tensor + 1].first_consumer;
    for (int32_t edge = tensor_records_[send.tensor].first_consumer; edge < end; ++edge) {
      const int32_t consumer = consumers_[edge];
      if (ops_[consumer].device == send.dst_device) {
        TensorArrived(consumer, buffer, send.dst_device);
      }
    }
  }
  if (send.gate != kNoGate && --gate_pending_[send.gate] == 0) {
    ControlArrived(send.op, send.dst_device);
  }
  if (has_launches_) TakeUpFound(send.dst_device);
  is_arriving_ = false;
}

// ---- devices that start later ----

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::HoldDevices() {
  const std::vector<int64_t>& start_ns = problem_->spec().device_start_ns;
  is_held_.clear();
  for (int32_t device = 0; device < problem_->num_devices(); ++device) {
    if (start_ns[device] == 0) continue;
    is_held_.resize(problem_->num_devices());
    held_.resize(problem_->num_devices());
    is_held_[device] = 1;
    held_[device].clear();
    events_.Push(start_ns[device], problem_->num_ops() + problem_->num_pools() + device);
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::WakeUp(int32_t alarm) {
  if (alarm >= problem_->num_pools()) return StartDevice(alarm - problem_->num_pools());
  has_alarm_[alarm] = 0;
  startable_pools_.Add(alarm);
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::StartDevice(int32_t device) {
  is_held_[device] = 0;
  for (const int32_t op : held_[device]) MakeReady(op, device);
  TakeUpFound(kNone);
}

// ---- threads of the host, and devices whose ops are launched ahead ----

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::PushItem(int32_t item, Thread* thread) {
  if (thread->first == kEndOfItems) {
    thread->first = item;
  } else {
    NextOf(thread->last) = item;
  }
  thread->last = item;
}

// A thread of the host begins with the op: now, or when one has nothing to do any more.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::WakeThread(int32_t op, bool is_new) {
  const int32_t host = device_task_[ops_[op].device];
  const int32_t thread = host_threads_.Begin(host, {op, is_new}, thread_);
  if (thread != HostThreads::kNoThread) StartThread(thread, {op, is_new});
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::StartThread(int32_t thread, const HostThreads::Task& task) {
  const int32_t device = ops_[task.op].device, pool = device_pool_[device];
  if (thread == static_cast<int32_t>(threads_.size())) threads_.emplace_back();
  threads_[thread] = {task.op, task.op, kNone, device, task.is_new};
  woken_threads_[pool].push_back(thread);
  startable_pools_.Add(pool);
}

// What waits for a thread, by those that have nothing to do. Whether there was any.
template <typename EventKey, bool kRecord>
bool StepSimulation<EventKey, kRecord>::StartWaiting() {
  return host_threads_.TakeWaiting(
      [this](int32_t thread, const HostThreads::Task& task) { StartThread(thread, task); });
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::RunThreads(int32_t pool) {
  std::vector<int32_t>& woken = woken_threads_[pool];  // grows
  for (size_t i = 0; i < woken.size(); ++i) RunThread(woken[i]);
  woken.clear();
}

// Until it has to launch something or to wait for a slot, or has nothing to do any more.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::RunThread(int32_t thread) {
  const int32_t device = threads_[thread].device;
  for (;;) {
    Thread& self = threads_[thread];  // others that it wakes may move it
    if (self.first == kEndOfItems || unlinked_) break;
    const int32_t item = self.first;
    self.first = NextOf(item);
    if (item < 0) {
      if (std::exchange(copies_[~item].has_tensor, true)) {
        StartSend(~item);
      } else {
        NextOf(item) = kEndOfItems;
        PushItem(item, &self);
      }
      continue;
    }
    if (ops_[item].finish_ns > 0) {
      self.is_new = false;
      if (!Launches(device)) {
        ops_[item].next = thread;
        ready_[device_pool_[device]].Push(now_ns_, item);
        return;
      }
      AllocateAtStart(item, device);
      PrefetchFinish(item);
      self.op = item;
      launchers_[device].threads.Push(thread);
      return;
    }
    AllocateAtStart(item, device);
    // Behind a transfer, what TensorFlow removes does not hold a thread: the transfer wakes up one
    // for what follows it.
    is_arriving_ = self.is_new && IsRemoved(item, device, /*follows_transfer=*/true);
    self.is_new &= is_arriving_;
    thread_ = is_arriving_ ? kNone : thread;
    Enqueue(item, device);
    thread_ = kNone;
    is_arriving_ = false;
  }
  host_threads_.End(thread);
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::Launch(int32_t device) {
  Launcher& launcher = launchers_[device];
  if (launcher.thread != kNone || launcher.threads.empty()) return;
  launcher.thread = launcher.threads.Pop();
  events_.Push(now_ns_ + launch_ns_[device], threads_[launcher.thread].op);
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::FinishLaunch(int32_t op) {
  const int32_t device = ops_[op].device, pool = device_pool_[device];
  thread_ = std::exchange(launchers_[device].thread, kNone);
  Enqueue(op, device);
  woken_threads_[pool].push_back(std::exchange(thread_, kNone));
  startable_pools_.Add(pool);
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::Enqueue(int32_t op, int32_t device) {
  num_followers_ = 0;
  PutOnStream(op, device);
  TakeUpFollowers(device);
}

// What became ready by an op.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::TakeUpFollowers(int32_t device) {
  if (thread_ != kNone) PassRemoved(device);
  TakeUpFound(device);
}

// Finds what follows what is removed in its place.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::PassRemoved(int32_t device) {
  int32_t kept = 0;
  for (int32_t i = 0; i < num_found_; ++i) {  // grows
    const Found found = found_[i];
    if (found.item >= 0 && IsRemoved(found.item, device, /*follows_transfer=*/false)) {
      AllocateAtStart(found.item, device);
      PutOnStream(found.item, device);
    } else {
      found_[kept++] = found;
    }
  }
  num_found_ = kept;
}

// Whether TensorFlow removes it: it hands on what it reads, or only waits, for readers that are all
// on its device, and without it there are no more edges, between devices or at all.
template <typename EventKey, bool kRecord>
bool StepSimulation<EventKey, kRecord>::IsRemoved(int32_t op, int32_t device,
                                                  bool follows_transfer) const {
  const StepGraph::Op& record = op_records_[op];
  const StepGraph::Op& next = op_records_[op + 1];
  if (ops_[op].finish_ns > 0 || next.first_tensor - record.first_tensor > 1) return false;
  const bool has_output = next.first_tensor > record.first_tensor;
  if (has_output && tensor_records_[record.first_tensor].alias < 0) return false;
  for (int32_t edge = record.first_consumer; edge < next.first_consumer; ++edge) {
    if (ops_[consumers_[edge]].device != device) return false;
  }
  int64_t num_readers = next.first_consumer - record.first_consumer;
  if (record.control != kNoControl) {
    const StepGraph::Control& control = graph_->controls[record.control];
    const int32_t* const successors = problem_->control_out().data();
    for (int32_t c = control.begin; c < control.end; ++c) {
      if (ops_[successors[c]].device != device) return false;
    }
    num_readers += control.end - control.begin;
  }
  if (num_readers <= 1) return true;
  if (follows_transfer) return false;
  const int64_t num_inputs = problem_->in_degree()[op];
  return num_inputs * num_readers <= num_inputs + num_readers && HasInputsOn(device, op);
}

template <typename EventKey, bool kRecord>
bool StepSimulation<EventKey, kRecord>::HasInputsOn(int32_t device, int32_t op) const {
  const int32_t* const edges = problem_->read_edges().data();
  for (int32_t r = problem_->read_ptr()[op]; r < problem_->read_ptr()[op + 1]; ++r) {
    const int32_t source = problem_->tensor_op()[problem_->edge_tensor()[edges[r]]];
    if (ops_[source].device != device) return false;
  }
  const int32_t* const sources = problem_->control_in().data();
  for (int32_t c = problem_->control_in_ptr()[op]; c < problem_->control_in_ptr()[op + 1]; ++c) {
    if (ops_[sources[c]].device != device) return false;
  }
  return true;
}

// In TensorFlow's order: the thread that acts takes them up behind what it has, or each wakes one.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::TakeUpFound(int32_t device) {
  if (unlinked_) return;  // a send among them was not made
  const int32_t num_followers = std::exchange(num_followers_, 0);
  const auto is_waiting = [](const Found& found) { return found.item == kNotReady; };
  const auto begin = found_.begin(), end = begin + num_found_;
  const auto num_ready = static_cast<int32_t>(num_found_ - std::count_if(begin, end, is_waiting));
  const bool is_in_table = device != kNone && num_followers > kMostInOrder;
  if (num_ready > 1 && is_in_table) SortFoundByTable(device, num_followers);
  if (num_ready < num_found_) std::remove_if(begin, end, is_waiting);
  num_found_ = num_ready;
  if (num_ready > 1 && !is_in_table) SortFound();
  int32_t other = kNone;
  for (int32_t i = 0; i < num_found_; ++i) {
    if (thread_ != kNone) {
      TakeUp(found_[i].item, &other);
    } else {
      WakeThread(found_[i].item, is_arriving_);
    }
  }
  num_found_ = 0;
  if (other == kNone) return;
  if (threads_[thread_].first == kEndOfItems) {
    PushItem(other, &threads_[thread_]);
  } else {
    WakeThread(other, false);
  }
}

// By the thread that acts. It leaves ops that take time to other threads, if they do not run on a
// device that launches: all but the last, which is `other`.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::TakeUp(int32_t item, int32_t* other) {
  if (item < 0 || ops_[item].finish_ns == 0 || Launches(ops_[item].device)) {
    return PushItem(item, &threads_[thread_]);
  }
  const int32_t before = std::exchange(*other, item);
  if (before != kNone) WakeThread(before, false);
}

// So that `count` more have a place.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::GrowFound(int32_t count) {
  const auto size = static_cast<size_t>(num_found_ + count);
  if (found_.size() < size) found_.resize(2 * size);
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::AddFound(uint64_t key, int32_t item) {
  GrowFound(1);
  found_[num_found_++] = {key, item};
}

// By the place of the reader. What only waits comes behind what reads.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::SortFound() {
  const auto is_before = [](const Found& a, const Found& b) {
    return a.key != b.key ? a.key < b.key : ~a.item < ~b.item;
  };
  const auto begin = found_.begin(), end = begin + num_found_;
  // Most are in order, among them all that are ready from the beginning.
  if (!std::is_sorted(begin, end, is_before)) std::sort(begin, end, is_before);
}

// As they lie in TensorFlow's hash table of edges, by addresses. These rise with the places of the
// readers, but nobody knows from where on.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::SortFoundByTable(int32_t device, int32_t num_followers) {
  has_drawn_ = true;
  CountEdges();
  const auto begin = found_.begin(), end = begin + num_found_;
  std::sort(begin, end, [](const Found& a, const Found& b) {
    const uint64_t place = a.key & ~kWaits, other = b.key & ~kWaits;
    if (place != other) return place < other;
    return a.key != b.key ? a.key < b.key : ~a.item < ~b.item;
  });
  size_t capacity = 2 * kMostInOrder;
  while (5 * static_cast<size_t>(num_followers) >= 4 * capacity) capacity *= 2;
  table_.assign(capacity, kNone);
  const uint64_t first = MixBits(launch_seed_ ^ static_cast<uint64_t>(device + 1)) >> 20;
  for (int32_t i = 0; i < num_found_; ++i) {
    const auto place = static_cast<int32_t>((found_[i].key & ~kWaits) >> 32);
    const uint64_t address = first + kEdgeBytes * EdgesBefore(device, place);
    size_t slot = (address + (address >> 6)) >> 8;
    for (size_t probe = 1; table_[slot & (capacity - 1)] != kNone; ++probe) slot += probe;
    table_[slot & (capacity - 1)] = i;
  }
  in_table_.clear();
  for (const uint64_t waits : {uint64_t{0}, kWaits}) {
    for (const int32_t i : table_) {
      if (i != kNone && (found_[i].key & kWaits) == waits) in_table_.push_back(found_[i]);
    }
  }
  std::copy(in_table_.begin(), in_table_.end(), begin);
}

// By place, of each device's ops: an edge lies where its reader is.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::CountEdges() {
  if (std::exchange(has_edges_, true)) return;
  const int32_t num_ops = problem_->num_ops();
  std::vector<int32_t> by_place(num_ops), num_edges(problem_->num_devices(), 0);
  for (int32_t op = 0; op < num_ops; ++op) by_place[PlaceOf(op)] = op;
  edges_.resize(num_edges.size());
  for (auto& of_device : edges_) of_device.clear();
  for (int32_t place = 0; place < num_ops; ++place) {
    const int32_t device = ops_[by_place[place]].device;
    edges_[device].push_back({place, num_edges[device]});
    num_edges[device] += problem_->in_degree()[by_place[place]];
  }
  for (size_t device = 0; device < edges_.size(); ++device) {
    edges_[device].push_back({num_ops, num_edges[device]});
  }
}

// Of ops that are on the device.
template <typename EventKey, bool kRecord>
uint64_t StepSimulation<EventKey, kRecord>::EdgesBefore(int32_t device, int32_t place) const {
  const auto it = std::lower_bound(
      edges_[device].begin(), edges_[device].end(), place,
      [](const OpEdges& edges, int32_t of_reader) { return edges.place < of_reader; });
  return static_cast<uint64_t>(it->num_before);
}

// Behind what was launched before it: when it runs is known by that.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::PutOnStream(int32_t op, int32_t device) {
  OpState& state = ops_[op];
  const int64_t duration_ns = state.finish_ns;
  const int64_t start_ns = std::max(now_ns_, stream_free_ns_[device]);
  state.finish_ns = stream_free_ns_[device] = start_ns + duration_ns;
  makespan_ns_ = std::max(makespan_ns_, state.finish_ns);
  ++num_started_;
  order_.push_back(op);
  if (has_work_) op_start_ns_[op] = start_ns;
  if (cutoff_ != nullptr) {
    unstarted_ns_[device_pool_[device]] -= duration_ns;
    was_cut_off_ |= state.finish_ns + cutoff_->tail_ns[op] >= cutoff_->ns;
  }
  HandOn(op, device);
  if (!merged_.empty()) PutMergedOnStream(op, device);
}

// Whether another constant stands for it, which became ready with it.
template <typename EventKey, bool kRecord>
bool StepSimulation<EventKey, kRecord>::IsMerged(int32_t op, int32_t device) {
  const int32_t its_class = graph_->constant_class[op];
  if (its_class == kNoClass || ops_[op].finish_ns > 0) return false;
  Merged& merged = merged_[static_cast<size_t>(its_class) * used_bytes_.size() + device];
  if (merged.op == kNone) {
    merged.op = op;
    return false;
  }
  (merged.first == kEndOfItems ? merged.first : ops_[merged.last].next) = op;
  merged.last = op;
  return true;
}

// Those that it stands for: what follows them follows it.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::PutMergedOnStream(int32_t op, int32_t device) {
  const int32_t its_class = graph_->constant_class[op];
  if (its_class == kNoClass) return;
  Merged& merged = merged_[static_cast<size_t>(its_class) * used_bytes_.size() + device];
  if (merged.op != op) return;
  int32_t item = merged.first;
  merged = {kNone, kEndOfItems, kEndOfItems};
  while (item != kEndOfItems) {
    const int32_t next = ops_[item].next;
    AllocateAtStart(item, device);
    PutOnStream(item, device);
    item = next;
  }
}

// As PublishTensor, but what is sent is sent in its turn among the consumers here, by the thread
// that launched the op.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::PublishLaunched(int32_t op, int32_t tensor,
                                                        int32_t device) {
  const StepGraph::Tensor& record = tensor_records_[tensor];
  const int32_t root = RootOf(tensor, record.alias, device);
  buffers_[tensor] = {record.bytes, 0, root};
  const int32_t end = tensor_records_[tensor + 1].first_consumer;
  int32_t readers = 0;
  GrowFound(end - record.first_consumer);
  for (int32_t edge = record.first_consumer; edge < end; ++edge) {
    const int32_t consumer = consumers_[edge];
    OpState& reader = ops_[consumer];
    if (reader.device == device) {
      ++readers;
      reads_[reader.cursor++] = root;
      found_[num_found_++] = {KeyOf(consumer), --reader.pending == 0 ? consumer : kNotReady};
      continue;
    }
    Receiver& receiver = receivers_[reader.device];
    if (receiver.readers++ == 0) {
      receiver.reader = consumer;
      targets_.Add(reader.device);
    } else if (places_ != nullptr && places_[consumer] < places_[receiver.reader]) {
      receiver.reader = consumer;
    }
  }
  targets_.Drain([&](int32_t to) {
    const int32_t reader = receivers_[to].reader;
    AddFound(KeyOf(reader), AddSend(root, op, tensor, device, to));
    ++readers;
  });
  num_followers_ += readers;
  Buffer& buffer = buffers_[root];
  buffer.readers += readers;
  if (buffer.readers == 0) Free(device, buffer.bytes, UseOf(root));
}

// The copy waits for all that is launched by now on the device that sends it, and on the one that
// receives it, as the memory there may be in use until then.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::IssueCopy(int32_t index) {
  const Send& send = sends_[index];
  const bool is_from = Launches(send.src_device), is_to = Launches(send.dst_device);
  int64_t ready_ns = now_ns_;
  if (is_from) ready_ns = std::max(ready_ns, stream_free_ns_[send.src_device]);
  if (is_to && (!is_from || send.bytes > 0)) {
    ready_ns = std::max(ready_ns, stream_free_ns_[send.dst_device]);
  }
  const int32_t stream = is_from ? 3 * send.src_device + (is_to ? 2 : 0) : 3 * send.dst_device + 1;
  copies_[index] = {stream, kEndOfItems, ready_ns, kNone, true};
  Allocate(send.dst_device, send.bytes, UseOf(CopyBuffer(index)));
  copy_streams_[stream].Push(index);
  if (copy_streams_[stream].size() == 1) ContinueCopies(stream);
}

// With the next copy, once it has nothing to wait for.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::ContinueCopies(int32_t stream) {
  if (copy_streams_[stream].empty()) return;
  const int32_t index = copy_streams_[stream].Front();
  if (copies_[index].ready_ns > now_ns_) return events_.Push(copies_[index].ready_ns, ~index);
  WorkOnSend(index);
}

// By its channel, or without one if there is nothing to carry.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::Carry(int32_t index) {
  Send& send = sends_[index];
  const bool is_copy = has_launches_ && copies_[index].stream != kNone;
  if (is_copy) copies_[index].sent_ns = now_ns_;
  if (!is_copy || send.bytes > 0) return WaitForChannel(index);
  send.start_ns = send.finish_ns = now_ns_;
  order_.push_back(~index);
  events_.Push(now_ns_, ~index);
}

// ---- the work of transfers ----

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::WaitForSlot(int32_t index, Part part) {
  const Send& send = sends_[index];
  works_[index].part = part;
  const int32_t device = part == Part::kSend ? send.src_device : send.dst_device;
  const int32_t pool = device_pool_[device];
  work_[pool].Push(now_ns_, static_cast<uint64_t>(send.op) << 32 | static_cast<uint32_t>(index));
  new_work_[pool].push_back(index);
  startable_pools_.Add(pool);
}

// Of what has begun to wait: a turn for each op that runs or is ready, as far as there are threads
// for them, and slots that they share.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::SetDue(int32_t pool) {
  if (new_work_[pool].empty()) return;
  const int64_t slots = problem_->pool_slots()[pool];
  const int64_t ops = num_running_[pool] + ready_[pool].size();
  const int64_t threads = std::min<int64_t>(ops, problem_->spec().inter_op_threads);
  const auto turn_ns = static_cast<__int128>(problem_->pool_turn_ns()[pool]);
  const __int128 wait_ns = turn_ns * std::max(threads, slots) / slots;
  // Otherwise the step is over before that.
  const bool comes = wait_ns <= problem_->max_time_ns() - now_ns_;
  const int64_t due_ns =
      comes ? now_ns_ + static_cast<int64_t>(wait_ns) : std::numeric_limits<int64_t>::max();
  for (const int32_t index : new_work_[pool]) works_[index].due_ns = due_ns;
  new_work_[pool].clear();
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::WaitForChannel(int32_t index) {
  const Send& send = sends_[index];
  issued_[send.channel].Push(now_ns_,
                             static_cast<uint64_t>(send.op) << 32 | static_cast<uint32_t>(index));
  startable_channels_.Add(send.channel);
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::StartDueWork(int32_t pool) {
  ArrivalQueue<uint64_t>& queue = work_[pool];
  queue.Seal();
  SetDue(pool);
  while (!queue.empty()) {
    if (due_[pool] == 0) {
      if (works_[queue.Front() & UINT32_MAX].due_ns > now_ns_) return;
      due_[pool] = queue.size();
    }
    int32_t on_op = kNone;
    if (free_slots_[pool] == 0 && (on_op = OpToInterrupt(pool)) == kNone) return;
    --due_[pool];
    StartWork(pool, on_op);
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::StartOtherWork(int32_t pool) {
  work_[pool].Seal();  // threads that launch may have added some
  SetDue(pool);
  while (free_slots_[pool] > 0 && !work_[pool].empty()) StartWork(pool, kNone);
  if (!work_[pool].empty() && !has_alarm_[pool]) SetAlarm(pool);
}

// The op that started first, of these the lowest; kNone if all slots have work.
template <typename EventKey, bool kRecord>
int32_t StepSimulation<EventKey, kRecord>::OpToInterrupt(int32_t pool) const {
  int32_t first = kNone;
  for (const int32_t op : running_[pool]) {
    if (first == kNone ||
        std::make_pair(op_start_ns_[op], op) < std::make_pair(op_start_ns_[first], first)) {
      first = op;
    }
  }
  return first;
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::StartWork(int32_t pool, int32_t on_op) {
  const auto index = static_cast<int32_t>(work_[pool].Pop() & UINT32_MAX);
  const Send& send = sends_[index];
  Work& work = works_[index];
  const int64_t warm_ns = work.part == Part::kSend ? problem_->SendNs(work.link, send.bytes)
                                                   : problem_->ReceiveNs(work.link, send.bytes);
  const int64_t worked_ns = std::exchange(worked_ns_[pool], 0);
  const int64_t duration_ns =
      warm_ns + std::min(problem_->pool_cold_ns()[pool], worked_ns / kFills);
  work.on_op = on_op;
  if (on_op == kNone) {
    --free_slots_[pool];
  } else {
    std::vector<int32_t>& running = running_[pool];
    *std::find(running.begin(), running.end(), on_op) = running.back();
    running.pop_back();
    ops_[on_op].finish_ns += duration_ns;
  }
  events_.Push(now_ns_ + duration_ns, ~index);
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::FinishWork(int32_t index) {
  Work& work = works_[index];
  const Send& send = sends_[index];
  const bool is_sent = work.part == Part::kSend;
  const int32_t pool = device_pool_[is_sent ? send.src_device : send.dst_device];
  if (work.on_op == kNone) {
    ++free_slots_[pool];
  } else {
    running_[pool].push_back(work.on_op);
  }
  startable_pools_.Add(pool);
  if (is_sent) {
    work.part = Part::kCarry;
    work.sent_ns = now_ns_;
    return Carry(index);
  }
  sends_[index].finish_ns = now_ns_;
  Arrive(index);
}

// For when the first of a pool's work will be due.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::SetAlarm(int32_t pool) {
  const int64_t due_ns = works_[work_[pool].Front() & UINT32_MAX].due_ns;
  if (due_ns == std::numeric_limits<int64_t>::max()) return;
  if (due_ns <= now_ns_) return;  // it waits for other work
  has_alarm_[pool] = 1;
  events_.Push(due_ns, problem_->num_ops() + pool);
}

// ---- what a finished op produces ----

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::PublishTensor(int32_t op, int32_t tensor, int32_t device) {
  const StepGraph::Tensor& record = tensor_records_[tensor];
  const int32_t root = RootOf(tensor, record.alias, device);
  buffers_[tensor] = {record.bytes, 0, root};
  const int32_t end = tensor_records_[tensor + 1].first_consumer;
  for (int32_t edge = record.first_consumer; edge < end; ++edge) {
    OpState& reader = ops_[consumers_[edge]];
    Receiver& receiver = receivers_[reader.device];
    ++receiver.readers;
    receiver.reader = consumers_[edge];
    targets_.Add(reader.device);
    // Elsewhere the input stays pending: the place in reads_ is free and the count above 0.
    const bool is_local = reader.device == device;
    reads_[reader.cursor] = root;
    reader.cursor += is_local;
    reader.pending -= is_local;
    if (reader.pending == 0) MakeReady(consumers_[edge], device);
  }
  int32_t readers = receivers_[device].readers;
  receivers_[device].readers = 0;
  num_followers_ += readers;
  if (HasThreads(device)) NoteUnready(record.first_consumer, end, device);
  targets_.Remove(device);
  if (readers < end - record.first_consumer) {
    targets_.Drain([&](int32_t to) {
      AddSend(root, op, tensor, device, to);
      ++readers;
    });
  }
  Buffer& buffer = buffers_[root];
  buffer.readers += readers;
  if (buffer.readers == 0) Free(device, buffer.bytes, UseOf(root));
}

// The buffer where the readers of `tensor` are counted.
template <typename EventKey, bool kRecord>
int32_t StepSimulation<EventKey, kRecord>::RootOf(int32_t tensor, int32_t alias,
                                                  int32_t device) const {
  if (alias == kNoAlias) return tensor;
  if (alias == kPersistentAlias) return NoBuffer();
  const OpState& src = ops_[problem_->tensor_op()[alias]];
  if (src.device == device) return buffers_[alias].root;
  int32_t send = src.cursor;
  while (sends_[send].tensor != alias || sends_[send].dst_device != device) ++send;
  return CopyBuffer(send);
}

// Whether it ends the wait for all sources of a barrier that are on the device, or for itself.
template <typename EventKey, bool kRecord>
bool StepSimulation<EventKey, kRecord>::IsLastOfGroup(const StepGraph::Control& control,
                                                      int32_t device) {
  if (control.barrier == kNoBarrier) return true;
  return --barrier_sources_[static_cast<size_t>(control.barrier) * used_bytes_.size() + device] ==
         0;
}

// Signals, and gates for the other devices where `op` has control successors.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::OpenGates(int32_t op, int32_t device) {
  const StepGraph::Control& control = graph_->controls[op_records_[op].control];
  if (control.barrier != kNoBarrier) {
    control_targets_.AddAll(barrier_devices_[control.barrier]);
  } else {
    ForEachSuccessor(control, [this](int32_t to) { control_targets_.Add(ops_[to].device); });
  }
  control_targets_.Remove(device);
  control_targets_.ForEach([this](int32_t to) {
    receivers_[to].gate = static_cast<int32_t>(gate_pending_.size());
    gate_pending_.push_back(0);
  });
  targets_.AddAll(control_targets_);
  const int32_t end = op_records_[op + 1].first_consumer;
  for (int32_t edge = op_records_[op].first_consumer; edge < end; ++edge) {
    targets_.Remove(ops_[consumers_[edge]].device);
  }
  targets_.Drain([&](int32_t to) {
    const int32_t send = AddSend(NoBuffer(), op, kSignal, device, to);
    if (thread_ != kNone) AddFound(kWaits | KeyOf(FirstSuccessor(control, to)), send);
    ++num_followers_;
  });
}

// On a device that has one.
template <typename EventKey, bool kRecord>
int32_t StepSimulation<EventKey, kRecord>::FirstSuccessor(const StepGraph::Control& control,
                                                          int32_t device) const {
  int32_t first = kNone;
  for (int32_t c = control.begin; c < control.end; ++c) {
    const int32_t successor = problem_->control_out()[c];
    if (ops_[successor].device != device) continue;
    if (places_ == nullptr) return successor;
    if (first == kNone || places_[successor] < places_[first]) first = successor;
  }
  return first;
}

// Starts it, if no thread of a device that launches has to come upon it. Returns it as an item of
// such a thread.
template <typename EventKey, bool kRecord>
int32_t StepSimulation<EventKey, kRecord>::AddSend(int32_t src_buffer, int32_t op, int32_t tensor,
                                                   int32_t device, int32_t to) {
  const auto index = static_cast<int32_t>(sends_.size());
  const int32_t link = problem_->Link(device, to);
  if (link < 0) {
    unlinked_ = true;
    return ~index;
  }
  const int32_t channel = problem_->link_channel()[link];
  const int64_t bytes = tensor == kSignal ? 0 : tensor_records_[tensor].bytes;
  Receiver& receiver = receivers_[to];
  if (receiver.gate != kNoGate) ++gate_pending_[receiver.gate];
  sends_.push_back({op, tensor, device, to, channel, src_buffer, receiver.reader, receiver.gate,
                    now_ns_, -1, problem_->ChannelNs(link, bytes), bytes});
  buffers_.push_back({bytes, receiver.readers, CopyBuffer(index)});
  receiver.readers = 0;
  if (has_work_) {
    works_.push_back({now_ns_, now_ns_, -1, link, kNone, Part::kCarry});
  }
  if (has_launches_) copies_.push_back({kNone, kEndOfItems, 0, kNone, tensor != kSignal});
  if (thread_ == kNone) StartSend(index);
  return ~index;
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::StartSend(int32_t index) {
  const Send& send = sends_[index];
  if (Launches(send.src_device) || Launches(send.dst_device)) return IssueCopy(index);
  WorkOnSend(index);
}

// What software does before the channel.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::WorkOnSend(int32_t index) {
  if (has_work_ && problem_->SendNs(works_[index].link, sends_[index].bytes) > 0) {
    return WaitForSlot(index, Part::kSend);
  }
  Carry(index);
}

// ---- inputs ----

template <typename EventKey, bool kRecord>
template <typename Visit>
void StepSimulation<EventKey, kRecord>::ForEachSuccessor(const StepGraph::Control& control,
                                                         Visit visit) const {
  for (int32_t c = control.begin; c < control.end; ++c) visit(problem_->control_out()[c]);
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::ControlArrived(int32_t op, int32_t device) {
  const StepGraph::Control& control = graph_->controls[op_records_[op].control];
  if (control.barrier != kNoBarrier) {
    const size_t row = static_cast<size_t>(control.barrier) * used_bytes_.size();
    if (--barrier_pending_[row + device] > 0) return;
  }
  ForEachSuccessor(control, [&](int32_t successor) {
    OpState& waiting = ops_[successor];
    const bool is_there = waiting.device == device;
    waiting.pending -= is_there;
    num_followers_ += is_there;
    if (is_there & (waiting.pending == 0)) MakeReady(successor, device, kWaits);
    if (has_launches_ && is_there && waiting.pending > 0 && HasThreads(device)) {
      AddFound(kWaits | KeyOf(successor), kNotReady);
    }
  });
}

// Of the consumers at these edges, those on the device that wait for others, too.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::NoteUnready(int32_t begin, int32_t end, int32_t device) {
  for (int32_t edge = begin; edge < end; ++edge) {
    const OpState& reader = ops_[consumers_[edge]];
    if (reader.device == device && reader.pending > 0) {
      AddFound(KeyOf(consumers_[edge]), kNotReady);
    }
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::TensorArrived(int32_t op, int32_t buffer, int32_t device) {
  OpState& reader = ops_[op];
  reads_[reader.cursor++] = buffer;
  if (--reader.pending == 0) {
    MakeReady(op, device);
  } else if (HasThreads(device)) {
    AddFound(KeyOf(op), kNotReady);
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::MakeReady(int32_t op, int32_t device, uint64_t waits) {
  __builtin_prefetch(&op_records_[op]);
  if (!is_held_.empty() && is_held_[device]) {
    held_[device].push_back(op);
    return;
  }
  if (HasThreads(device)) {
    if (!merged_.empty() && IsMerged(op, device)) return;
    return AddFound(waits | KeyOf(op), op);
  }
  const int32_t pool = device_pool_[device];
  ready_[pool].Push(now_ns_, op);
  startable_pools_.Add(pool);
}

// ---- memory ----

template <typename EventKey, bool kRecord>
MemoryUse StepSimulation<EventKey, kRecord>::UseOf(int32_t buffer) const {
  if constexpr (!kRecord) return {};
  const bool is_copy = buffer > NoBuffer();
  const int32_t tensor = is_copy ? sends_[buffer - CopyBuffer(0)].tensor : buffer;
  if (tensor == kSignal || tensor == NoBuffer()) return {};
  const int32_t op = problem_->tensor_op()[tensor];
  return {op, is_copy ? MemoryKind::kCopy : MemoryKind::kOutput,
          tensor - op_records_[op].first_tensor};
}

// Of those at [begin, end) of reads_, all on the device.
template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::EndReads(int32_t begin, int32_t end, int32_t device) {
  if constexpr (kRecord) {
    for (int32_t r = begin; r < end; ++r) EndRead(reads_[r], device);
  } else {
    int64_t bytes = 0;
    for (int32_t r = begin; r < end; ++r) {
      Buffer& read = buffers_[reads_[r]];
      bytes += --read.readers == 0 ? read.bytes : 0;
    }
    Free(device, bytes, {});
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::EndRead(int32_t buffer, int32_t device) {
  Buffer& read = buffers_[buffer];
  Free(device, --read.readers == 0 ? read.bytes : 0, UseOf(buffer));
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::Allocate(int32_t device, int64_t bytes, MemoryUse use) {
  used_bytes_[device] += bytes;
  peak_bytes_[device] = std::max(peak_bytes_[device], used_bytes_[device]);
  if constexpr (kRecord) {
    if (bytes > 0) memory_changes_.push_back({now_ns_, device, use, bytes, used_bytes_[device]});
  }
}

template <typename EventKey, bool kRecord>
void StepSimulation<EventKey, kRecord>::Free(int32_t device, int64_t bytes, MemoryUse use) {
  used_bytes_[device] -= bytes;
  if constexpr (kRecord) {
    if (bytes > 0) memory_changes_.push_back({now_ns_, device, use, -bytes, used_bytes_[device]});
  }
}

template class StepSimulation<ShortEventKey, false>;
template class StepSimulation<LongEventKey, false>;
template class StepSimulation<LongEventKey, true>;

}  // namespace hplacer
