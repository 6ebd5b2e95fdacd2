#include "emulator/machine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "emulator/clock.h"

namespace hplacer::emulator {
namespace {

KindRates ReadRates(const nlohmann::json& kind) {
  KindRates rates;
  rates.name = kind.at("name");
  rates.type = kind.at("type");
  rates.flops_per_s = kind.at("flops_per_s").get<std::map<std::string, double>>();
  rates.memory_bytes_per_s = kind.at("memory_bytes_per_s");
  rates.launch_overhead_ns = kind.at("launch_overhead_ns");
  rates.executor_overhead_ns = kind.at("executor_overhead_ns");
  return rates;
}

}  // namespace

Machine& Machine::Get() {
  static auto* machine = [] {
    const char* path = getenv("HPLACER_EMULATION");
    if (path == nullptr) throw std::runtime_error("HPLACER_EMULATION names no file");
    try {
      return new Machine(path);
    } catch (const nlohmann::json::exception& error) {
      throw std::runtime_error(std::string(path) + ": " + error.what());
    }
  }();
  return *machine;
}

Machine::Machine(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error(path + ": cannot be read");
  const nlohmann::json document = nlohmann::json::parse(stream);
  kernels_file_ = document.at("kernels");
  limit_s_ = document.at("limit_s");
  if (!document.at("compute")) allocate_only_from_ = 1;
  for (const auto& found : document.at("devices")) {
    Device device;
    device.model = found.at("model");
    device.compute_capability = found.at("compute_capability");
    device.pci_bus_id = found.at("pci_bus_id");
    device.memory_bytes = found.at("memory_bytes");
    device.launch_ns = found.at("launch_ns");
    device.rates = ReadRates(found.at("kind"));
    devices_.push_back(device);
  }
  host_rates_ = ReadRates(document.at("host").at("kind"));
  slot_free_ns_.resize(document.at("host").at("slots").get<int>());
  launcher_free_ns_.resize(devices_.size());
  std::map<std::string, Channel*> by_name;
  const auto channel_named = [&](const std::string& name) {
    Channel*& channel = by_name[name];
    if (channel == nullptr) channel = channels_.emplace_back(new Channel).get();
    return channel;
  };
  for (const auto& link : document.at("links")) {
    links_[{link.at("src"), link.at("dst")}] = {channel_named(link.at("channel")),
                                                link.at("latency_ns"), link.at("bytes_per_s")};
  }
  const int num_devices = static_cast<int>(devices_.size());
  for (int from = kHost; from < num_devices; ++from) {
    for (int to = kHost; to < num_devices; ++to) {
      // A copy within a device reads and writes its memory.
      const KindRates& rates = from == kHost ? host_rates_ : devices_[from].rates;
      links_.try_emplace({from, to}, Link{channel_named("within " + std::to_string(from)), 0,
                                          rates.memory_bytes_per_s / 2});
    }
  }
}

std::pair<Channel*, int64_t> Machine::Copy(int from, int to, int64_t bytes) {
  const Link& link = links_.at({from, to});
  const double wire_ns = std::ceil(static_cast<double>(bytes) * 1e9 / link.bytes_per_s);
  return {link.channel, link.latency_ns + static_cast<int64_t>(wire_ns)};
}

std::optional<Cost> Machine::Find(const Costs& costs, const std::string& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = costs.find(key);
  return found == costs.end() ? std::nullopt : std::optional<Cost>(found->second);
}

std::optional<Cost> Machine::FindCost(bool on_host, const std::string& name) {
  return Find(by_name_[on_host], name);
}

std::optional<Cost> Machine::FindTypeCost(bool on_host, const std::string& type) {
  return Find(by_type_[on_host], type);
}

void Machine::SetCost(bool on_host, bool by_type, const std::string& key, Cost cost) {
  std::lock_guard<std::mutex> lock(mutex_);
  (by_type ? by_type_ : by_name_)[on_host][key] = cost;
}

void Machine::ClearCosts() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Costs* costs : {&by_name_[0], &by_name_[1], &by_type_[0], &by_type_[1]}) costs->clear();
}

bool Machine::Launch(int device, int64_t launch_ns) {
  if (launch_ns <= 0) return true;
  int64_t launched_ns;
  {
    const int64_t now_ns = Clock::Get().now_ns();
    std::lock_guard<std::mutex> lock(mutex_);
    launched_ns = std::max(now_ns, launcher_free_ns_[device]) + launch_ns;
    launcher_free_ns_[device] = launched_ns;
  }
  return Clock::Get().SleepUntil(launched_ns);
}

bool Machine::RunOnHost(int64_t run_ns, RecordPtr record) {
  if (run_ns <= 0) return true;
  int64_t end_ns;
  {
    const int64_t now_ns = Clock::Get().now_ns();
    std::lock_guard<std::mutex> lock(mutex_);
    const auto slot = std::min_element(slot_free_ns_.begin(), slot_free_ns_.end());
    const int64_t start_ns = std::max(now_ns, *slot);
    end_ns = *slot = start_ns + run_ns;
    if (record != nullptr) {
      record->enqueued_ns = now_ns;
      record->start_ns = start_ns;
      record->end_ns = end_ns;
    }
  }
  return Clock::Get().SleepUntil(end_ns);
}

void Machine::SetTracing(bool on) {
  std::lock_guard<std::mutex> lock(mutex_);
  is_tracing_ = on;
  records_.clear();
}

RecordPtr Machine::NewRecord(Record::Kind kind, int from, int to) {
  if (!is_tracing_) return nullptr;
  auto record = std::make_shared<Record>();
  record->kind = kind;
  record->from = from;
  record->to = to;
  std::lock_guard<std::mutex> lock(mutex_);
  records_.push_back(record);
  return record;
}

std::vector<Record> Machine::TakeRecords() {
  std::vector<RecordPtr> taken;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    taken.swap(records_);
  }
  std::vector<Record> records;
  Clock::Get().WithStreams([&](Streams&) {
    for (const RecordPtr& record : taken) records.push_back(*record);
  });
  return records;
}

}  // namespace hplacer::emulator
