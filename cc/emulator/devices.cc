// Devices that charge what they run: a PluggableDevice of type GPU for each emulated one, and the
// host's CPU. Their factories stand above TensorFlow's own.
#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "emulator/clock.h"
#include "emulator/kernel_costs.h"
#include "emulator/machine.h"
#include "emulator/registration.h"
#include "emulator/stream_executor.h"
#if HPLACER_TF_MINOR == 19
// TensorFlow 2.19 includes a header here that needs LLVM's, which its wheels leave out. One class
// of it is named.
#define XLA_STREAM_EXECUTOR_GPU_TMA_METADATA_H_
namespace stream_executor::gpu {
class TmaDescriptor {};
}  // namespace stream_executor::gpu
#endif
#include "tensorflow/core/common_runtime/device/device_id.h"
#include "tensorflow/core/common_runtime/device/device_id_manager.h"
#include "tensorflow/core/common_runtime/pluggable_device/pluggable_device.h"
#include "tensorflow/core/common_runtime/pluggable_device/pluggable_device_context.h"
#include "tensorflow/core/common_runtime/pluggable_device/pluggable_device_factory.h"
#include "tensorflow/core/common_runtime/pluggable_device/pluggable_device_process_state.h"
#include "tensorflow/core/common_runtime/process_state.h"
#include "tensorflow/core/common_runtime/threadpool_device.h"
#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/public/session_options.h"

namespace hplacer::emulator {
namespace {

using tensorflow::Allocator;
using tensorflow::Bytes;
using tensorflow::DeviceLocality;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::PlatformDeviceId;
using tensorflow::PluggableDeviceContext;
using tensorflow::SessionOptions;
using tensorflow::TfDeviceId;

constexpr int kGpuPriority = 221, kCpuPriority = 80;  // TensorFlow has 220 and 60 to 70

absl::Status Stopped() { return absl::DeadlineExceededError(Clock::Get().stopped()); }

// While a kernel computes in earnest.
class Computing {
 public:
  Computing() { Clock::Get().BeginComputing(); }
  ~Computing() { Clock::Get().EndComputing(); }
};

#if HPLACER_TF_MINOR >= 17 && HPLACER_TF_MINOR <= 20
// TensorFlow 2.17 to 2.20 run kernels on the last stream that they make for a device, which they
// made for copies to other devices: so a copy does not wait for kernels, and 2.17 fails to try.
constexpr bool kIsComputeLast = true;
using CopyStreams = absl::InlinedVector<stream_executor::Stream*, 4>;
template <auto kMember>
struct OpenedDeviceContext {
  friend CopyStreams& CopyStreamsOf(PluggableDeviceContext* context) { return context->*kMember; }
};
CopyStreams& CopyStreamsOf(PluggableDeviceContext* context);
template struct OpenedDeviceContext<&PluggableDeviceContext::device_to_device_stream_>;

absl::Status GiveCopiesAStream(PluggableDeviceContext* context, stream_executor::Stream** stream) {
  if (*stream == nullptr) {
    auto made = context->stream()->parent()->CreateStream();
    if (!made.ok()) return made.status();
    *stream = made->release();  // until the process ends, as TensorFlow's own
  }
  for (stream_executor::Stream*& copies : CopyStreamsOf(context)) copies = *stream;
  return absl::OkStatus();
}
#else
constexpr bool kIsComputeLast = false;
absl::Status GiveCopiesAStream(PluggableDeviceContext*, stream_executor::Stream**) {
  return absl::OkStatus();
}
#endif

// Of one of TensorFlow's devices. A process makes them once, for all its sessions.
struct DeviceStreams {
  Stream* compute = nullptr;
  stream_executor::Stream* copies = nullptr;  // to other devices, where TensorFlow has none
};

class Gpu : public tensorflow::PluggableDevice {
 public:
  // `number`: of the emulated device, which is more than one of TensorFlow's if it was divided.
  Gpu(int number, TfDeviceId id, const SessionOptions& options, const std::string& name,
      Bytes memory, const DeviceLocality& locality, const std::string& description,
      Allocator* allocator)
      : PluggableDevice(options, name, "GPU", kPlatform, memory, locality, id, description,
                        allocator, tensorflow::ProcessState::singleton()->GetCPUAllocator(0),
                        /*sync_every_op=*/false),
        number_(number) {}

