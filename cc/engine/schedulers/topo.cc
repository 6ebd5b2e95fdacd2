#include "engine/schedulers/topo.h"

#include <algorithm>

#include "engine/problem/candidates.h"
#include "engine/problem/topological_order.h"

namespace hplacer {
namespace {

std::vector<int64_t> UnitBytes(const Problem& problem) {
  const ProblemSpec& spec = problem.spec();
  std::vector<int64_t> bytes(problem.num_units(), 0), temp_bytes(problem.num_units(), 0);
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    const int32_t unit = problem.units()[op];
    bytes[unit] += spec.persistent_bytes[op];
    temp_bytes[unit] = std::max(temp_bytes[unit], spec.temp_bytes[op]);
    for (int32_t t = problem.FirstTensor(op); t < problem.FirstTensor(op + 1); ++t) {
      if (problem.alias_edge()[t] == kNoAlias) bytes[unit] += spec.output_bytes[t];
    }
  }
  for (int32_t unit = 0; unit < problem.num_units(); ++unit) bytes[unit] += temp_bytes[unit];
  return bytes;
}

class TopoFiller {
 public:
  TopoFiller(const Problem& problem, const std::vector<int32_t>& devices)
      : problem_(problem),
        devices_(devices),
        unit_bytes_(UnitBytes(problem)),
        free_bytes_(problem.spec().device_memory_bytes),
        unit_device_(problem.num_units(), -1) {
    SetCaps();
  }

  std::vector<int32_t> Run() {
    std::vector<int32_t> placement(problem_.num_ops());
    for (const int32_t op : TopologicalOrder(problem_)) {
      const int32_t unit = problem_.units()[op];
      if (unit_device_[unit] < 0) Place(unit);
      placement[op] = unit_device_[unit];
    }
    return placement;
  }

 private:
  void SetCaps() {
    __int128 needed_bytes = 0, memory_bytes = 0;
    int64_t largest_bytes = 0;
    for (const int64_t bytes : unit_bytes_) {
      needed_bytes += bytes;
      largest_bytes = std::max(largest_bytes, bytes);
    }
    for (const int32_t device : devices_) memory_bytes += free_bytes_[device];
    for (const int32_t device : devices_) {
      const __int128 has_bytes = free_bytes_[device];
      const __int128 share_bytes =
          memory_bytes == 0 ? 0 : Share(needed_bytes, has_bytes, memory_bytes);
      cap_bytes_.push_back(std::min(share_bytes + largest_bytes, has_bytes));
    }
  }

  // needed * has / all. Memory sizes lose their low bits, or 128 bits would not always do.
  static __int128 Share(__int128 needed, __int128 has, __int128 all) {
    for (; all >> 62 != 0; all >>= 1) has >>= 1;
    return needed * has / all;
  }

  void Place(int32_t unit) {
    const int64_t bytes = unit_bytes_[unit];
    const int32_t device = Choose(unit, bytes);
    unit_device_[unit] = device;
    free_bytes_[device] -= bytes;
  }

  int32_t Choose(int32_t unit, int64_t bytes) {
    const auto begin = problem_.candidates().begin() + problem_.candidate_ptr()[unit];
    const auto end = problem_.candidates().begin() + problem_.candidate_ptr()[unit + 1];
    const auto may_run = [&](int32_t device) { return std::binary_search(begin, end, device); };
    if (std::none_of(devices_.begin(), devices_.end(), may_run)) return *begin;
    if (current_ < devices_.size() && may_run(devices_[current_])) {
      while (current_ < devices_.size() && used_bytes(current_) + bytes > cap_bytes_[current_]) {
        ++current_;
      }
    }
    if (current_ < devices_.size() && may_run(devices_[current_])) return devices_[current_];
    int32_t roomiest = -1;
    for (const int32_t device : devices_) {
      if (!may_run(device)) continue;
      if (free_bytes_[device] >= bytes) return device;
      if (roomiest < 0 || free_bytes_[device] > free_bytes_[roomiest]) roomiest = device;
    }
    return roomiest;
  }

  int64_t used_bytes(size_t i) const {
    return problem_.spec().device_memory_bytes[devices_[i]] - free_bytes_[devices_[i]];
  }

  const Problem& problem_;
  const std::vector<int32_t>& devices_;
  std::vector<int64_t> unit_bytes_;   // [U]
  std::vector<int64_t> free_bytes_;   // [m] negative where memory has run out
  std::vector<int32_t> unit_device_;  // [U] or -1
  std::vector<__int128> cap_bytes_;   // of devices_[i]
  size_t current_ = 0;                // devices_[current_] is being filled
};

}  // namespace

std::vector<int32_t> PlaceTopo(const Problem& problem, const std::vector<int32_t>& devices) {
  CheckCandidates(problem);
  return TopoFiller(problem, devices).Run();
}

}  // namespace hplacer
