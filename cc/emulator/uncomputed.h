// Device memory that holds nothing, because the kernel that should have written it only allocated
// it.
//
// Copies of it copy nothing. So what is computed (integers, conditions, what lies on the host)
// stays right, and what is not takes neither time nor memory. Host memory is never noted: whoever
// writes there next, such as a kernel of the CPU, would not tell.
#ifndef HPLACER_EMULATOR_UNCOMPUTED_H_
#define HPLACER_EMULATOR_UNCOMPUTED_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_set>

namespace hplacer::emulator {

class Uncomputed {
 public:
  static Uncomputed& Get() {
    static auto* uncomputed = new Uncomputed;
    return *uncomputed;
  }

  // What begins at this address was only allocated, or was written.
  void Set(const void* address, bool is_uncomputed) {
    if (!is_uncomputed && is_empty_) return;
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_uncomputed) {
      is_empty_ = false;
      begins_.insert(address);
    } else {
      begins_.erase(address);
    }
  }

  // For a copy to the host: whether there is nothing to copy.
  bool Has(const void* from) {
    if (is_empty_) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    return begins_.count(from) > 0;
  }

  // The same for a copy between devices. The destination is then what the source is.
  bool Spread(const void* from, const void* to, uint64_t size) {
    if (is_empty_) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    const bool is_uncomputed = size > 0 && begins_.count(from) > 0;
    if (is_uncomputed) {
      begins_.insert(to);
    } else {
      begins_.erase(to);
    }
    return is_uncomputed;
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> is_empty_{true};
  std::unordered_set<const void*> begins_;
};

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_UNCOMPUTED_H_