  absl::Status Start(const SessionOptions& options, DeviceStreams* streams) {
    const int before = NumStreams(number_);
    if (absl::Status status = Init(options); !status.ok()) return status;
    if (streams->compute == nullptr) {
      streams->compute = StreamOf(number_, kIsComputeLast ? NumStreams(number_) - 1 : before);
    }
    compute_ = streams->compute;
    auto* context = tensorflow_accelerator_device_info()->default_context;
    return GiveCopiesAStream(static_cast<PluggableDeviceContext*>(context), &streams->copies);
  }

  void Compute(OpKernel* kernel, OpKernelContext* context) override {
    {
      Computing computing;
      PluggableDevice::Compute(kernel, context);
    }
    if (!context->status().ok()) return;
    const Cost cost = CostOf(number_, *kernel, context);
    const bool is_launched = Machine::Get().Launch(number_, cost.launch_ns);
    if (!is_launched || Clock::Get().has_stopped()) {
      context->SetStatus(Stopped());
      return;
    }
    if (cost.run_ns == 0) return;
    RecordPtr record = Machine::Get().NewRecord(Record::kKernel, number_, number_);
    if (record != nullptr) {
      record->name = kernel->name();
      record->type = kernel->type_string();
    }
    Clock::Get().WithStreams(
        [&](Streams& streams) { streams.AddKernel(compute_, cost.run_ns, std::move(record)); });
  }

 private:
  const int number_;
  Stream* compute_ = nullptr;
};

// The memory that a session may have of a device: as TensorFlow's options say.
struct Share {
  int device;
  int64_t bytes;
};

std::vector<Share> SharesOf(const tensorflow::GPUOptions& options, int wanted) {
  const auto& devices = Machine::Get().devices();
  std::vector<int> visible;
  for (const absl::string_view part :
       absl::StrSplit(options.visible_device_list(), ',', absl::SkipEmpty())) {
    int number = -1;
    if (absl::SimpleAtoi(part, &number) && number >= 0 &&
        number < static_cast<int>(devices.size())) {
      visible.push_back(number);
    }
  }
  if (options.visible_device_list().empty()) {
    for (size_t i = 0; i < devices.size(); ++i) visible.push_back(static_cast<int>(i));
  }
  const double fraction = options.per_process_gpu_memory_fraction();
  const auto& divided = options.experimental().virtual_devices();
  std::vector<Share> shares;
  for (size_t i = 0; i < visible.size() && static_cast<int>(i) < wanted; ++i) {
    const int64_t bytes = devices[visible[i]].memory_bytes;
    const bool is_divided =
        static_cast<int>(i) < divided.size() && divided[i].memory_limit_mb_size() > 0;
    if (is_divided) {
      for (const float mb : divided[i].memory_limit_mb()) {
        shares.push_back({visible[i], static_cast<int64_t>(mb * (1 << 20))});
      }
    } else {
      const double part = fraction > 0 ? static_cast<double>(bytes) * fraction : bytes;
      shares.push_back({visible[i], static_cast<int64_t>(part)});
    }
  }
  return shares;
}

class GpuFactory : public tensorflow::PluggableDeviceFactory {
 public:
  GpuFactory() : PluggableDeviceFactory("GPU", kPlatform) {}

  absl::Status GetDeviceDetails(int number,
                                std::unordered_map<std::string, std::string>* details) override {
    const Device& device = Machine::Get().devices()[number];
    (*details)["device_name"] = device.model;
    (*details)["compute_capability"] = device.compute_capability;
    return absl::OkStatus();
  }

