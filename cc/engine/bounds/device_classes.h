// Devices that no unit tells apart, and what each unit can still choose between.
//
// Input is a problem. Two devices are of one class if they have the same kind and slots and are
// candidates of the same units, so that a unit's candidates are whole classes. A device without
// room for a unit's certain bytes is no candidate of it here: while an op runs, its device holds
// the persistent bytes of the op's unit, the op's temp and those of its outputs that are no alias,
// hence a placement that puts the unit there has a peak above the memory.
//
// `MinTransferNs(a, b, ...)` is the fastest that a device of class a can reach another one of class
// b. Transfers from one op to one device use one link, hence one channel, one after the other:
// together they last at least transfers * latency + ceil(all bytes / rate), the best such link. If
// an end launches, only those that are not empty count: the others need no channel. The first has
// to be sent before that, and the last to be received; only of a single transfer is it known how
// many bytes these have.

#ifndef HPLACER_ENGINE_BOUNDS_DEVICE_CLASSES_H_
#define HPLACER_ENGINE_BOUNDS_DEVICE_CLASSES_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

class DeviceClasses {
 public:
  explicit DeviceClasses(const Problem& problem);

  int32_t num_classes() const { return static_cast<int32_t>(first_device_.size()); }
  int32_t OfDevice(int32_t device) const { return of_device_[device]; }
  int32_t Size(int32_t c) const { return size_[c]; }
  int32_t Slots(int32_t c) const { return problem_.spec().device_slots[first_device_[c]]; }
  // What all ops that run at one time are worth at most, if one on class c is worth value[c] >= 0:
  // in the slots of a pool, whichever class of its devices is worth most.
  __int128 SlotsWorth(const std::vector<int64_t>& value) const;
  int32_t Kind(int32_t c) const { return problem_.spec().device_kind[first_device_[c]]; }
  // Of all its devices together, at most kNever.
  int64_t MemoryBytes(int32_t c) const { return memory_bytes_[c]; }
  int64_t CostNs(int32_t op, int32_t c) const { return problem_.CostNs(op, first_device_[c]); }

  bool Allows(int32_t unit, int32_t c) const {
    return allows_[static_cast<int64_t>(unit) * num_classes() + c];
  }
  bool AllowsAny(int32_t unit) const;

  // The sum of its ops' costs on a class that it allows.
  int64_t LoadNs(int32_t unit, int32_t c) const {
    return load_ns_[static_cast<int64_t>(unit) * num_classes() + c];
  }
  // What the unit's device holds at least, at some moment.
  int64_t CertainBytes(int32_t unit) const { return certain_bytes_[unit]; }
  int64_t PersistentBytes(int32_t unit) const { return persistent_bytes_[unit]; }

  // Of so many transfers, of which `filled` have bytes; kNever without a link.
  int64_t MinTransferNs(int32_t src, int32_t dst, int32_t transfers, int32_t filled,
                        int64_t bytes) const;

 private:
  void SumBytes();
  void FindClasses();
  void SumLoads();
  void FindLinks();

  const Problem& problem_;
  std::vector<int32_t> of_device_, first_device_, size_;
  std::vector<int64_t> memory_bytes_;                      // [classes]
  std::vector<uint8_t> allows_;                            // [U * classes]
  std::vector<int64_t> load_ns_;                           // [U * classes]
  std::vector<int64_t> certain_bytes_, persistent_bytes_;  // [U]
  std::vector<std::vector<int32_t>> fastest_links_;        // [classes * classes] undominated
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_BOUNDS_DEVICE_CLASSES_H_
