#include "tf/pass.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "tensorflow/core/protobuf/rewriter_config.pb.h"
#include "tensorflow/core/public/session_options.h"
#include "tf/assignment.h"
#include "tf/bridge.h"
#include "tf/capture.h"
#include "tf/default_placement.h"
#include "tf/fail_open.h"
#include "tf/fingerprint.h"
#include "tf/grappler_optimizer.h"
#include "tf/groups_apart.h"
#include "tf/identity_n.h"
#include "tf/interrupt_watch.h"
#include "tf/late_placement.h"
#include "tf/pass_input.h"
#include "tf/per_process.h"
#include "tf/step.h"

namespace hplacer {
namespace {

using tensorflow::GraphOptimizationPassOptions;
using Entry = tensorflow::RewriterConfig_CustomGraphOptimizer;
using Reply = PlannerRequest::Reply;
using Result = PlannerRequest::Result;

constexpr double kLeastSeconds = 0.001, kMostSeconds = 1e9;  // of an option

// The options that the pass itself reads, by the names of hplacer_optimizer/options.py.
struct PassOptions {
  int64_t min_ops = 0;
  double timeout_s = 0;
  double budget_s = 0;
  bool learns = false;     // on a miss, for all of budget_s
  bool bitwise = false;    // devices take effect after Grappler
  int64_t batch_size = 0;  // 0: choose
  int64_t loop_trip_count = 0;
  std::vector<std::string> targets;
  std::vector<std::string> devices;

  double wait_s() const { return timeout_s + (learns ? budget_s : 0); }
};

// A value that the option does not allow (options.py) leaves the default in place, which serves
// until the planner's side refuses the entry and says why.
double Seconds(const tensorflow::AttrValue& value, double otherwise) {
  double seconds = 0;
  if (value.value_case() == tensorflow::AttrValue::kI) seconds = static_cast<double>(value.i());
  if (value.value_case() == tensorflow::AttrValue::kF) seconds = value.f();
  return seconds >= kLeastSeconds && seconds <= kMostSeconds ? seconds : otherwise;
}

int64_t Count(const tensorflow::AttrValue& value, int64_t least, int64_t otherwise) {
  const bool is_int = value.value_case() == tensorflow::AttrValue::kI;
  return is_int && value.i() >= least ? value.i() : otherwise;
}

std::vector<std::string> Strings(const tensorflow::AttrValue& value) {
  if (value.value_case() == tensorflow::AttrValue::kS) return {value.s()};
  return {value.list().s().begin(), value.list().s().end()};
}

// What the entry leaves out is as in `options`.
PassOptions ReadOptions(const Entry& entry, PassOptions options) {
  for (const auto& [name, value] : entry.parameter_map()) {
    if (name == "min_ops") options.min_ops = Count(value, 0, options.min_ops);
    if (name == "timeout_s") options.timeout_s = Seconds(value, options.timeout_s);
    if (name == "budget_s") options.budget_s = Seconds(value, options.budget_s);
    if (name == "on_miss") options.learns = value.s() == "learn";
    if (name == "bitwise") options.bitwise = value.b();
    if (name == "batch_size") options.batch_size = Count(value, 1, options.batch_size);
    if (name == "loop_trip_count") {
      options.loop_trip_count = Count(value, 1, options.loop_trip_count);
    }
    if (name == "targets") options.targets = Strings(value);
    if (name == "devices") options.devices = Strings(value);
  }
  return options;
}

const Entry* FindEntry(const GraphOptimizationPassOptions& options) {
  if (options.session_options == nullptr) return nullptr;
  const auto& rewriter = options.session_options->config.graph_options().rewrite_options();
  for (const Entry& entry : rewriter.custom_optimizers()) {
    if (entry.name() == kOptimizerName) return &entry;
  }
  return nullptr;
}

// Whether Grappler takes out what only groups others.
bool RemovesGroups(const GraphOptimizationPassOptions& options) {
  using tensorflow::RewriterConfig;
  const auto& rewriter = options.session_options->config.graph_options().rewrite_options();
  return !rewriter.disable_meta_optimizer() &&
         rewriter.dependency_optimization() != RewriterConfig::OFF;
}

// Whether XLA gathers ops into clusters after placement, by the session or by TensorFlow's flag: a
// plan would cut them, and costs of single ops do not tell what they take.
bool ClustersByXla(const GraphOptimizationPassOptions& options) {
  const auto level =
      options.session_options->config.graph_options().optimizer_options().global_jit_level();
  if (level > tensorflow::OptimizerOptions::DEFAULT) return true;
  if (level == tensorflow::OptimizerOptions::OFF) return false;
  const char* flags = std::getenv("TF_XLA_FLAGS");
  const std::string_view text = flags == nullptr ? "" : flags;
  constexpr std::string_view kFlag = "--tf_xla_auto_jit=";
  const size_t at = text.rfind(kFlag);
  if (at == std::string_view::npos || at + kFlag.size() >= text.size()) return false;
  const char digit = text[at + kFlag.size()];
  return digit >= '1' && digit <= '9';
}

bool IsDisabled() {
  const char* value = std::getenv("HPLACER_DISABLE");
  return value != nullptr && *value != '\0' && std::string(value) != "0";
}

// What became of a graph: its devices, or why TensorFlow's own placement is kept, or neither.
struct Decision {
  std::shared_ptr<const Assignment> assignment;
  std::string kept_because;
};

// Work on one fingerprint, shared by all threads that bring it at the same time.
class Flight {
 public:
  void Land(Decision decision) {
    std::lock_guard<std::mutex> lock(mutex_);
    decision_ = std::move(decision);
    landed_ = true;
    changed_.notify_all();
  }

