#include "engine/rollout/rollout.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace hplacer {
namespace {

constexpr double kUnreachable = 1e18;  // ns: more than any step takes
constexpr double kFullFrom = 0.8;      // of a memory

}  // namespace

RolloutSpace::RolloutSpace(const SearchSpace& space, const std::vector<int32_t>& scope)
    : space_(space),
      outlook_(space.problem()),
      on_demand_(OnDemandOps(space.problem())),
      scope_(scope) {
  const Problem& problem = space.problem();
  if (scope_.empty()) scope_.assign(problem.num_units(), 0);
  for (const int32_t label : scope_) num_scopes_ = std::max(num_scopes_, label + 1);
  for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
    total_work_ns_ += static_cast<double>(space.LeastLoadNs(unit));
  }
}

Rollout::Rollout(const RolloutSpace& space)
    : space_(space),
      problem_(space.problem()),
      m_(problem_.num_devices()),
      initial_pending_(problem_.step_graph().in_degree),
      feature_(m_),
      score_(m_),
      unreachable_(m_) {
  for (int32_t src = 0; src < m_; ++src) {
    for (int32_t dst = 0; dst < m_; ++dst) {
      all_linked_ = all_linked_ && (src == dst || problem_.Link(src, dst) >= 0);
    }
  }
  first_slot_.assign(1, 0);
  for (const int32_t slots : problem_.pool_slots()) {
    first_slot_.push_back(first_slot_.back() + std::min(slots, problem_.num_ops()));
  }
  // Nothing waits for ops on demand.
  const StepGraph& graph = problem_.step_graph();
  for (const StepGraph::Control& control : graph.controls) {
    initial_barrier_pending_.push_back(control.num_sources);
  }
  const std::vector<uint8_t>& on_demand = space_.on_demand();
  for (int32_t op = 0; op < problem_.num_ops(); ++op) {
    if (!on_demand[op]) continue;
    const int32_t end = problem_.consumer_ptr()[problem_.FirstTensor(op + 1)];
    for (int32_t e = problem_.consumer_ptr()[problem_.FirstTensor(op)]; e < end; ++e) {
      --initial_pending_[problem_.consumers()[e]];
    }
    const int32_t control = graph.ops[op].control;
    if (control == kNoControl || --initial_barrier_pending_[control] > 0) continue;
    for (int32_t c = graph.controls[control].begin; c < graph.controls[control].end; ++c) {
      --initial_pending_[problem_.control_out()[c]];
    }
  }
}

void Rollout::Reset() {
  device_.assign(problem_.num_units(), -1);
  pending_ = initial_pending_;
  barrier_pending_ = initial_barrier_pending_;
  finish_ns_.assign(problem_.num_ops(), -1);
  sent_ns_.assign(static_cast<size_t>(problem_.num_tensors()) * m_, -1);
  channel_free_ns_.assign(problem_.num_channels(), 0);
  slot_free_ns_.resize(first_slot_.back());
  for (int32_t d = 0; d < m_; ++d) {
    const int32_t pool = problem_.device_pool()[d];
    std::fill(slot_free_ns_.begin() + first_slot_[pool],
              slot_free_ns_.begin() + first_slot_[pool + 1], problem_.spec().device_start_ns[d]);
  }
  backlog_ns_.assign(problem_.num_pools(), 0);
  load_ns_.assign(m_, 0);
  slice_load_ns_.assign(static_cast<size_t>(m_) * kSlices, 0);
  scope_load_ns_.assign(static_cast<size_t>(space_.num_scopes()) * m_, 0);
  used_bytes_.assign(m_, 0);
  loss_.assign(static_cast<size_t>(problem_.num_units()) * m_, 0);
}

// Into which parts of the step each op falls: of the given step, else at the earliest.
void Rollout::Slice() {
  const StepOutlook& outlook = space_.outlook();
  double step_ns = space_.TotalWorkNs() / std::max(1, problem_.num_pools());
  const auto end_ns = [&](int32_t op) {
    if (begin_.finish_ns != nullptr) return static_cast<double>((*begin_.finish_ns)[op]);
    return static_cast<double>(outlook.before_ns[op] + outlook.op_ns[op]);
  };
  for (int32_t op = 0; op < problem_.num_ops(); ++op) step_ns = std::max(step_ns, end_ns(op));
  slice_ns_ = (step_ns + 1) / kSlices;
  slices_.resize(problem_.num_ops());
  for (int32_t op = 0; op < problem_.num_ops(); ++op) {
    const double begin_ns = std::max(0.0, end_ns(op) - static_cast<double>(outlook.op_ns[op]));
    // Of long steps rounding may make the end of the last slice the begin of another one.
    slices_[op] = {
        std::min(kSlices - 1, static_cast<int32_t>(begin_ns / slice_ns_)),
        std::min(kSlices - 1, static_cast<int32_t>(std::max(0.0, end_ns(op)) / slice_ns_))};
  }
}

