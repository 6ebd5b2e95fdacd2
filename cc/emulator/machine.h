// The emulated machine: devices, the host's slots, links and channels, and what its kernels cost by
// name or type; and what of it has happened.
//
// It is read once from the file that HPLACER_EMULATION names, which Python writes
// (hplacer_optimizer/emulation/configuration.py). Devices are numbered from 0, the host is kHost.
#ifndef HPLACER_EMULATOR_MACHINE_H_
#define HPLACER_EMULATOR_MACHINE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/streams.h"
#include "tf/captured_step.h"

namespace hplacer::emulator {

struct Device {
  std::string model, compute_capability, pci_bus_id;
  int64_t memory_bytes = 0;
  int64_t launch_ns = 0;  // on the host, of a kernel
  KindRates rates;
};

struct Link {
  Channel* channel;
  int64_t latency_ns;
  double bytes_per_s;
};

// What an op takes: the host's thread launches it, then a device's stream runs it. Of an op on the
// host only the second counts, and it occupies one of the host's slots.
struct Cost {
  int64_t launch_ns = 0, run_ns = 0;
};

class Machine {
 public:
  // The process's. Raises std::runtime_error, if it is not known yet, for a file that cannot be
  // read.
  static Machine& Get();

  const std::vector<Device>& devices() const { return devices_; }
  const KindRates& host_rates() const { return host_rates_; }
  // Of the table of GPU kernels.
  const std::string& kernels_file() const { return kernels_file_; }

  // Real seconds after which a clock that cannot move stops.
  double limit_s() const { return limit_s_; }

  // Copies of so many bytes between two of the devices and the host. Ends that no link joins, as on
  // one device, have a channel without latency at the memory's rate.
  std::pair<Channel*, int64_t> Copy(int from, int to, int64_t bytes);

  // ---- costs ----

  // What was set. `on_host`: of an op on the host's device.
  std::optional<Cost> FindCost(bool on_host, const std::string& name);
  std::optional<Cost> FindTypeCost(bool on_host, const std::string& type);
  void SetCost(bool on_host, bool by_type, const std::string& key, Cost cost);
  void ClearCosts();

  // ---- modes ----

  // Kernels that read and write at least so many bytes of floating-point numbers only allocate
  // their outputs; negative: all compute.
  int64_t allocate_only_from() const { return allocate_only_from_; }
  void SetAllocateOnlyFrom(int64_t bytes) { allocate_only_from_ = bytes; }

  // ---- what the host does ----

  // Blocks the calling thread while it launches on a device, one launch at a time for each device.
  // False: the clock stopped.
  [[nodiscard]] bool Launch(int device, int64_t launch_ns);
  // Blocks the calling thread while it runs an op in one of the host's slots.
  [[nodiscard]] bool RunOnHost(int64_t run_ns, RecordPtr record);

  // ---- trace ----

  void SetTracing(bool on);
  // Null while nothing is traced.
  RecordPtr NewRecord(Record::Kind kind, int from, int to);
  std::vector<Record> TakeRecords();

 private:
  explicit Machine(const std::string& path);
  using Costs = std::unordered_map<std::string, Cost>;
  std::optional<Cost> Find(const Costs& costs, const std::string& key);

  std::vector<Device> devices_;
  KindRates host_rates_;
  std::string kernels_file_;
  double limit_s_ = 60;
  std::map<std::pair<int, int>, Link> links_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::atomic<int64_t> allocate_only_from_{-1};

  std::mutex mutex_;               // guards what follows
  Costs by_name_[2], by_type_[2];  // of devices, of the host
  std::vector<int64_t> launcher_free_ns_, slot_free_ns_;
  std::atomic<bool> is_tracing_{false};
  std::vector<RecordPtr> records_;
};

}  // namespace hplacer::emulator

#endif  // HPLACER_EMULATOR_MACHINE_H_
