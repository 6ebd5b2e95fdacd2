// Threads that run the same function on the items of many short batches.
//
// `ForEach(count, run)` calls run(worker, item) once for every item 0..count-1 and returns when all
// are done. The calling thread is worker 0. Which worker gets which item is left to chance, so that
// results must not depend on it. An exception of `run` ends the batch: no worker takes another
// item, and once all have stopped, ForEach throws the first exception to the caller.

#ifndef HPLACER_ENGINE_SIMULATOR_WORKER_TEAM_H_
#define HPLACER_ENGINE_SIMULATOR_WORKER_TEAM_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hplacer {

class WorkerTeam {
 public:
  // Fewer workers, at least one, if the system grants no more threads.
  explicit WorkerTeam(int num_workers);
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int size() const { return static_cast<int>(helpers_.size()) + 1; }

  void ForEach(int32_t count, const std::function<void(int worker, int32_t item)>& run);

 private:
  void Help(int worker);
  void Work(int worker);

  std::vector<std::thread> helpers_;
  std::mutex mutex_;
  std::condition_variable begin_, end_;
  int64_t batch_ = 0;  // guarded by mutex_, as are the next three
  int busy_ = 0;
  bool quit_ = false;
  std::exception_ptr error_;  // the first one of the batch
  int32_t count_ = 0;
  const std::function<void(int, int32_t)>* run_ = nullptr;
  std::atomic<int32_t> next_ = 0;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SIMULATOR_WORKER_TEAM_H_