const std::vector<int32_t>& Rollout::Run(const Items& items, const PlacementPolicy& policy,
                                         const Begin& begin) {
  items_ = &items;
  policy_ = &policy;
  begin_ = begin;
  Slice();
  Reset();
  if (begin.unit_device != nullptr) {
    for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
      const int32_t device = (*begin.unit_device)[unit];
      AddLoad(unit, device, 1);
      if (begin.is_free != nullptr && !(*begin.is_free)[unit]) Place(unit, device);
    }
  }
  const std::vector<uint8_t>& on_demand = space_.on_demand();
  for (int32_t op = 0; op < problem_.num_ops(); ++op) {
    if (pending_[op] == 0 && !on_demand[op]) Release(op, 0);
  }
  DecideWaiting(0);
  while (!events_.empty()) {
    const auto [now_ns, event] = events_.top();
    events_.pop();
    if (event < problem_.num_ops()) {
      Finish(event, now_ns);
    } else {
      Start(event - problem_.num_ops(), now_ns);
    }
    if (events_.empty() || events_.top().first > now_ns) DecideWaiting(now_ns);
  }
  for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
    if (device_[unit] < 0) PlaceUnasked(unit);
  }
  return device_;
}

// ---- the step ----

int64_t Rollout::FreeNs(int32_t device) const {
  const int32_t pool = problem_.device_pool()[device];
  const auto first = slot_free_ns_.begin() + first_slot_[pool];
  const auto last = slot_free_ns_.begin() + first_slot_[pool + 1];
  return *std::min_element(first, last) + backlog_ns_[pool] / (last - first);
}

// Occupies the slot of a pool that is free first.
int64_t Rollout::Occupy(int32_t device, int64_t from_ns, int64_t duration_ns) {
  const int32_t pool = problem_.device_pool()[device];
  const auto first = slot_free_ns_.begin() + first_slot_[pool];
  const auto slot = std::min_element(first, slot_free_ns_.begin() + first_slot_[pool + 1]);
  *slot = std::max(*slot, from_ns) + duration_ns;
  return *slot;
}

void Rollout::Start(int32_t op, int64_t ready_ns) {
  const int32_t device = DeviceOf(op);
  const int64_t cost_ns = problem_.CostNs(op, device);
  backlog_ns_[problem_.device_pool()[device]] -= cost_ns;
  events_.push({Occupy(device, ready_ns, cost_ns), op});
}

void Rollout::Finish(int32_t op, int64_t now_ns) {
  finish_ns_[op] = now_ns;
  const std::vector<uint8_t>& on_demand = space_.on_demand();
  for (int32_t t = problem_.FirstTensor(op); t < problem_.FirstTensor(op + 1); ++t) {
    for (int32_t e = problem_.consumer_ptr()[t]; e < problem_.consumer_ptr()[t + 1]; ++e) {
      const int32_t dst = problem_.consumers()[e];
      if (IsPlaced(dst)) SendNs(t, DeviceOf(dst));
      if (--pending_[dst] == 0 && !on_demand[dst]) Release(dst, now_ns);
    }
  }
  const StepGraph& graph = problem_.step_graph();
  const int32_t control = graph.ops[op].control;
  if (control == kNoControl || --barrier_pending_[control] > 0) return;
  for (int32_t c = graph.controls[control].begin; c < graph.controls[control].end; ++c) {
    const int32_t dst = problem_.control_out()[c];
    if (--pending_[dst] == 0 && !on_demand[dst]) Release(dst, now_ns);
  }
}

// All inputs of the op have been computed.
void Rollout::Release(int32_t op, int64_t now_ns) {
  if (!IsPlaced(op)) {
    if (policy_->is_lazy) {
      waiting_.push({space_.outlook().after_ns[op], -op});
      return;
    }
    Decide(op, now_ns);
  }
  Enqueue(op, now_ns);
}

