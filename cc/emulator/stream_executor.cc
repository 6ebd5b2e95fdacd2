#include "emulator/stream_executor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "emulator/clock.h"
#include "emulator/machine.h"
#include "emulator/registration.h"
#include "emulator/swapping.h"
#include "emulator/uncomputed.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/tf_status.h"

using hplacer::emulator::MarkPtr;
using hplacer::emulator::Stream;

struct SP_Stream_st {
  Stream* stream;
};
struct SP_Event_st {
  MarkPtr mark;  // of the last record; null: there was none
};
struct SP_Timer_st {
  MarkPtr start, stop;
};

namespace hplacer::emulator {
namespace {

// What the functions below share. Never destroyed: TensorFlow's threads outlive static objects.
struct State {
  std::mutex mutex;
  std::vector<std::vector<Stream*>> streams;               // by device
  std::map<const char*, std::pair<uint64_t, int>> memory;  // by address: size, device
};
State& Shared() {
  static auto* state = new State;
  return *state;
}

// Always: after the clock has stopped, too. Then kernels fail, which TensorFlow is made for; of
// streams it does not expect it.
void Succeed(TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }

// ---- memory ----

// TensorFlow leaves a part of a device to the system: 255 MiB of less than 2 GiB, else 6%, and 300
// MiB at least. This is the size of a device of which `bytes` are left.
int64_t SizeBeforeReserve(int64_t bytes) {
  constexpr int64_t kMiB = 1 << 20;
  if (bytes + 255 * kMiB < 2048 * kMiB) return bytes + 255 * kMiB;
  return std::max(bytes + 300 * kMiB, static_cast<int64_t>(static_cast<double>(bytes) / 0.94) + 1);
}

void Allocate(const SP_Device* device, uint64_t size, int64_t, SP_DeviceMemoryBase* memory) {
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->payload = 0;
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    memory->opaque = nullptr;
    memory->size = 0;
    return;
  }
  memory->opaque = address;
  memory->size = size;
  std::lock_guard<std::mutex> lock(Shared().mutex);
  Shared().memory[static_cast<char*>(address)] = {size, device->ordinal};
}

void Deallocate(const SP_Device*, SP_DeviceMemoryBase* memory) {
  if (memory->opaque == nullptr) return;
  std::lock_guard<std::mutex> lock(Shared().mutex);
  const auto found = Shared().memory.find(static_cast<char*>(memory->opaque));
  if (found == Shared().memory.end()) return;
  munmap(memory->opaque, found->second.first);
  Shared().memory.erase(found);
}

void* AllocateOnHost(const SP_Device*, uint64_t size) {
  void* address = nullptr;
  return posix_memalign(&address, 64, size) == 0 ? address : nullptr;
}

void DeallocateOnHost(const SP_Device*, void* address) { free(address); }

TF_Bool AllocatorStats(const SP_Device*, SP_AllocatorStats*) { return false; }

TF_Bool MemoryUsage(const SP_Device* device, int64_t* free_bytes, int64_t* total_bytes) {
  *total_bytes = SizeBeforeReserve(Machine::Get().devices()[device->ordinal].memory_bytes);
  *free_bytes = *total_bytes;
  return true;
}

// The device whose memory an address is in.
int OwnerOf(const void* address) {
  std::lock_guard<std::mutex> lock(Shared().mutex);
  auto after = Shared().memory.upper_bound(static_cast<const char*>(address));
  if (after == Shared().memory.begin()) return kHost;
  const auto& [begin, owned] = *--after;
  return static_cast<const char*>(address) < begin + owned.first ? owned.second : kHost;
}

// ---- streams ----

void CreateStream(const SP_Device* device, SP_Stream* stream, TF_Status* status) {
  Stream* made = Clock::Get().WithStreams([&](Streams& all) { return all.Add(device->ordinal); });
  std::lock_guard<std::mutex> lock(Shared().mutex);
  Shared().streams.resize(Machine::Get().devices().size());
  Shared().streams[device->ordinal].push_back(made);
  *stream = new SP_Stream_st{made};
  Succeed(status);
}

void DestroyStream(const SP_Device*, SP_Stream stream) { delete stream; }

void CreateStreamDependency(const SP_Device*, SP_Stream dependent, SP_Stream other,
                            TF_Status* status) {
  Clock::Get().WithStreams(
      [&](Streams& all) { all.AddWait(dependent->stream, all.AddMark(other->stream, false)); });
  Succeed(status);
}

void GetStreamStatus(const SP_Device*, SP_Stream, TF_Status* status) { Succeed(status); }

// ---- events ----

void CreateEvent(const SP_Device*, SP_Event* event, TF_Status* status) {
  *event = new SP_Event_st;
  Succeed(status);
}

void DestroyEvent(const SP_Device*, SP_Event event) { delete event; }

// After the clock has stopped all is complete: TensorFlow ends the process if it finds an error
// here.
SE_EventStatus GetEventStatus(const SP_Device*, SP_Event event) {
  const bool is_done = Clock::Get().WithPolling(
      [&](const Streams&) { return event->mark == nullptr || event->mark->is_done(); });
  return is_done || !Clock::Get().stopped().empty() ? SE_EVENT_COMPLETE : SE_EVENT_PENDING;
}

void RecordEvent(const SP_Device*, SP_Stream stream, SP_Event event, TF_Status* status) {
  Clock::Get().WithStreams([&](Streams& all) { event->mark = all.AddMark(stream->stream, true); });
  Succeed(status);
}

void WaitForEvent(const SP_Device* const, SP_Stream stream, SP_Event event,
                  TF_Status* const status) {
  Clock::Get().WithStreams([&](Streams& all) { all.AddWait(stream->stream, event->mark); });
  Succeed(status);
}

void BlockHostForEvent(const SP_Device*, SP_Event event, TF_Status* status) {
  (void)Clock::Get().WaitFor(event->mark);
  Succeed(status);
}

void BlockHostUntilDone(const SP_Device*, SP_Stream stream, TF_Status* status) {
  (void)Clock::Get().WaitFor(
      Clock::Get().WithStreams([&](Streams& all) { return all.AddMark(stream->stream, true); }));
  Succeed(status);
}

void WaitForStreamsOf(int device) {
  for (int i = 0; i < NumStreams(device); ++i) {
    (void)Clock::Get().WaitFor(Clock::Get().WithStreams(
        [&](Streams& all) { return all.AddMark(StreamOf(device, i), true); }));
  }
}

void SynchronizeAllActivity(const SP_Device* device, TF_Status* status) {
  WaitForStreamsOf(device->ordinal);
  Succeed(status);
}

TF_Bool CallHost(const SP_Device*, SP_Stream stream, SE_StatusCallbackFn function, void* argument) {
  Clock::Get().WithStreams([&](Streams& all) {
    all.AddCallback(stream->stream, [function, argument] {
      TF_Status* status = TF_NewStatus();
      function(argument, status);
      TF_DeleteStatus(status);
    });
  });
  return true;
}

// ---- timers ----

void CreateTimer(const SP_Device*, SP_Timer* timer, TF_Status* status) {
  *timer = new SP_Timer_st;
  Succeed(status);
}

void DestroyTimer(const SP_Device*, SP_Timer timer) { delete timer; }

void StartTimer(const SP_Device*, SP_Stream stream, SP_Timer timer, TF_Status* status) {
  Clock::Get().WithStreams([&](Streams& all) { timer->start = all.AddMark(stream->stream, true); });
  Succeed(status);
}

void StopTimer(const SP_Device*, SP_Stream stream, SP_Timer timer, TF_Status* status) {
  Clock::Get().WithStreams([&](Streams& all) { timer->stop = all.AddMark(stream->stream, true); });
  Succeed(status);
}

uint64_t Nanoseconds(SP_Timer timer) {
  if (!Clock::Get().WaitFor(timer->stop)) return 0;
  return timer->stop->done_ns - timer->start->done_ns;
}

// ---- copies ----

void MoveToHost(void* to, const void* from, uint64_t size) {
  if (!Uncomputed::Get().Has(from)) memcpy(to, from, size);
}

void MoveFromHost(void* to, const void* from, uint64_t size) {
  Uncomputed::Get().Set(to, /*is_uncomputed=*/false);
  memcpy(to, from, size);
}

void MoveToDevice(void* to, const void* from, uint64_t size) {
  if (!Uncomputed::Get().Spread(from, to, size)) memcpy(to, from, size);
}

MarkPtr AddCopy(Stream* stream, int from, int to, uint64_t size) {
  const auto [channel, duration_ns] = Machine::Get().Copy(from, to, static_cast<int64_t>(size));
  RecordPtr record = Machine::Get().NewRecord(Record::kCopy, from, to);
  if (record != nullptr) record->bytes = static_cast<int64_t>(size);
  return Clock::Get().WithStreams([&, channel = channel, duration_ns = duration_ns](Streams& all) {
    all.AddCopy(stream, channel, duration_ns, std::move(record));
    return all.AddMark(stream, true);
  });
}

void CopyToHost(const SP_Device* device, SP_Stream stream, void* to,
                const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* status) {
  MoveToHost(to, from->opaque, size);
  AddCopy(stream->stream, device->ordinal, kHost, size);
  Succeed(status);
}

void CopyFromHost(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to,
                  const void* from, uint64_t size, TF_Status* status) {
  MoveFromHost(to->opaque, from, size);
  AddCopy(stream->stream, kHost, device->ordinal, size);
  Succeed(status);
}

void CopyToDevice(const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* to,
                  const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* status) {
  MoveToDevice(to->opaque, from->opaque, size);
  AddCopy(stream->stream, OwnerOf(from->opaque), OwnerOf(to->opaque), size);
  Succeed(status);
}

// A copy that the host waits for is on a stream of its own, as it waits for no other.
void CopyNow(const SP_Device* device, int from, int to, uint64_t size, TF_Status* status) {
  Stream* stream = Clock::Get().WithStreams([&](Streams& all) { return all.Add(device->ordinal); });
  (void)Clock::Get().WaitFor(AddCopy(stream, from, to, size));
  Clock::Get().WithStreams([&](Streams& all) {
    if (stream->is_idle()) all.Remove(stream);
  });
  Succeed(status);
}

void CopyToHostNow(const SP_Device* device, void* to, const SP_DeviceMemoryBase* from,
                   uint64_t size, TF_Status* status) {
  MoveToHost(to, from->opaque, size);
  CopyNow(device, device->ordinal, kHost, size, status);
}

void CopyFromHostNow(const SP_Device* device, SP_DeviceMemoryBase* to, const void* from,
                     uint64_t size, TF_Status* status) {
  MoveFromHost(to->opaque, from, size);
  CopyNow(device, kHost, device->ordinal, size, status);
}

void CopyToDeviceNow(const SP_Device* device, SP_DeviceMemoryBase* to,
                     const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* status) {
  MoveToDevice(to->opaque, from->opaque, size);
  CopyNow(device, OwnerOf(from->opaque), OwnerOf(to->opaque), size, status);
}

// Writes memory at its rate, as a kernel on the stream.
void AddFill(const SP_Device* device, SP_Stream stream, uint64_t size, TF_Status* status) {
  const double rate = Machine::Get().devices()[device->ordinal].rates.memory_bytes_per_s;
  const auto duration_ns = static_cast<int64_t>(static_cast<double>(size) * 1e9 / rate);
  Clock::Get().WithStreams(
      [&](Streams& all) { all.AddKernel(stream->stream, duration_ns, nullptr); });
  Succeed(status);
}

void FillBytes(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* memory,
               uint8_t value, uint64_t size, TF_Status* status) {
  Uncomputed::Get().Set(memory->opaque, /*is_uncomputed=*/false);
  memset(memory->opaque, value, size);
  AddFill(device, stream, size, status);
}

void FillZeros(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* memory,
               uint64_t size, TF_Status* status) {
  FillBytes(device, stream, memory, 0, size, status);
}

void FillWords(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* memory,
               uint32_t value, uint64_t size, TF_Status* status) {
  Uncomputed::Get().Set(memory->opaque, /*is_uncomputed=*/false);
  std::fill_n(static_cast<uint32_t*>(memory->opaque), size / sizeof value, value);
  AddFill(device, stream, size, status);
}

// ---- platform ----

void GetDeviceCount(const SP_Platform*, int* count, TF_Status* status) {
  *count = static_cast<int>(Machine::Get().devices().size());
  TF_SetStatus(status, TF_OK, "");
}

void CreateDevice(const SP_Platform*, SE_CreateDeviceParams* params, TF_Status* status) {
  SP_Device* device = params->device;
  device->struct_size = SP_DEVICE_STRUCT_SIZE;
  device->ordinal = static_cast<int32_t>(params->ordinal);
  device->device_handle = nullptr;
  device->hardware_name = "Emulated GPU";
  device->device_vendor = "hplacer";
  device->pci_bus_id = Machine::Get().devices()[params->ordinal].pci_bus_id.c_str();
  TF_SetStatus(status, TF_OK, "");
}

void DestroyDevice(const SP_Platform*, SP_Device*) {}

void CreateDeviceFunctions(const SP_Platform*, SE_CreateDeviceFnsParams* params,
                           TF_Status* status) {
  SP_DeviceFns* functions = params->device_fns;
  functions->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
  functions->get_numa_node = [](const SP_Device*) -> int32_t { return 0; };
  functions->get_memory_bandwidth = [](const SP_Device*) -> int64_t { return -1; };
  functions->get_gflops = [](const SP_Device*) -> double { return -1; };
  TF_SetStatus(status, TF_OK, "");
}

void DestroyDeviceFunctions(const SP_Platform*, SP_DeviceFns*) {}

void CreateStreamExecutor(const SP_Platform*, SE_CreateStreamExecutorParams* params,
                          TF_Status* status) {
  SP_StreamExecutor* executor = params->stream_executor;
  executor->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  executor->allocate = Allocate;
  executor->deallocate = Deallocate;
  executor->host_memory_allocate = AllocateOnHost;
  executor->host_memory_deallocate = DeallocateOnHost;
  executor->get_allocator_stats = AllocatorStats;
  executor->device_memory_usage = MemoryUsage;
  executor->create_stream = CreateStream;
  executor->destroy_stream = DestroyStream;
  executor->create_stream_dependency = CreateStreamDependency;
  executor->get_stream_status = GetStreamStatus;
  executor->create_event = CreateEvent;
  executor->destroy_event = DestroyEvent;
  executor->get_event_status = GetEventStatus;
  executor->record_event = RecordEvent;
  executor->wait_for_event = WaitForEvent;
  executor->create_timer = CreateTimer;
  executor->destroy_timer = DestroyTimer;
  executor->start_timer = StartTimer;
  executor->stop_timer = StopTimer;
  executor->memcpy_dtoh = CopyToHost;
  executor->memcpy_htod = CopyFromHost;
  executor->memcpy_dtod = CopyToDevice;
  executor->sync_memcpy_dtoh = CopyToHostNow;
  executor->sync_memcpy_htod = CopyFromHostNow;
  executor->sync_memcpy_dtod = CopyToDeviceNow;
  executor->block_host_for_event = BlockHostForEvent;
  executor->block_host_until_done = BlockHostUntilDone;
  executor->synchronize_all_activity = SynchronizeAllActivity;
  executor->mem_zero = FillZeros;
  executor->memset = FillBytes;
  executor->memset32 = FillWords;
  executor->host_callback = CallHost;
  TF_SetStatus(status, TF_OK, "");
}

void DestroyStreamExecutor(const SP_Platform*, SP_StreamExecutor*) {}

void CreateTimerFunctions(const SP_Platform*, SP_TimerFns* functions, TF_Status* status) {
  functions->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
  functions->nanoseconds = Nanoseconds;
  TF_SetStatus(status, TF_OK, "");
}

void DestroyTimerFunctions(const SP_Platform*, SP_TimerFns*) {}
void DestroyPlatform(SP_Platform*) {}
void DestroyPlatformFunctions(SP_PlatformFns*) {}

// TensorFlow's allocator keeps 8 bytes per 256 of a region. It takes large memory as it needs it.
constexpr int64_t kLargeBytes = int64_t{4} << 30;

}  // namespace

