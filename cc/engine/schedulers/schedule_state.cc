#include "engine/schedulers/schedule_state.h"

#include <algorithm>

#include "engine/simulator/simulator.h"

namespace hplacer {

ScheduleState::ScheduleState(const Problem& problem, DeviceTimeline::Policy policy)
    : problem_(problem),
      spec_(problem.spec()),
      placement_(problem.num_ops(), -1),
      finish_ns_(problem.num_ops(), 0),
      sends_(problem.num_ops()),
      unit_device_(problem.num_units(), -1),
      unit_cost_ns_(static_cast<size_t>(problem.num_units()) * problem.num_kinds(), 0),
      unit_persistent_bytes_(problem.num_units(), 0),
      uses_(problem.num_tensors()),
      channel_free_ns_(problem.num_channels(), 0),
      used_bytes_(problem.num_devices(), 0),
      releases_(problem.num_devices()),
      channel_trial_(problem.num_channels(), 0),
      trial_channel_free_ns_(problem.num_channels(), 0),
      data_trial_(problem.num_ops(), 0) {
  const size_t kinds = problem.num_kinds(), devices = problem.num_devices();
  for (const int32_t slots : problem.pool_slots()) timelines_.emplace_back(slots, policy);
  all_linked_ = spec_.link_src.size() == devices * (devices - 1);
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    const size_t unit = problem.units()[op];
    unit_persistent_bytes_[unit] += spec_.persistent_bytes[op];
    for (size_t kind = 0; kind < kinds; ++kind) {
      unit_cost_ns_[unit * kinds + kind] += std::max<int64_t>(0, spec_.cost_ns[op * kinds + kind]);
    }
  }
  for (int32_t tensor = 0; tensor < problem.num_tensors(); ++tensor) {
    uses_[tensor] += problem.consumer_ptr()[tensor + 1] - problem.consumer_ptr()[tensor];
    const int32_t alias_edge = problem.alias_edge()[tensor];
    if (alias_edge >= 0) ++uses_[problem.edge_tensor()[alias_edge]];
  }
}

bool ScheduleState::IsCandidate(int32_t op, int32_t device) const {
  const int32_t unit = problem_.units()[op];
  if (unit_device_[unit] >= 0) return unit_device_[unit] == device;
  const auto begin = problem_.candidates().begin();
  return std::binary_search(begin + problem_.candidate_ptr()[unit],
                            begin + problem_.candidate_ptr()[unit + 1], device);
}

ScheduleState::Estimate ScheduleState::Best(int32_t op) {
  const int32_t unit = problem_.units()[op];
  if (unit_device_[unit] >= 0) return EstimateOn(op, unit_device_[unit]);
  const int32_t begin = problem_.candidate_ptr()[unit], end = problem_.candidate_ptr()[unit + 1];
  Estimate best = EstimateOn(op, problem_.candidates()[begin]);
  for (int32_t i = begin + 1; i < end; ++i) {
    best = std::min(best, EstimateOn(op, problem_.candidates()[i]));
  }
  return best;
}

ScheduleState::Estimate ScheduleState::EstimateOn(int32_t op, int32_t device) {
  const Inputs inputs = GatherInputs(op, device);
  Estimate estimate;
  estimate.device = device;
  estimate.arrival_ns = inputs.arrival_ns;
  estimate.start_ns = TimelineOf(device).StartNs(inputs.arrival_ns, problem_.CostNs(op, device));
  estimate.missing_links = inputs.missing_links;
  int64_t bytes = BytesToAllocate(op) + inputs.copy_bytes;
  const int32_t unit = problem_.units()[op];
  if (unit_device_[unit] < 0) {
    bytes += unit_persistent_bytes_[unit];
    estimate.missing_links += CountUnreachableNeighbours(unit, device);
    estimate.unit_finish_ns =
        unit_cost_ns_[static_cast<size_t>(unit) * problem_.num_kinds() + spec_.device_kind[device]];
  }
  estimate.unit_finish_ns += estimate.start_ns;
  ReleaseUntil(FreeNs(device), device);
  estimate.missing_bytes =
      std::max<int64_t>(0, bytes - (spec_.device_memory_bytes[device] - used_bytes_[device]));
  return estimate;
}