void Rollout::DecideWaiting(int64_t now_ns) {
  while (!waiting_.empty()) {
    bool is_idle = events_.empty();
    for (int32_t d = 0; d < m_ && !is_idle; ++d) is_idle = FreeNs(d) <= now_ns;
    if (!is_idle) return;
    const int32_t op = -waiting_.top().second;
    waiting_.pop();
    if (!IsPlaced(op)) Decide(op, now_ns);
    Enqueue(op, now_ns);
  }
}

// Sends the op what it lacks, and lets it run when all is there.
void Rollout::Enqueue(int32_t op, int64_t now_ns) {
  const int32_t device = DeviceOf(op);
  int64_t ready_ns = now_ns;
  for (int32_t r = problem_.read_ptr()[op]; r < problem_.read_ptr()[op + 1]; ++r) {
    const int32_t tensor = problem_.edge_tensor()[problem_.read_edges()[r]];
    Demand(problem_.units()[problem_.tensor_op()[tensor]], device);
    ready_ns = std::max(ready_ns, SendNs(tensor, device));
  }
  for (int32_t c = problem_.control_in_ptr()[op]; c < problem_.control_in_ptr()[op + 1]; ++c) {
    Demand(problem_.units()[problem_.control_in()[c]], device);
  }
  backlog_ns_[problem_.device_pool()[device]] += problem_.CostNs(op, device);
  events_.push({ready_ns, problem_.num_ops() + op});
}

// Puts a unit whose ops are on demand next to the first who asks for it.
void Rollout::Demand(int32_t unit, int32_t device) {
  if (device_[unit] >= 0) return;
  if (!problem_.IsCandidate(unit, device)) {
    device = problem_.candidates()[problem_.candidate_ptr()[unit]];
  }
  if (begin_.unit_device != nullptr) AddLoad(unit, (*begin_.unit_device)[unit], -1);
  AddLoad(unit, device, 1);
  Place(unit, device);
}

// When a tensor is on the device; sends it there unless that was done.
int64_t Rollout::SendNs(int32_t tensor, int32_t device) {
  const int32_t src = problem_.tensor_op()[tensor], from = DeviceOf(src);
  if (from == device) return finish_ns_[src];
  int64_t& arrival_ns = sent_ns_[static_cast<size_t>(tensor) * m_ + device];
  if (arrival_ns >= 0) return arrival_ns;
  const int32_t link = problem_.Link(from, device);
  if (link < 0) return arrival_ns = finish_ns_[src];
  const int64_t bytes = problem_.spec().output_bytes[tensor];
  int64_t sent_ns = finish_ns_[src];
  if (problem_.has_work()) sent_ns = Occupy(from, sent_ns, problem_.SendNs(link, bytes));
  int64_t& free_ns = channel_free_ns_[problem_.link_channel()[link]];
  free_ns = std::max(free_ns, sent_ns) + problem_.ChannelNs(link, bytes);
  arrival_ns = free_ns;
  if (problem_.has_work()) {
    arrival_ns = Occupy(device, arrival_ns, problem_.ReceiveNs(link, bytes));
  }
  return arrival_ns;
}

// ---- decisions ----

void Rollout::Decide(int32_t op, int64_t now_ns) {
  const int32_t unit = problem_.units()[op], item = items_->of_unit[unit];
  const int32_t begin = items_->members.ptr[item], end = items_->members.ptr[item + 1];
  const auto members = items_->members.items.begin();
  const int32_t* candidates = problem_.candidates().data() + problem_.candidate_ptr()[unit];
  const int32_t count = problem_.candidate_ptr()[unit + 1] - problem_.candidate_ptr()[unit];
  if (begin_.unit_device != nullptr) {
    for (auto u = members + begin; u != members + end; ++u) {
      if (device_[*u] < 0) AddLoad(*u, (*begin_.unit_device)[*u], -1);
    }
  }
  int32_t best = candidates[0];
  if (count > 1) {
    for (int32_t i = 0; i < count; ++i) {
      feature_[candidates[i]].fill(0);
      unreachable_[candidates[i]] = 0;
    }
    GatherInputs(op, candidates, count, now_ns);
    GatherNeighbours(op, item, candidates, count);
    GatherLoads(item, candidates, count);
    const RolloutFeatures& weight = policy_->weight;
    double least = std::numeric_limits<double>::infinity();
    for (int32_t i = 0; i < count; ++i) {
      const int32_t device = candidates[i];
      score_[device] = std::inner_product(weight.begin(), weight.end(), feature_[device].begin(),
                                          kUnreachable * static_cast<double>(unreachable_[device]));
      if (score_[device] < least) {
        least = score_[device];
        best = device;
      }
    }
  }
  for (auto u = members + begin; u != members + end; ++u) {
    if (device_[*u] >= 0) continue;
    for (int32_t i = 0; i < count && count > 1; ++i) {
      loss_[static_cast<size_t>(*u) * m_ + candidates[i]] =
          static_cast<float>(score_[candidates[i]] - score_[best]);
    }
    AddLoad(*u, best, 1);
    Place(*u, best);
  }
}

