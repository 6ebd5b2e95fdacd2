// The threads of the hosts in a simulated step: which of them begins with what is found to do.
//
// As in TensorFlow's executor over Eigen's pool (NonBlockingThreadPool.h): a host has so many
// threads, each with a queue of tasks. What finds no free thread waits in front of the queue of the
// thread that found it, or at the end of a drawn one. A free thread takes the first of its own
// queue, or else the last of another one: of the next that has any, from a drawn one on. The draws
// depend on the seed alone.

#ifndef HPLACER_ENGINE_SIMULATOR_HOST_THREADS_H_
#define HPLACER_ENGINE_SIMULATOR_HOST_THREADS_H_

#include <cstdint>
#include <deque>
#include <vector>

namespace hplacer {

class HostThreads {
 public:
  static constexpr int32_t kNoThread = -1;
  // What a thread begins with.
  struct Task {
    int32_t op;
    bool is_new;  // by a transfer
  };

  void Reset(int32_t num_hosts, int32_t threads_per_host, uint64_t seed);

  // The thread that begins with the task now, or kNoThread: it waits. `finder`: the thread that
  // found it, or kNoThread. Threads have numbers from 0 on, in the order in which they first begin.
  int32_t Begin(int32_t host, const Task& task, int32_t finder);
  bool has_drawn() const { return num_draws_ > 0; }  // since the reset
  // The thread is free.
  void End(int32_t thread);

  // Free threads take what waits: `begin(thread, task)` for each. Whether there was any.
  template <typename BeginTask>
  bool TakeWaiting(BeginTask begin) {
    if (num_waiting_ == 0) return false;
    const int32_t before = num_waiting_;
    for (Host& host : hosts_) {
      while (host.num_waiting > 0 && !host.free.empty()) {
        const int32_t thread = host.free.back();
        host.free.pop_back();
        begin(thread, Take(&host, queue_of_[thread]));
      }
    }
    return num_waiting_ < before;
  }

 private:
  struct Host {
    std::vector<int32_t> free;             // threads
    int32_t num_threads = 0;               // that have begun with something
    int32_t num_waiting = 0;               // tasks in queues
    std::vector<std::deque<Task>> queues;  // none before the first task waits
  };

  size_t Draw();
  Task Take(Host* host, int32_t queue);

  int32_t threads_per_host_ = 0;
  uint64_t seed_ = 0, num_draws_ = 0;
  std::vector<Host> hosts_;
  std::vector<int32_t> host_of_, queue_of_;  // by thread
  int32_t num_waiting_ = 0;                  // of all hosts
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SIMULATOR_HOST_THREADS_H_
