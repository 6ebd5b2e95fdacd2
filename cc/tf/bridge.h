// The bridge between TensorFlow's threads, where the pass runs, and the planner's own thread.
//
//   pass (any TensorFlow thread)                     planner side (one dispatcher thread)
//   Submit(request) -> request.Wait(deadline)  <->   Next() ... request.Finish(reply)
//
// The pass never calls the planner itself: it leaves a request and waits a bounded time. So a
// planner that hangs, fails or never starts costs the training run at most the time limit. This
// file knows neither TensorFlow nor Python.
#ifndef HPLACER_TF_BRIDGE_H_
#define HPLACER_TF_BRIDGE_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tf/captured_step.h"
#include "tf/per_process.h"

namespace hplacer {

using Clock = std::chrono::steady_clock;

// What became of one graph; kept for `reports` and logged by the planner side.
struct PassReport {
  std::string label;        // "function train_step" or "session graph"
  std::string outcome;      // "loaded", "planned", "shared", "kept", "skipped" or "failed"
  std::string reason;       // why TensorFlow's placement was kept, or the graph skipped, or failed
  std::string fingerprint;  // key, empty if it was not reached
  bool trains = false;      // the step computes gradients
  int num_ops = 0;          // ops of the step
  int num_devices = 0;      // devices that may be planned
  int num_placed = 0;       // nodes whose device was requested
  double pass_s = 0;        // all of it, seconds
  double step_s = 0;
  double fingerprint_s = 0;
  double lookup_s = 0;
  double capture_s = 0;
  double plan_s = 0;
  double rewrite_s = 0;
};

// Immutable after Submit, except for the reply.
struct PlannerRequest {
  enum class Stage { kLookup, kPlan, kReport };
  enum class Result { kPending, kAssigned, kMissing, kKept, kDeclined };

  // kMissing answers a lookup: plan it, on this machine. kKept: no plan is better than TensorFlow's
  // own placement. kDeclined: leave the graph alone.
  // A lookup's answer always has the machine: a stored plan may turn out not to fit.
  struct Reply {
    Result result = Result::kPending;
    std::shared_ptr<const Assignment> assignment;
    MachineRates machine;
    std::string reason;
  };

  Stage stage = Stage::kLookup;
  std::string label;
  std::string function;  // its name as the eager runtime calls it; "": a session's graph
  bool trains = false;   // the step computes gradients
  std::string entry;     // serialised RewriterConfig.CustomGraphOptimizer: the options
  int num_ops = 0;
  Fingerprint fingerprint;
  std::vector<SessionDevice> devices;
  std::shared_ptr<const CapturedStep> step;  // kPlan only
  PassReport report;                         // kReport only

  // First call wins; later ones are ignored.
  void Finish(Reply reply);

  // The reply, or one with kPending if none came until `deadline`, or until `gives_up` was true
  // when it was looked at, every 50 ms. Nobody waits for the request any more then.
  Reply Wait(Clock::time_point deadline, const std::function<bool()>& gives_up);

  // Whether nobody waits for the reply any more, though there was none.
  bool IsAbandoned() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  Reply reply_;
  bool abandoned_ = false;
};

// Until `done` under the lock, `deadline`, or a look at `gives_up`, every 50 ms, that says so.
void WaitPatiently(std::unique_lock<std::mutex>* lock, std::condition_variable* changed,
                   Clock::time_point deadline, const std::function<bool()>& done,
                   const std::function<bool()>& gives_up);

// A forked child has a bridge of its own, closed until it has a dispatcher of its own.
class Bridge {
 public:
  static Bridge& Get() { return PerProcess<Bridge>::Get(); }

  // Called around every wait of a pass; returns an object that ends it (releases a lock that the
  // waiting thread holds and the planner needs: Python's GIL).
  void SetWaitGuard(std::function<std::shared_ptr<void>()> guard);
  std::shared_ptr<void> EnterWait() const;

  // False while nobody serves requests.
  bool Submit(std::shared_ptr<PlannerRequest> request);

  // The next request; null after `timeout`, which there need not be, or when closed and drained.
  std::shared_ptr<PlannerRequest> Next(
      std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  void Open();   // there is a dispatcher
  void Close();  // refuse new requests and wake the dispatcher
  bool IsOpen() const;

  // Keeps the report and passes it on to the planner side, without waiting.
  void AddReport(PassReport report);
  std::vector<PassReport> Reports() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<PlannerRequest>> queue_;
  std::deque<PassReport> reports_;
  std::function<std::shared_ptr<void>()> wait_guard_;
  bool open_ = false;
};

}  // namespace hplacer

#endif  // HPLACER_TF_BRIDGE_H_