// What the op's inputs and the device itself say: kWait, kLate, kTransfer.
void Rollout::GatherInputs(int32_t op, const int32_t* candidates, int32_t count, int64_t now_ns) {
  const double critical = space_.outlook().Criticality(op);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t device = candidates[i];
    int64_t arrival_ns = now_ns, transfer_ns = 0;
    for (int32_t r = problem_.read_ptr()[op]; r < problem_.read_ptr()[op + 1]; ++r) {
      const int32_t tensor = problem_.edge_tensor()[problem_.read_edges()[r]];
      const int32_t src = problem_.tensor_op()[tensor];
      if (!IsPlaced(src) || DeviceOf(src) == device) continue;
      int64_t sent_ns = sent_ns_[static_cast<size_t>(tensor) * m_ + device];
      const int32_t link = problem_.Link(DeviceOf(src), device);
      if (sent_ns < 0 && link >= 0) {
        const int64_t ns = problem_.TransferNs(link, problem_.spec().output_bytes[tensor]);
        transfer_ns += ns;
        const int64_t free_ns = channel_free_ns_[problem_.link_channel()[link]];
        sent_ns = std::max(free_ns, finish_ns_[src]) + ns;
      }
      arrival_ns = std::max(arrival_ns, sent_ns);
    }
    const int64_t free_ns = std::max(FreeNs(device), now_ns);
    RolloutFeatures& feature = feature_[device];
    feature[kWait] = static_cast<double>(free_ns - now_ns);
    feature[kLate] = static_cast<double>(std::max<int64_t>(0, arrival_ns - free_ns));
    feature[kTransfer] = static_cast<double>(transfer_ns);
    feature[kCriticalWait] = critical * (feature[kWait] + feature[kLate]);
  }
}

// What neighbours on known devices say: kApart, kApartBefore, and whether they can be reached.
void Rollout::GatherNeighbours(int32_t op, int32_t item, const int32_t* candidates, int32_t count) {
  const SearchSpace& space = space_.space();
  double placed_ns = 0, before_ns = 0;
  here_ns_.assign(2 * m_, 0);
  for (int32_t i = items_->members.ptr[item]; i < items_->members.ptr[item + 1]; ++i) {
    const int32_t unit = items_->members.items[i];
    if (device_[unit] >= 0) continue;
    for (int32_t k = space.neighbour_ptr()[unit]; k < space.neighbour_ptr()[unit + 1]; ++k) {
      const auto [other, ns] = space.neighbours()[k];
      const auto transfer_ns = static_cast<double>(ns);
      if (device_[other] >= 0) {
        placed_ns += transfer_ns;
        here_ns_[device_[other]] += transfer_ns;
        for (int32_t c = 0; c < count && !all_linked_; ++c) {
          const int32_t device = candidates[c];
          unreachable_[device] +=
              device != device_[other] && (problem_.Link(device, device_[other]) < 0 ||
                                           problem_.Link(device_[other], device) < 0);
        }
      } else if (begin_.unit_device != nullptr && items_->of_unit[other] != item) {
        before_ns += transfer_ns;
        here_ns_[m_ + (*begin_.unit_device)[other]] += transfer_ns;
      }
    }
  }
  const double critical = space_.outlook().Criticality(op);
  for (int32_t i = 0; i < count; ++i) {
    RolloutFeatures& feature = feature_[candidates[i]];
    feature[kApart] = placed_ns - here_ns_[candidates[i]];
    feature[kApartBefore] = before_ns - here_ns_[m_ + candidates[i]];
    feature[kCriticalApart] = critical * feature[kApart];
  }
}

