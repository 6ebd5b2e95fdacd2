#include "engine/simulator/host_threads.h"

#include <cstddef>

#include "engine/problem/mix_bits.h"

namespace hplacer {

void HostThreads::Reset(int32_t num_hosts, int32_t threads_per_host, uint64_t seed) {
  threads_per_host_ = threads_per_host;
  seed_ = MixBits(seed);
  num_draws_ = 0;
  host_of_.clear();
  queue_of_.clear();
  num_waiting_ = 0;
  hosts_.resize(num_hosts);
  for (Host& host : hosts_) {
    host.free.clear();
    host.num_threads = 0;
    if (host.num_waiting > 0) {  // the last step was cut off
      for (std::deque<Task>& queue : host.queues) queue.clear();
    }
    host.num_waiting = 0;
  }
}

int32_t HostThreads::Begin(int32_t host_index, const Task& task, int32_t finder) {
  Host& host = hosts_[host_index];
  if (host.num_waiting == 0) {
    if (!host.free.empty()) {
      const int32_t thread = host.free.back();
      host.free.pop_back();
      return thread;
    }
    if (host.num_threads < threads_per_host_) {
      host_of_.push_back(host_index);
      queue_of_.push_back(host.num_threads++);
      return static_cast<int32_t>(host_of_.size()) - 1;
    }
  }
  host.queues.resize(threads_per_host_);
  if (finder != kNoThread) {
    host.queues[queue_of_[finder]].push_front(task);
  } else {
    host.queues[Draw()].push_back(task);
  }
  ++host.num_waiting;
  ++num_waiting_;
  return kNoThread;
}

void HostThreads::End(int32_t thread) { hosts_[host_of_[thread]].free.push_back(thread); }

size_t HostThreads::Draw() {
  return MixBits(seed_ ^ ++num_draws_) % static_cast<uint64_t>(threads_per_host_);
}

auto HostThreads::Take(Host* host, int32_t queue) -> Task {
  --host->num_waiting;
  --num_waiting_;
  std::deque<Task>& own = host->queues[queue];
  if (!own.empty()) {
    const Task task = own.front();
    own.pop_front();
    return task;
  }
  size_t other = Draw();
  while (host->queues[other].empty()) other = (other + 1) % host->queues.size();
  const Task task = host->queues[other].back();
  host->queues[other].pop_back();
  return task;
}

}  // namespace hplacer