void ScheduleState::Commit(int32_t op, int32_t device) {
  const Inputs inputs = GatherInputs(op, device);
  const int64_t cost_ns = problem_.CostNs(op, device);
  DeviceTimeline& timeline = timelines_[problem_.device_pool()[device]];
  const int64_t finish_ns = timeline.StartNs(inputs.arrival_ns, cost_ns) + cost_ns;
  timeline.Run(inputs.arrival_ns, cost_ns);
  if (unit_device_[problem_.units()[op]] < 0) FixUnit(problem_.units()[op], device);
  for (const PlannedSend& planned : planned_) {
    channel_free_ns_[planned.channel] = planned.channel_free_ns;
    sends_[planned.src_op].push_back(planned.send);
  }
  placement_[op] = device;
  finish_ns_[op] = finish_ns;
  Reserve(device, inputs.copy_bytes);
  AllocateOutputs(op, finish_ns);
  for (int32_t r = problem_.read_ptr()[op]; r < problem_.read_ptr()[op + 1]; ++r) {
    EndUse(problem_.edge_tensor()[problem_.read_edges()[r]], finish_ns);
  }
}

ScheduleState::Inputs ScheduleState::GatherInputs(int32_t op, int32_t device) {
  ++trial_;
  planned_.clear();
  Inputs inputs;
  for (int32_t r = problem_.read_ptr()[op]; r < problem_.read_ptr()[op + 1]; ++r) {
    const int32_t tensor = problem_.edge_tensor()[problem_.read_edges()[r]];
    const int32_t src = problem_.tensor_op()[tensor];
    const int64_t arrival_ns = DataArrivalNs(src, tensor - problem_.FirstTensor(src),
                                             spec_.output_bytes[tensor], device, &inputs);
    inputs.arrival_ns = std::max(inputs.arrival_ns, arrival_ns);
  }
  for (int32_t c = problem_.control_in_ptr()[op]; c < problem_.control_in_ptr()[op + 1]; ++c) {
    const int64_t arrival_ns = SignalArrivalNs(problem_.control_in()[c], device, &inputs);
    inputs.arrival_ns = std::max(inputs.arrival_ns, arrival_ns);
  }
  return inputs;
}

int64_t ScheduleState::DataArrivalNs(int32_t src, int32_t output, int64_t bytes, int32_t device,
                                     Inputs* inputs) {
  if (AssumedDevice(src, device) == device) return AssumedFinishNs(src, device);
  for (const Send& send : sends_[src]) {
    if (send.device == device && send.output == output) return send.arrival_ns;
  }
  data_trial_[src] = trial_;
  inputs->copy_bytes += bytes;
  return PlanSend(src, output, bytes, device, inputs);
}

int64_t ScheduleState::SignalArrivalNs(int32_t src, int32_t device, Inputs* inputs) {
  if (AssumedDevice(src, device) == device) return AssumedFinishNs(src, device);
  if (data_trial_[src] == trial_) return 0;
  int64_t arrival_ns = -1;
  for (const Send& send : sends_[src]) {
    if (send.device == device) arrival_ns = std::max(arrival_ns, send.arrival_ns);
  }
  return arrival_ns >= 0 ? arrival_ns : PlanSend(src, kSignal, 0, device, inputs);
}

int64_t ScheduleState::PlanSend(int32_t src, int32_t output, int64_t bytes, int32_t device,
                                Inputs* inputs) {
  const int32_t src_device = AssumedDevice(src, device);
  const int64_t issue_ns = AssumedFinishNs(src, src_device);
  const int32_t link = problem_.Link(src_device, device);
  if (link < 0) {
    ++inputs->missing_links;
    return issue_ns;
  }
  const int32_t channel = problem_.link_channel()[link];
  if (channel_trial_[channel] != trial_) {
    channel_trial_[channel] = trial_;
    trial_channel_free_ns_[channel] = channel_free_ns_[channel];
  }
  int64_t& free_ns = trial_channel_free_ns_[channel];
  free_ns = std::max(free_ns, issue_ns) + problem_.TransferNs(link, bytes);
  planned_.push_back({src, channel, free_ns, {output, device, free_ns}});
  return free_ns;
}

// Where an op is, or where an unscheduled one would go for a consumer on `device`.
int32_t ScheduleState::AssumedDevice(int32_t op, int32_t device) const {
  if (IsScheduled(op)) return placement_[op];
  if (IsCandidate(op, device)) return device;
  const int32_t unit = problem_.units()[op];
  if (unit_device_[unit] >= 0) return unit_device_[unit];
  return problem_.candidates()[problem_.candidate_ptr()[unit]];
}

int64_t ScheduleState::AssumedFinishNs(int32_t op, int32_t device) const {
  return IsScheduled(op) ? finish_ns_[op] : FreeNs(device) + problem_.CostNs(op, device);
}

