#include "engine/bounds/device_classes.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace hplacer {

DeviceClasses::DeviceClasses(const Problem& problem) : problem_(problem) {
  SumBytes();
  FindClasses();
  SumLoads();
  FindLinks();
}

bool DeviceClasses::AllowsAny(int32_t unit) const {
  const auto begin = allows_.begin() + static_cast<int64_t>(unit) * num_classes();
  return std::find(begin, begin + num_classes(), 1) != begin + num_classes();
}

__int128 DeviceClasses::SlotsWorth(const std::vector<int64_t>& value) const {
  std::vector<int64_t> best(problem_.num_pools(), 0);
  for (int32_t device = 0; device < problem_.num_devices(); ++device) {
    int64_t& pool_best = best[problem_.device_pool()[device]];
    pool_best = std::max(pool_best, value[of_device_[device]]);
  }
  __int128 sum = 0;
  for (int32_t pool = 0; pool < problem_.num_pools(); ++pool) {
    sum += __int128{best[pool]} * problem_.pool_slots()[pool];
  }
  return sum;
}

void DeviceClasses::SumBytes() {
  const ProblemSpec& spec = problem_.spec();
  persistent_bytes_.assign(problem_.num_units(), 0);
  certain_bytes_.assign(problem_.num_units(), 0);
  for (int32_t op = 0; op < problem_.num_ops(); ++op) {
    const int32_t unit = problem_.units()[op];
    persistent_bytes_[unit] += spec.persistent_bytes[op];
    int64_t running = spec.temp_bytes[op];
    for (int32_t t = problem_.FirstTensor(op); t < problem_.FirstTensor(op + 1); ++t) {
      if (problem_.alias_edge()[t] == kNoAlias) running += spec.output_bytes[t];
    }
    certain_bytes_[unit] = std::max(certain_bytes_[unit], running);
  }
  for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
    certain_bytes_[unit] += persistent_bytes_[unit];
  }
}

void DeviceClasses::FindClasses() {
  const ProblemSpec& spec = problem_.spec();
  const int32_t m = problem_.num_devices(), units = problem_.num_units();
  std::vector<std::vector<bool>> hosts(m, std::vector<bool>(units));
  for (int32_t unit = 0; unit < units; ++unit) {
    for (int32_t i = problem_.candidate_ptr()[unit]; i < problem_.candidate_ptr()[unit + 1]; ++i) {
      const int32_t device = problem_.candidates()[i];
      hosts[device][unit] = certain_bytes_[unit] <= spec.device_memory_bytes[device];
    }
  }
  std::map<std::tuple<int32_t, int32_t, std::vector<bool>>, int32_t> classes;
  for (int32_t device = 0; device < m; ++device) {
    std::tuple key(spec.device_kind[device], spec.device_slots[device], std::move(hosts[device]));
    const auto [entry, added] = classes.emplace(std::move(key), num_classes());
    of_device_.push_back(entry->second);
    if (added) {
      first_device_.push_back(device);
      size_.push_back(0);
      memory_bytes_.push_back(0);
    }
    ++size_[entry->second];
    int64_t& memory = memory_bytes_[entry->second];
    if (__builtin_add_overflow(memory, spec.device_memory_bytes[device], &memory)) memory = kNever;
  }
  allows_.assign(static_cast<int64_t>(units) * num_classes(), 0);
  for (const auto& [key, c] : classes) {
    const std::vector<bool>& hosted = std::get<2>(key);
    for (int64_t unit = 0; unit < units; ++unit) allows_[unit * num_classes() + c] = hosted[unit];
  }
}

void DeviceClasses::SumLoads() {
  load_ns_.assign(allows_.size(), 0);
  for (int32_t op = 0; op < problem_.num_ops(); ++op) {
    const int32_t unit = problem_.units()[op];
    for (int32_t c = 0; c < num_classes(); ++c) {
      if (Allows(unit, c))
        load_ns_[static_cast<int64_t>(unit) * num_classes() + c] += CostNs(op, c);
    }
  }
}

void DeviceClasses::FindLinks() {
  const ProblemSpec& spec = problem_.spec();
  fastest_links_.resize(static_cast<size_t>(num_classes()) * num_classes());
  // A rate of 0 is that of no work.
  const auto is_as_fast = [](int64_t a, int64_t b) { return a == 0 || (b != 0 && a >= b); };
  const auto dominates = [&](int32_t a, int32_t b) {
    return (problem_.IsCopied(a) || !problem_.IsCopied(b)) &&
           spec.link_latency_ns[a] <= spec.link_latency_ns[b] &&
           spec.link_bytes_per_s[a] >= spec.link_bytes_per_s[b] &&
           spec.link_send_ns[a] <= spec.link_send_ns[b] &&
           is_as_fast(spec.link_send_bytes_per_s[a], spec.link_send_bytes_per_s[b]) &&
           spec.link_receive_ns[a] <= spec.link_receive_ns[b] &&
           is_as_fast(spec.link_receive_bytes_per_s[a], spec.link_receive_bytes_per_s[b]);
  };
  for (int32_t link = 0; link < static_cast<int32_t>(spec.link_src.size()); ++link) {
    const int32_t src = of_device_[spec.link_src[link]], dst = of_device_[spec.link_dst[link]];
    std::vector<int32_t>& best = fastest_links_[static_cast<size_t>(src) * num_classes() + dst];
    if (std::any_of(best.begin(), best.end(), [&](int32_t b) { return dominates(b, link); })) {
      continue;
    }
    best.erase(
        std::remove_if(best.begin(), best.end(), [&](int32_t b) { return dominates(link, b); }),
        best.end());
    best.push_back(link);
  }
}

int64_t DeviceClasses::MinTransferNs(int32_t src, int32_t dst, int32_t transfers, int32_t filled,
                                     int64_t bytes) const {
  int64_t best = kNever;
  for (int32_t link : fastest_links_[static_cast<size_t>(src) * num_classes() + dst]) {
    const int64_t latency_ns = problem_.spec().link_latency_ns[link];
    const int64_t work_ns = transfers == 1
                                ? problem_.SendNs(link, bytes) + problem_.ReceiveNs(link, bytes)
                                : problem_.SendNs(link, 0) + problem_.ReceiveNs(link, 0);
    const int32_t carried = problem_.IsCopied(link) ? std::max(filled, 1) : transfers;
    best = std::min(best, work_ns + problem_.ChannelNs(link, bytes) + (carried - 1) * latency_ns);
  }
  return best;
}

}  // namespace hplacer
