// What each device's memory holds during a step: every change, and the holders at the peak.
//
// Inputs are a problem and a placement; the simulator runs the step once more and records. Sizes
// are bytes, times nanoseconds. Throws ProblemError for a malformed placement or device; without a
// trace (a kernel or a link is missing) there are no changes and no holders.

#ifndef HPLACER_ENGINE_SIMULATOR_MEMORY_TRACE_H_
#define HPLACER_ENGINE_SIMULATOR_MEMORY_TRACE_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

enum class MemoryKind : int32_t { kPersistent, kTemp, kOutput, kCopy };

// Memory of `op`: its own, or a received copy of one of its outputs.
struct MemoryUse {
  int32_t op;
  MemoryKind kind;
  int32_t output;  // of kOutput and kCopy, else 0
};

struct MemoryChange {
  int64_t time_ns;
  int32_t device;
  MemoryUse use;
  int64_t bytes;  // allocated, or if negative freed; never 0
  int64_t held_bytes;
};

// A device's held bytes after a change.
struct HeldBytes {
  int64_t time_ns;
  int32_t device;
  int64_t bytes;
};

struct MemoryHolder {
  MemoryUse use;
  int64_t bytes;
};

// All of the step of one order of launches (StepTrace::launch_order).

// One entry per allocation and free that is not of 0 bytes, in their order. A device's persistent
// memory is one allocation at time 0.
std::vector<HeldBytes> MemoryTimeline(const Problem& problem, const std::vector<int32_t>& placement,
                                      int64_t order = 0);

// What `device` holds when its peak is first reached, largest first, then by op, kind and output.
std::vector<MemoryHolder> PeakHolders(const Problem& problem, const std::vector<int32_t>& placement,
                                      int32_t device, int64_t order = 0);

// [n] what each op itself holds, without copies, when the peak of its device is first reached.
std::vector<int64_t> OwnBytesAtPeaks(const Problem& problem, const std::vector<int32_t>& placement);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SIMULATOR_MEMORY_TRACE_H_