  absl::Status CreateDevices(const SessionOptions& options, const std::string& prefix,
                             std::vector<std::unique_ptr<tensorflow::Device>>* made) override {
    int wanted = static_cast<int>(Machine::Get().devices().size());
    const auto& counts = options.config.device_count();
    if (const auto count = counts.find("GPU"); count != counts.end()) wanted = count->second;
    const tensorflow::GPUOptions& gpu_options = options.config.gpu_options();
    int number = 0;
    for (const Share& share : SharesOf(gpu_options, wanted)) {
      const Device& device = Machine::Get().devices()[share.device];
      const TfDeviceId id(number);
      absl::Status status = tensorflow::DeviceIdManager::InsertTfPlatformDeviceIdPair(
          tensorflow::DeviceType("GPU"), id, PlatformDeviceId(share.device));
      if (!status.ok()) return status;
      Allocator* allocator = tensorflow::PluggableDeviceProcessState::singleton("GPU", kPlatform)
                                 ->GetPluggableDeviceAllocator(gpu_options, id, share.bytes);
      DeviceLocality locality;
      locality.set_bus_id(1);
      const std::string description = absl::StrCat(
          "device: ", share.device, ", name: ", device.model, ", pci bus id: ", device.pci_bus_id,
          ", compute capability: ", device.compute_capability);
      auto gpu = std::make_unique<Gpu>(share.device, id, options,
                                       absl::StrCat(prefix, "/device:GPU:", number),
                                       Bytes(share.bytes), locality, description, allocator);
      if (status = gpu->Start(options, &streams_[number]); !status.ok()) return status;
      made->push_back(std::move(gpu));
      ++number;
    }
    return absl::OkStatus();
  }

 private:
  std::unordered_map<int, DeviceStreams> streams_;  // by TensorFlow's number
};

class Cpu : public tensorflow::ThreadPoolDevice {
 public:
  using ThreadPoolDevice::ThreadPoolDevice;

  void Compute(OpKernel* kernel, OpKernelContext* context) override {
    ThreadWatch::Touch();
    {
      Computing computing;
      ThreadPoolDevice::Compute(kernel, context);
    }
    if (!context->status().ok()) return;
    const int64_t run_ns = CostOnHost(*kernel, context);
    if (run_ns == 0) return;
    RecordPtr record = Machine::Get().NewRecord(Record::kHostOp, kHost, kHost);
    if (record != nullptr) {
      record->name = kernel->name();
      record->type = kernel->type_string();
    }
    if (!Machine::Get().RunOnHost(run_ns, std::move(record))) context->SetStatus(Stopped());
  }

 private:
  // Of what a session runs, an estimate if nothing was set; of what functions run, only what was
  // set. Input pipelines are functions, too, and take no virtual time.
  static int64_t CostOnHost(const OpKernel& kernel, OpKernelContext* context) {
    if (context->step_id() >= 0) return CostOf(kHost, kernel, context).run_ns;
    return Machine::Get().FindCost(true, kernel.name()).value_or(Cost()).run_ns;
  }
};

class CpuFactory : public tensorflow::DeviceFactory {
 public:
  absl::Status ListPhysicalDevices(std::vector<std::string>* devices) override {
    devices->push_back("/physical_device:CPU:0");
    return absl::OkStatus();
  }

  absl::Status CreateDevices(const SessionOptions& options, const std::string& prefix,
                             std::vector<std::unique_ptr<tensorflow::Device>>* made) override {
    int wanted = 1;
    const auto& counts = options.config.device_count();
    if (const auto count = counts.find("CPU"); count != counts.end()) wanted = count->second;
    for (int i = 0; i < wanted; ++i) {
      made->push_back(std::make_unique<Cpu>(
          options, absl::StrCat(prefix, "/device:CPU:", i), Bytes(256 << 20), DeviceLocality(),
          tensorflow::ProcessState::singleton()->GetCPUAllocator(0)));
    }
    return absl::OkStatus();
  }
};

}  // namespace

void RegisterDevices() {
  tensorflow::DeviceFactory::Register("GPU", std::make_unique<GpuFactory>(), kGpuPriority,
                                      /*is_pluggable_device=*/true);
  tensorflow::DeviceFactory::Register("CPU", std::make_unique<CpuFactory>(), kCpuPriority,
                                      /*is_pluggable_device=*/false);
}

}  // namespace hplacer::emulator