  // Neither if it failed, or did not land until `deadline` or `gives_up`.
  Decision Wait(Clock::time_point deadline, const std::function<bool()>& gives_up) {
    const std::shared_ptr<void> guard = Bridge::Get().EnterWait();
    std::unique_lock<std::mutex> lock(mutex_);
    WaitPatiently(&lock, &changed_, deadline, [this] { return landed_; }, gives_up);
    return decision_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Decision decision_;
  bool landed_ = false;
};

class Flights {
 public:
  static Flights& Get() { return PerProcess<Flights>::Get(); }

  // The flight for `key`; `leads` is true for the thread that has to do the work.
  std::shared_ptr<Flight> Board(const std::string& key, bool* leads) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<Flight>& flight = flights_[key];
    *leads = flight == nullptr;
    if (*leads) flight = std::make_shared<Flight>();
    return flight;
  }

  void Remove(const std::string& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    flights_.erase(key);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Flight>> flights_;
};

// Adds the seconds until its end to `total`.
class Timer {
 public:
  explicit Timer(double* total) : total_(total), start_(Clock::now()) {}
  ~Timer() { *total_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double* total_;
  Clock::time_point start_;
};

// One graph on its way through the pass.
class GraphPlacement {
 public:
  GraphPlacement(const GraphOptimizationPassOptions& options, const Entry& entry,
                 const PassOptions& pass_options, std::vector<SessionDevice> devices)
      : options_(options),
        entry_(entry),
        pass_options_(pass_options),
        devices_(std::move(devices)),
        deadline_(Clock::now() +
                  std::chrono::milliseconds(static_cast<int64_t>(pass_options.wait_s() * 1000))) {
    report_.label = GraphLabel(options);
    for (const SessionDevice& device : devices_) report_.num_devices += device.may_plan;
  }

  void Run() {
    {
      Timer timer(&report_.pass_s);
      std::string failure = WhatFails([this] {
        if (pass_options_.bitwise) late_.emplace(options_);
        taken_apart_.emplace(options_);
        fingerprint_input_.graph = options_.graph->get();
        absl::Status status = Place();
        if (!status.ok()) Fail(std::string(status.message()));
      });
      if (!failure.empty()) Fail(std::move(failure));
      late_.reset();
    }
    if (!report_.outcome.empty()) Bridge::Get().AddReport(std::move(report_));
  }

 private:
  void Fail(std::string reason) {
    report_.outcome = "failed";
    report_.reason = std::move(reason);
  }

  absl::Status Place() {
    {
      Timer timer(&report_.step_s);
      absl::Status status =
          FindStep(**options_.graph, options_.is_function_graph, pass_options_.targets, &step_);
      if (!status.ok()) return status;
    }
    report_.num_ops = static_cast<int>(step_.nodes.size());
    if (report_.num_ops < pass_options_.min_ops) return absl::OkStatus();
    report_.trains = ComputesGradients(step_);
    if (const std::string type = CollectiveOp(step_); !type.empty()) {
      report_.outcome = "skipped";
      report_.reason = absl::StrCat(type, " is in it: its replicas have their devices already");
      return absl::OkStatus();
    }
    {
      Timer timer(&report_.fingerprint_s);
      fingerprint_ = ComputeFingerprint(fingerprint_input_, &node_hashes_);
    }
    report_.fingerprint = fingerprint_.key;
    std::string serialised;
    tensorflow::SerializeToStringDeterministic(entry_, &serialised);  // maps have no order
    const std::string key = fingerprint_.key + serialised;
    bool leads = false;
    const std::shared_ptr<Flight> flight = Flights::Get().Board(key, &leads);
    if (!leads) return Follow(flight.get());
    Decision decision;
    absl::Status status;
    const std::string failure = WhatFails([&] { status = Lead(serialised, &decision); });
    if (!failure.empty()) status = absl::InternalError(failure);
    Flights::Get().Remove(key);
    flight->Land(std::move(decision));
    return status;
  }

