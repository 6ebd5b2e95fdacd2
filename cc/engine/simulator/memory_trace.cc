#include "engine/simulator/memory_trace.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "engine/problem/problem_check.h"
#include "engine/simulator/step_simulation.h"

namespace hplacer {
namespace {

auto Key(const MemoryUse& use) { return std::make_tuple(use.op, use.kind, use.output); }

// Calls visit(changes) with what a simulation has recorded.
template <typename Visit>
void Replay(const Problem& problem, const std::vector<int32_t>& placement, int64_t order,
            Visit visit) {
  CheckPlacement(problem, placement);
  StepSimulation<LongEventKey, true> simulation;
  if (simulation.Run(problem, placement.data(), nullptr, order)) visit(simulation.memory_changes());
}

constexpr size_t kNoPeak = std::numeric_limits<size_t>::max();

// [m] The change by which each device first holds most, or kNoPeak.
std::vector<size_t> Peaks(const Problem& problem, const std::vector<MemoryChange>& changes) {
  std::vector<size_t> peak(problem.num_devices(), kNoPeak);
  for (size_t i = 0; i < changes.size(); ++i) {
    size_t& of_device = peak[changes[i].device];
    if (of_device == kNoPeak || changes[i].held_bytes > changes[of_device].held_bytes) {
      of_device = i;
    }
  }
  return peak;
}

}  // namespace

std::vector<HeldBytes> MemoryTimeline(const Problem& problem, const std::vector<int32_t>& placement,
                                      int64_t order) {
  std::vector<HeldBytes> timeline;
  Replay(problem, placement, order, [&](const std::vector<MemoryChange>& changes) {
    std::vector<int64_t> persistent_bytes(problem.num_devices(), 0);
    auto it = changes.begin();
    for (; it != changes.end() && it->use.kind == MemoryKind::kPersistent; ++it) {
      persistent_bytes[it->device] = it->held_bytes;
    }
    for (int32_t device = 0; device < problem.num_devices(); ++device) {
      if (persistent_bytes[device] > 0) timeline.push_back({0, device, persistent_bytes[device]});
    }
    for (; it != changes.end(); ++it) {
      timeline.push_back({it->time_ns, it->device, it->held_bytes});
    }
  });
  return timeline;
}

std::vector<MemoryHolder> PeakHolders(const Problem& problem, const std::vector<int32_t>& placement,
                                      int32_t device, int64_t order) {
  if (device < 0 || device >= problem.num_devices()) {
    Fail("device", std::to_string(device) + " is out of range, there are " +
                       std::to_string(problem.num_devices()));
  }
  std::vector<MemoryHolder> holders;
  Replay(problem, placement, order, [&](const std::vector<MemoryChange>& changes) {
    const size_t peak = Peaks(problem, changes)[device];
    if (peak == kNoPeak) return;
    std::map<std::tuple<int32_t, MemoryKind, int32_t>, int64_t> held;
    for (size_t i = 0; i <= peak; ++i) {
      const MemoryChange& change = changes[i];
      if (change.device != device) continue;
      if (change.bytes > 0) {
        held.emplace(Key(change.use), change.bytes);
      } else {
        held.erase(Key(change.use));
      }
    }
    for (const auto& [key, bytes] : held) {
      const auto& [op, kind, output] = key;
      holders.push_back({{op, kind, output}, bytes});
    }
  });
  std::stable_sort(holders.begin(), holders.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return holders;
}

std::vector<int64_t> OwnBytesAtPeaks(const Problem& problem,
                                     const std::vector<int32_t>& placement) {
  std::vector<int64_t> own_bytes(problem.num_ops(), 0);
  Replay(problem, placement, 0, [&](const std::vector<MemoryChange>& changes) {
    const std::vector<size_t> peak = Peaks(problem, changes);
    for (size_t i = 0; i < changes.size(); ++i) {
      const MemoryChange& change = changes[i];
      if (i > peak[change.device] || change.use.kind == MemoryKind::kCopy) continue;
      own_bytes[change.use.op] += change.bytes;
    }
  });
  return own_bytes;
}

}  // namespace hplacer