int NumStreams(int device) {
  std::lock_guard<std::mutex> lock(Shared().mutex);
  Shared().streams.resize(Machine::Get().devices().size());
  return static_cast<int>(Shared().streams[device].size());
}

Stream* StreamOf(int device, int number) {
  std::lock_guard<std::mutex> lock(Shared().mutex);
  return Shared().streams[device][number];
}

bool WaitForDevices() {
  const int num_devices = static_cast<int>(Machine::Get().devices().size());
  for (int device = 0; device < num_devices; ++device) WaitForStreamsOf(device);
  return Clock::Get().stopped().empty();
}

}  // namespace hplacer::emulator

// What TensorFlow looks up in a library of devices.
extern "C" __attribute__((visibility("default"))) void SE_InitPlugin(
    SE_PlatformRegistrationParams* params, TF_Status* status) {
  using namespace hplacer::emulator;  // NOLINT
  try {
    Machine::Get();
  } catch (const std::exception& error) {
    TF_SetStatus(status, TF_INVALID_ARGUMENT, error.what());
    return;
  }
  Clock::Get().SetLimit(Machine::Get().limit_s());
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform->name = kPlatform;
  params->platform->type = "GPU";
  params->platform->supports_unified_memory = false;
  params->platform->use_bfc_allocator = true;
  const auto& devices = Machine::Get().devices();
  params->platform->force_memory_growth =
      std::any_of(devices.begin(), devices.end(),
                  [](const Device& device) { return device.memory_bytes > kLargeBytes; });
  SP_PlatformFns* functions = params->platform_fns;
  functions->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  functions->get_device_count = GetDeviceCount;
  functions->create_device = CreateDevice;
  functions->destroy_device = DestroyDevice;
  functions->create_device_fns = CreateDeviceFunctions;
  functions->destroy_device_fns = DestroyDeviceFunctions;
  functions->create_stream_executor = CreateStreamExecutor;
  functions->destroy_stream_executor = DestroyStreamExecutor;
  functions->create_timer_fns = CreateTimerFunctions;
  functions->destroy_timer_fns = DestroyTimerFunctions;
  params->destroy_platform = DestroyPlatform;
  params->destroy_platform_fns = DestroyPlatformFunctions;
  TF_SetStatus(status, TF_OK, "");
}

extern "C" __attribute__((visibility("default"))) void TF_InitKernel() {
  hplacer::emulator::RegisterKernels();
  hplacer::emulator::RegisterSwapping();
  hplacer::emulator::RegisterDevices();
}