int64_t ScheduleState::CountUnreachableNeighbours(int32_t unit, int32_t device) const {
  if (all_linked_) return 0;
  int64_t count = 0;
  for (int32_t i = problem_.unit_op_ptr()[unit]; i < problem_.unit_op_ptr()[unit + 1]; ++i) {
    const int32_t op = problem_.unit_ops()[i];
    const auto check_successor = [&](int32_t dst) { count += !CanTalk(op, device, dst, -1); };
    const auto check_predecessor = [&](int32_t src) { count += !CanTalk(src, -1, op, device); };
    const int32_t last_edge = problem_.consumer_ptr()[problem_.FirstTensor(op + 1)];
    for (int32_t edge = problem_.consumer_ptr()[problem_.FirstTensor(op)]; edge < last_edge;
         ++edge) {
      check_successor(problem_.consumers()[edge]);
    }
    for (int32_t c = problem_.control_out_ptr()[op]; c < problem_.control_out_ptr()[op + 1]; ++c) {
      check_successor(problem_.control_out()[c]);
    }
    for (int32_t r = problem_.read_ptr()[op]; r < problem_.read_ptr()[op + 1]; ++r) {
      check_predecessor(problem_.tensor_op()[problem_.edge_tensor()[problem_.read_edges()[r]]]);
    }
    for (int32_t c = problem_.control_in_ptr()[op]; c < problem_.control_in_ptr()[op + 1]; ++c) {
      check_predecessor(problem_.control_in()[c]);
    }
  }
  return count;
}

// Whether some device left to the unit of the op whose device is given as -1 would do.
bool ScheduleState::CanTalk(int32_t src_op, int32_t src_device, int32_t dst_op,
                            int32_t dst_device) const {
  if (problem_.units()[src_op] == problem_.units()[dst_op]) return true;
  const int32_t open_op = src_device < 0 ? src_op : dst_op;
  const int32_t fixed_device = src_device < 0 ? dst_device : src_device;
  for (int32_t device = 0; device < problem_.num_devices(); ++device) {
    if (!IsCandidate(open_op, device)) continue;
    if (device == fixed_device) return true;
    const int32_t link =
        src_device < 0 ? problem_.Link(device, fixed_device) : problem_.Link(fixed_device, device);
    if (link >= 0) return true;
  }
  return false;
}

int64_t ScheduleState::BytesToAllocate(int32_t op) const {
  int64_t bytes = spec_.temp_bytes[op];
  for (int32_t t = problem_.FirstTensor(op); t < problem_.FirstTensor(op + 1); ++t) {
    if (problem_.alias_edge()[t] == kNoAlias) bytes += spec_.output_bytes[t];
  }
  return bytes;
}

void ScheduleState::FixUnit(int32_t unit, int32_t device) {
  unit_device_[unit] = device;
  Reserve(device, unit_persistent_bytes_[unit]);
}

void ScheduleState::Reserve(int32_t device, int64_t bytes) { used_bytes_[device] += bytes; }

void ScheduleState::ReserveUntil(int64_t time_ns, int32_t device, int64_t bytes) {
  Reserve(device, bytes);
  releases_[device].push({time_ns, bytes});
}

void ScheduleState::ReleaseUntil(int64_t time_ns, int32_t device) {
  auto& releases = releases_[device];
  for (; !releases.empty() && releases.top().first <= time_ns; releases.pop()) {
    used_bytes_[device] -= releases.top().second;
  }
}

void ScheduleState::AllocateOutputs(int32_t op, int64_t finish_ns) {
  const int32_t device = placement_[op];
  ReserveUntil(finish_ns, device, spec_.temp_bytes[op]);
  for (int32_t t = problem_.FirstTensor(op); t < problem_.FirstTensor(op + 1); ++t) {
    const int32_t alias_edge = problem_.alias_edge()[t];
    if (alias_edge == kNoAlias) {
      if (uses_[t] > 0) {
        Reserve(device, spec_.output_bytes[t]);
      } else {
        ReserveUntil(finish_ns, device, spec_.output_bytes[t]);
      }
    } else if (alias_edge >= 0 && uses_[t] == 0) {
      EndUse(problem_.edge_tensor()[alias_edge], finish_ns);
    }
  }
}

// One consumer or alias of `tensor` is done; after the last one its memory goes everywhere.
void ScheduleState::EndUse(int32_t tensor, int64_t time_ns) {
  while (--uses_[tensor] == 0) {
    const int32_t op = problem_.tensor_op()[tensor];
    const int64_t bytes = spec_.output_bytes[tensor];
    for (const Send& send : sends_[op]) {
      if (send.output == tensor - problem_.FirstTensor(op)) {
        releases_[send.device].push({time_ns, bytes});
      }
    }
    const int32_t alias_edge = problem_.alias_edge()[tensor];
    if (alias_edge == kNoAlias) releases_[placement_[op]].push({time_ns, bytes});
    if (alias_edge < 0) return;
    tensor = problem_.edge_tensor()[alias_edge];
  }
}

}  // namespace hplacer