  absl::Status Follow(Flight* flight) {
    const Decision decision = flight->Wait(deadline_, gives_up_);
    if (!decision.kept_because.empty()) return Keep(decision.kept_because);
    if (decision.assignment == nullptr) {
      report_.outcome = "skipped";
      report_.reason = "another thread did not get a plan for the same graph";
      return absl::OkStatus();
    }
    report_.outcome = "shared";
    return Rewrite(decision.assignment);
  }

  // Looks the plan up, else has one made; `decision` has it once it is in the graph.
  absl::Status Lead(const std::string& serialised, Decision* decision) {
    Reply reply;
    {
      Timer timer(&report_.lookup_s);
      if (absl::Status status = Ask(PlannerRequest::Stage::kLookup, serialised, nullptr, &reply);
          !status.ok()) {
        return status;
      }
    }
    if (reply.result == Result::kDeclined) return Decline(reply.reason);
    if (reply.result == Result::kKept) return Keep(decision->kept_because = reply.reason);
    if (reply.result == Result::kAssigned) {
      const absl::Status status = Rewrite(reply.assignment);
      if (status.ok()) {
        report_.outcome = "loaded";
        decision->assignment = reply.assignment;
        return status;
      }
      report_.reason = absl::StrCat("the stored plan does not fit: ", status.message());
    }
    auto captured = std::make_shared<CapturedStep>();
    {
      Timer timer(&report_.capture_s);
      const UnitsInput input = MakeUnitsInput(options_, &step_, &devices_);
      const CostOptions costs{&reply.machine.kinds, pass_options_.batch_size,
                              pass_options_.loop_trip_count, /*shapes=*/{}};
      absl::Status status = CaptureStep(
          input, node_hashes_, DefaultDevices(options_, step_, devices_), costs, captured.get());
      if (!status.ok()) return status;
    }
    if (captured->node_names.empty()) {
      report_.outcome = "skipped";
      report_.reason = "every op is pinned to one device";
      return absl::OkStatus();
    }
    {
      Timer timer(&report_.plan_s);
      if (absl::Status status = Ask(PlannerRequest::Stage::kPlan, serialised, captured, &reply);
          !status.ok()) {
        return status;
      }
    }
    if (reply.result == Result::kDeclined) return Decline(reply.reason);
    if (reply.result == Result::kKept) return Keep(decision->kept_because = reply.reason);
    const absl::Status status = Rewrite(reply.assignment);
    if (status.ok()) {
      report_.outcome = "planned";
      decision->assignment = reply.assignment;
    }
    return status;
  }

  absl::Status Keep(const std::string& reason) {
    report_.outcome = "kept";
    report_.reason = reason;
    return absl::OkStatus();
  }

  absl::Status Decline(const std::string& reason) {
    report_.outcome = reason.empty() ? "skipped" : "failed";
    report_.reason = reason.empty() ? "no stored plan, and on_miss is \"skip\"" : reason;
    return absl::OkStatus();
  }

  absl::Status Ask(PlannerRequest::Stage stage, const std::string& serialised,
                   std::shared_ptr<const CapturedStep> captured, Reply* reply) {
    auto request = std::make_shared<PlannerRequest>();
    request->stage = stage;
    request->label = report_.label;
    if (options_.function_def != nullptr) {
      request->function = options_.function_def->signature().name();
    }
    request->trains = report_.trains;
    request->entry = serialised;
    request->num_ops = report_.num_ops;
    request->fingerprint = fingerprint_;
    request->devices = devices_;
    request->step = std::move(captured);
    if (!Bridge::Get().Submit(request)) {
      return absl::UnavailableError("the planner's thread is not running in this process");
    }
    if (names_.empty()) names_ = IndexNames(step_);  // while the planner's thread works
    *reply = request->Wait(deadline_, gives_up_);
    if (reply->result != Result::kPending) return absl::OkStatus();
    if (interrupts_.interrupted()) return absl::CancelledError("a signal interrupted the planning");
    return absl::DeadlineExceededError(
        absl::StrCat("no answer within ", pass_options_.wait_s(),
                     " s; raise option timeout_s or lower budget_s"));
  }