// What the devices have to do already, and the item's own work.
void Rollout::GatherLoads(int32_t item, const int32_t* candidates, int32_t count) {
  const SearchSpace& space = space_.space();
  double mean_load_ns = 0, least_ns = std::numeric_limits<double>::infinity();
  for (int32_t i = 0; i < count; ++i) mean_load_ns += load_ns_[candidates[i]] / count;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t device = candidates[i];
    RolloutFeatures& feature = feature_[device];
    double work_ns = 0, crowding_ns = 0, moved_ns = 0, scope_apart_ns = 0, bytes = 0;
    for (int32_t k = items_->members.ptr[item]; k < items_->members.ptr[item + 1]; ++k) {
      const int32_t unit = items_->members.items[k];
      if (device_[unit] >= 0) continue;
      const auto unit_ns = static_cast<double>(space.LoadNs(unit, device));
      work_ns += unit_ns;
      for (int32_t o = problem_.unit_op_ptr()[unit]; o < problem_.unit_op_ptr()[unit + 1]; ++o) {
        const int32_t op = problem_.unit_ops()[o];
        const auto [first, last] = slices_[op];
        double busy = 0;
        for (int32_t s = first; s <= last; ++s) busy += slice_load_ns_[device * kSlices + s];
        crowding_ns += static_cast<double>(problem_.CostNs(op, device)) * busy /
                       (slice_ns_ * (last - first + 1));
      }
      if (begin_.unit_device != nullptr && (*begin_.unit_device)[unit] != device) {
        moved_ns += unit_ns;
      }
      const double* scope_ns =
          scope_load_ns_.data() + static_cast<size_t>(space_.scope()[unit]) * m_;
      double in_scope_ns = 1;
      for (int32_t c = 0; c < count; ++c) in_scope_ns += scope_ns[candidates[c]];
      scope_apart_ns += unit_ns * (1 - scope_ns[device] / in_scope_ns);
      if (begin_.unit_bytes != nullptr) {
        bytes += static_cast<double>((*begin_.unit_bytes)[unit]);
      }
    }
    least_ns = std::min(least_ns, work_ns);
    feature[kWork] = feature[kExtraWork] = work_ns;
    feature[kLoad] = load_ns_[device] - mean_load_ns;
    feature[kCrowding] = crowding_ns;
    feature[kMoved] = moved_ns;
    feature[kScopeApart] = scope_apart_ns;
    if (begin_.unit_bytes == nullptr) continue;
    const auto capacity = static_cast<double>(problem_.spec().device_memory_bytes[device]) + 1;
    const double fill = (used_bytes_[device] + bytes) / capacity;
    feature[kFull] = space_.TotalWorkNs() * std::max(0.0, fill - kFullFrom);
  }
  for (int32_t i = 0; i < count; ++i) feature_[candidates[i]][kExtraWork] -= least_ns;
}

void Rollout::Place(int32_t unit, int32_t device) {
  device_[unit] = device;
  for (int32_t i = problem_.unit_op_ptr()[unit]; i < problem_.unit_op_ptr()[unit + 1]; ++i) {
    const int32_t op = problem_.unit_ops()[i];
    if (space_.on_demand()[op]) finish_ns_[op] = problem_.CostNs(op, device);
  }
}

// A unit that no op has asked for: where it was, else where least is to do.
void Rollout::PlaceUnasked(int32_t unit) {
  int32_t device = problem_.candidates()[problem_.candidate_ptr()[unit]];
  for (int32_t i = problem_.candidate_ptr()[unit]; i < problem_.candidate_ptr()[unit + 1]; ++i) {
    const int32_t other = problem_.candidates()[i];
    if (load_ns_[other] < load_ns_[device]) device = other;
  }
  if (begin_.unit_device != nullptr) device = (*begin_.unit_device)[unit];
  Place(unit, device);
}

void Rollout::AddLoad(int32_t unit, int32_t device, double sign) {
  const double load_ns = sign * static_cast<double>(space_.space().LoadNs(unit, device));
  load_ns_[device] += load_ns;
  for (int32_t o = problem_.unit_op_ptr()[unit]; o < problem_.unit_op_ptr()[unit + 1]; ++o) {
    const int32_t op = problem_.unit_ops()[o];
    const auto [first, last] = slices_[op];
    const double ns = sign * static_cast<double>(problem_.CostNs(op, device)) / (last - first + 1);
    for (int32_t s = first; s <= last; ++s) slice_load_ns_[device * kSlices + s] += ns;
  }
  scope_load_ns_[static_cast<size_t>(space_.scope()[unit]) * m_ + device] += load_ns;
  if (begin_.unit_bytes != nullptr) {
    used_bytes_[device] += sign * static_cast<double>((*begin_.unit_bytes)[unit]);
  }
}

}  // namespace hplacer