  absl::Status Rewrite(const std::shared_ptr<const Assignment>& assignment) {
    Timer timer(&report_.rewrite_s);
    if (names_.empty()) names_ = IndexNames(step_);
    NodeDevices resolved;
    absl::Status status =
        ResolveAssignment(fingerprint_input_, node_hashes_, *assignment, names_, &resolved);
    if (!status.ok()) return status;
    report_.num_placed = static_cast<int>(resolved.devices.size());
    // Grappler gets the graph as it was, and takes IdentityN out where TensorFlow has all on one
    // device.
    if (late_) return late_->Place(resolved, fingerprint_.key);
    if (RemovesGroups(options_)) SetGroupsApart(devices_, &resolved);
    ApplyDevices(resolved);
    taken_apart_->Keep();
    // Without what it remembers, the plan is in effect all the same, and nobody checks what ran.
    WhatFails([&] {
      RememberPlan(step_, fingerprint_.key,
                   resolved.differs
                       ? std::make_shared<const Assignment>(RenamedAssignment(resolved))
                       : assignment);
    });
    return absl::OkStatus();
  }

  const GraphOptimizationPassOptions& options_;
  const Entry& entry_;
  const PassOptions& pass_options_;
  const std::vector<SessionDevice> devices_;
  const Clock::time_point deadline_;
  const InterruptWatch interrupts_;
  const std::function<bool()> gives_up_ = [this] { return interrupts_.interrupted(); };
  std::optional<TakenApart> taken_apart_;
  Step step_;
  FingerprintInput fingerprint_input_{options_.graph->get(), &step_, options_.flib_def, &devices_,
                                      AllowsSoftPlacement(options_)};
  Fingerprint fingerprint_;
  std::vector<uint64_t> node_hashes_;
  NameIndex names_;
  std::optional<LatePlacement> late_;  // with option bitwise
  PassReport report_;
};

class HierarchicalPlacerPass : public tensorflow::GraphOptimizationPass {
 public:
  explicit HierarchicalPlacerPass(const Entry& defaults) : defaults_(ReadOptions(defaults, {})) {}

  absl::Status Run(const GraphOptimizationPassOptions& options) override {
    const std::string failure = WhatFails([&] { Handle(options); });
    if (!failure.empty()) ReportFailure(options, failure);
    return absl::OkStatus();
  }

 private:
  void Handle(const GraphOptimizationPassOptions& options) const {
    ForgetEarlierPlans(options);
    const Entry* entry = FindEntry(options);
    if (entry == nullptr || IsDisabled()) return;
    if (options.graph == nullptr || *options.graph == nullptr || options.device_set == nullptr) {
      return;
    }
    const PassOptions pass_options = ReadOptions(*entry, defaults_);
    if ((*options.graph)->num_op_nodes() < pass_options.min_ops) return;
    if (options.function_def != nullptr &&
        options.function_def->attr().contains("_tf_data_function")) {
      return;
    }
    if (!Bridge::Get().IsOpen()) return;
    std::vector<SessionDevice> devices = SessionDevices(options, pass_options.devices);
    PassReport report;
    report.label = GraphLabel(options);
    report.num_ops = (*options.graph)->num_op_nodes();
    for (const SessionDevice& device : devices) report.num_devices += device.may_plan;
    if (report.num_devices == 0 && !pass_options.devices.empty()) {
      report.outcome = "failed";
      report.reason = absl::StrCat("option devices matches none of this session's devices: ",
                                   absl::StrJoin(pass_options.devices, ", "));
    } else if (report.num_devices < 2) {
      report.outcome = "skipped";
      report.reason = "one device: nothing to place";
    } else if (ClustersByXla(options)) {
      report.outcome = "skipped";
      report.reason = "XLA compiles clusters of its ops (auto-clustering), which a plan would cut";
    } else if (pass_options.bitwise && KeepOneKind(&devices) < 2) {
      report.outcome = "skipped";
      report.reason = "one device of its kind: nothing to place (option bitwise)";
    } else {
      GraphPlacement(options, *entry, pass_options, std::move(devices)).Run();
      return;
    }
    Bridge::Get().AddReport(std::move(report));
  }

  const PassOptions defaults_;
};

}  // namespace

void RegisterPasses(const Entry& defaults) {
  static const bool registered = [&defaults] {
    auto pass = std::make_unique<HierarchicalPlacerPass>(defaults);
    pass->set_name("HierarchicalPlacerPass");
    tensorflow::OptimizationPassRegistry::Global()->Register(
        tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kPhase, std::move(pass));
    RegisterGrapplerOptimizer();
    RegisterLatePlacementPass();
    return true;
  }();
  static_cast<void>(registered);
}

}  // namespace hplacer
