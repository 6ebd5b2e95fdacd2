#include <array>
#include <limits>
#include <unordered_map>
#include <utility>

#include "engine/problem/problem_check.h"
#include "engine_json_reader.h"
#include "engine_problem_file.h"

namespace hplacer {
namespace {

enum Slot : int {
  kDocument,
  kFormat,
  kName,
  kKinds,
  kKind,
  kDevices,
  kDevice,
  kDeviceName,
  kDeviceKind,
  kDeviceMemory,
  kDeviceSlots,
  kDeviceCores,
  kDeviceStart,
  kDeviceTurn,
  kDeviceCold,
  kDeviceLaunch,
  kThreads,
  kLinks,
  kLink,
  kLinkSrc,
  kLinkDst,
  kLinkChannel,
  kLinkLatency,
  kLinkRate,
  kLinkSend,
  kLinkSendRate,
  kLinkReceive,
  kLinkReceiveRate,
  kOps,
  kOp,
  kOpName,
  kOpType,
  kCosts,
  kCost,
  kOutputs,
  kOutput,
  kAliases,
  kAlias,
  kAliasIndex,
  kTemp,
  kPersistent,
  kAllowed,
  kAllowedDevice,
  kGroup,
  kSameAs,
  kDefaultDevice,
  kEdges,
  kEdge,
  kEdgeIndex,
  kControlEdges,
  kControlEdge,
  kControlEdgeIndex,
  kOrder,
  kOrderNodes,
  kOrderNode,
  kOrderOp,
  kOrderInputs,
  kOrderInput,
  kOrderInputIndex,
  kOrderTargets,
  kOrderTarget,
  kNumSlots,
};

constexpr int64_t kMaxIndex = std::numeric_limits<int32_t>::max();
constexpr char kAliasForms[] = "null, [source op, output] or \"persistent\"";

std::vector<JsonRule> MakeSchema() {
  const JsonRule text = {JsonRule::kString, "a string"};
  const JsonRule integer = {JsonRule::kInteger, "an integer"};
  const JsonRule index = {JsonRule::kInteger, "an integer", 0, kMaxIndex};
  const auto list = [](int element) { return JsonRule{JsonRule::kList, "a list", 0, 0, element}; };
  const auto object = [](std::vector<JsonRule::Field> fields) {
    return JsonRule{JsonRule::kObject, "an object", 0, 0, -1, std::move(fields)};
  };
  std::vector<JsonRule> rules(kNumSlots, integer);
  for (int slot : {kFormat, kName, kKind, kDeviceName, kDeviceKind, kDeviceCores, kLinkChannel,
                   kOpName, kOpType, kGroup}) {
    rules[slot] = text;
  }
  for (int slot : {kLinkSrc, kLinkDst, kAliasIndex, kAllowedDevice, kSameAs, kDefaultDevice,
                   kEdgeIndex, kControlEdgeIndex, kOrderOp, kOrderInputIndex, kOrderTarget}) {
    rules[slot] = index;
  }
  for (int slot : {kDeviceSlots, kThreads}) {
    rules[slot] = {JsonRule::kInteger, "an integer", 1, kMaxIndex};
  }
  for (int slot : {kLinkRate, kLinkSendRate, kLinkReceiveRate}) rules[slot].minimum = 1;
  const std::pair<int, int> lists[] = {{kKinds, kKind},
                                       {kDevices, kDevice},
                                       {kLinks, kLink},
                                       {kOps, kOp},
                                       {kOutputs, kOutput},
                                       {kAliases, kAlias},
                                       {kAllowed, kAllowedDevice},
                                       {kEdges, kEdge},
                                       {kEdge, kEdgeIndex},
                                       {kControlEdges, kControlEdge},
                                       {kControlEdge, kControlEdgeIndex},
                                       {kOrderNodes, kOrderNode},
                                       {kOrderInputs, kOrderInput},
                                       {kOrderInput, kOrderInputIndex},
                                       {kOrderTargets, kOrderTarget}};
  for (const auto& [slot, element] : lists) rules[slot] = list(element);
  rules[kAlias] = {JsonRule::kNull | JsonRule::kString | JsonRule::kList, kAliasForms, 0, 0,
                   kAliasIndex};
  rules[kCosts] = {JsonRule::kObject, "an object", 0, 0, kCost};
  rules[kDocument] = object({{"format", kFormat, true},
                             {"name", kName, true},
                             {"device_kinds", kKinds, true},
                             {"devices", kDevices, true},
                             {"inter_op_threads", kThreads, false, 2},
                             {"links", kLinks, true},
                             {"ops", kOps, true},
                             {"edges", kEdges, true},
                             {"control_edges", kControlEdges, false},
                             {"order", kOrder, false, 2}});
  rules[kOrder] = object({{"nodes", kOrderNodes, true}, {"targets", kOrderTargets, false}});
  rules[kOrderNode] = object({{"op", kOrderOp, true}, {"inputs", kOrderInputs, false}});
  rules[kDevice] = object({{"name", kDeviceName, true},
                           {"kind", kDeviceKind, true},
                           {"memory_bytes", kDeviceMemory, true},
                           {"slots", kDeviceSlots, false},
                           {"cores", kDeviceCores, false, 2},
                           {"start_ns", kDeviceStart, false, 2},
                           {"turn_ns", kDeviceTurn, false, 2},
                           {"cold_ns", kDeviceCold, false, 2},
                           {"launch_ns", kDeviceLaunch, false, 2}});
  rules[kLink] = object({{"src", kLinkSrc, true},
                         {"dst", kLinkDst, true},
                         {"channel", kLinkChannel, true},
                         {"latency_ns", kLinkLatency, true},
                         {"bytes_per_s", kLinkRate, true},
                         {"send_ns", kLinkSend, false, 2},
                         {"send_bytes_per_s", kLinkSendRate, false, 2},
                         {"receive_ns", kLinkReceive, false, 2},
                         {"receive_bytes_per_s", kLinkReceiveRate, false, 2}});
  rules[kOp] = object({{"name", kOpName, true},
                       {"type", kOpType, true},
                       {"cost_ns", kCosts, true},
                       {"output_bytes", kOutputs, false},
                       {"output_alias", kAliases, false},
                       {"temp_bytes", kTemp, false},
                       {"persistent_bytes", kPersistent, false},
                       {"allowed_devices", kAllowed, false},
                       {"colocation_group", kGroup, false},
                       {"same_as", kSameAs, false, 2},
                       {"default_device", kDefaultDevice, false, 2}});
  return rules;
}

// Numbers strings in the order of their first use.
class Names {
 public:
  int32_t Intern(const std::string& name) {
    return ids_.emplace(name, static_cast<int32_t>(ids_.size())).first->second;
  }
  size_t size() const { return ids_.size(); }
  std::vector<std::string> InOrder() const {
    std::vector<std::string> names(ids_.size());
    for (const auto& [name, id] : ids_) names[id] = name;
    return names;
  }

 private:
  std::unordered_map<std::string, int32_t> ids_;
};

class ProblemReader final : public JsonReader {
 public:
  ProblemReader() : JsonReader(Schema(), "hplacer-problem", 2) {
    spec_.output_ptr = {0};
    spec_.allowed_ptr = {0};
    spec_.order_input_ptr = {0};
  }

  // Once, after Read.
  ProblemSpec Take() {
    ResolveKinds();
    spec_.colocation_group_names = groups_.InOrder();
    return std::move(spec_);
  }

 private:
  static constexpr int32_t kNoDevice = -1;

  struct Device {
    std::string name, kind, cores;
    int64_t memory_bytes = 0, start_ns = 0, turn_ns = 0, cold_ns = 0, launch_ns = 0;
    int32_t slots = 1;
  };
  struct Link {
    int32_t src = 0, dst = 0;
    std::string channel;
    int64_t latency_ns = 0, bytes_per_s = 1;
    int64_t send_ns = 0, send_bytes_per_s = 0, receive_ns = 0, receive_bytes_per_s = 0;
  };
  // What an op has besides the entries of its lists, which go into spec_ as they come.
  struct Op {
    std::string name, type;
    int64_t temp_bytes = 0, persistent_bytes = 0;
    int32_t group = kNoGroup, same_as = kNotSame, default_device = kNoDevice;
    bool has_aliases = false, has_allowed = false;
  };
  // One entry of some op's cost_ns. The kinds may be listed after the ops, so that names stand in
  // for them until then.
  struct Cost {
    int32_t op, kind_name;
    int64_t cost_ns;
  };

  static const std::vector<JsonRule>& Schema() {
    static const std::vector<JsonRule> schema = MakeSchema();
    return schema;
  }

  // An entry of the problem has `width` values.
  template <typename T>
  void Append(std::vector<T>* values, T value, int64_t width = 1) {
    if (static_cast<int64_t>(values->size()) >= kMaxCount * width) {
      Fail("is one too many, the limit is " + std::to_string(kMaxCount) + " in all");
    }
    values->push_back(std::move(value));
  }

  void OnNull(int) override { AppendAlias(kNoAlias, 0); }
  void OnInteger(int slot, int64_t value) override;
  void OnString(int slot, std::string* text) override;
  void OnKey(int slot, const std::string& key) override;
  void OnEnd(int slot, int64_t count) override;
  void AppendAlias(int32_t src, int32_t output) {
    Append(&spec_.output_alias_src, src);
    Append(&spec_.output_alias_output, output);
  }
  void EndDevice();
  void EndLink();
  void EndOp();
  void EndDefaultDevice();
  void EndRow(int64_t count, int64_t expected) {
    if (count == expected) return;
    Fail("expected " + std::to_string(expected) + " integers, got " + std::to_string(count));
  }
  void EndOrderInput(int64_t count) {
    if (count == 1) return Append(&spec_.order_inputs, kNothingRead, 2);
    if (count != 2) Fail("expected [node] or [node, output]");
  }
  void ResolveKinds();

  ProblemSpec spec_;
  Device device_;
  std::vector<std::string> device_kind_names_;
  Link link_;
  Op op_;
  Names kind_names_, groups_;
  int32_t kind_name_ = 0;              // of the current cost
  std::vector<int32_t> kind_name_op_;  // per kind name: the last op that has it, plus one
  std::vector<Cost> costs_;
  std::array<int32_t, 2> alias_ = {};
  int alias_size_ = 0;
};

void ProblemReader::OnInteger(int slot, int64_t value) {
  const auto index = static_cast<int32_t>(value);  // where the schema says that it is one
  switch (slot) {
    case kDeviceMemory:
      device_.memory_bytes = value;
      break;
    case kDeviceSlots:
      device_.slots = index;
      break;
    case kDeviceStart:
      device_.start_ns = value;
      break;
    case kDeviceTurn:
      device_.turn_ns = value;
      break;
    case kDeviceCold:
      device_.cold_ns = value;
      break;
    case kDeviceLaunch:
      device_.launch_ns = value;
      break;
    case kThreads:
      spec_.inter_op_threads = index;
      break;
    case kLinkSrc:
      link_.src = index;
      break;
    case kLinkDst:
      link_.dst = index;
      break;
    case kLinkLatency:
      link_.latency_ns = value;
      break;
    case kLinkRate:
      link_.bytes_per_s = value;
      break;
    case kLinkSend:
      link_.send_ns = value;
      break;
    case kLinkSendRate:
      link_.send_bytes_per_s = value;
      break;
    case kLinkReceive:
      link_.receive_ns = value;
      break;
    case kLinkReceiveRate:
      link_.receive_bytes_per_s = value;
      break;
    case kCost:
      Append(&costs_, {static_cast<int32_t>(spec_.op_names.size()), kind_name_, value});
      break;
    case kOutput:
      Append(&spec_.output_bytes, value);
      break;
    case kAliasIndex:
      if (alias_size_ < 2) alias_[alias_size_++] = index;
      break;
    case kTemp:
      op_.temp_bytes = value;
      break;
    case kPersistent:
      op_.persistent_bytes = value;
      break;
    case kAllowedDevice:
      Append(&spec_.allowed_device, index);
      break;
    case kSameAs:
      op_.same_as = index;
      break;
    case kDefaultDevice:
      op_.default_device = index;
      break;
    case kEdgeIndex:
      Append(&spec_.edges, index, 3);
      break;
    case kControlEdgeIndex:
      Append(&spec_.control_edges, index, 2);
      break;
    case kOrderOp:
      Append(&spec_.order_op, index);
      break;
    case kOrderInputIndex:
      Append(&spec_.order_inputs, index, 2);
      break;
    case kOrderTarget:
      Append(&spec_.order_targets, index);
      break;
  }
}

void ProblemReader::OnString(int slot, std::string* text) {
  switch (slot) {
    case kName:
      spec_.name = std::move(*text);
      break;
    case kKind:
      Append(&spec_.device_kinds, std::move(*text));
      break;
    case kDeviceName:
      device_.name = std::move(*text);
      break;
    case kDeviceKind:
      device_.kind = std::move(*text);
      break;
    case kDeviceCores:
      device_.cores = std::move(*text);
      break;
    case kLinkChannel:
      link_.channel = std::move(*text);
      break;
    case kOpName:
      op_.name = std::move(*text);
      break;
    case kOpType:
      op_.type = std::move(*text);
      break;
    case kAlias:
      if (*text != "persistent") Fail(std::string("expected ") + kAliasForms);
      AppendAlias(kPersistentAlias, 0);
      break;
    case kGroup:
      op_.group = groups_.Intern(*text);
      break;
  }
}

void ProblemReader::OnKey(int, const std::string& key) {
  kind_name_ = kind_names_.Intern(key);
  kind_name_op_.resize(kind_names_.size());
  const auto op = static_cast<int32_t>(spec_.op_names.size()) + 1;
  if (kind_name_op_[kind_name_] == op) Fail("the key is given twice");
  kind_name_op_[kind_name_] = op;
}

void ProblemReader::OnEnd(int slot, int64_t count) {
  switch (slot) {
    case kDevice:
      return EndDevice();
    case kLink:
      return EndLink();
    case kOp:
      return EndOp();
    case kAliases:
      op_.has_aliases = true;
      return;
    case kAllowed:
      op_.has_allowed = true;
      return;
    case kAlias:
      if (count != 2) Fail(std::string("expected ") + kAliasForms);
      alias_size_ = 0;
      return AppendAlias(alias_[0], alias_[1]);
    case kEdge:
      return EndRow(count, 3);
    case kControlEdge:
      return EndRow(count, 2);
    case kOrderInput:
      return EndOrderInput(count);
    case kOrderNode:
      spec_.order_input_ptr.push_back(static_cast<int64_t>(spec_.order_inputs.size()) / 2);
      return;
  }
}

void ProblemReader::EndDevice() {
  Append(&spec_.device_names, std::move(device_.name));
  device_kind_names_.push_back(std::move(device_.kind));
  spec_.device_memory_bytes.push_back(device_.memory_bytes);
  spec_.device_slots.push_back(device_.slots);
  spec_.device_cores.push_back(std::move(device_.cores));
  spec_.device_start_ns.push_back(device_.start_ns);
  spec_.device_turn_ns.push_back(device_.turn_ns);
  spec_.device_cold_ns.push_back(device_.cold_ns);
  spec_.device_launch_ns.push_back(device_.launch_ns);
  device_ = Device();
}

void ProblemReader::EndLink() {
  Append(&spec_.link_src, link_.src);
  spec_.link_dst.push_back(link_.dst);
  spec_.link_channel.push_back(std::move(link_.channel));
  spec_.link_latency_ns.push_back(link_.latency_ns);
  spec_.link_bytes_per_s.push_back(link_.bytes_per_s);
  spec_.link_send_ns.push_back(link_.send_ns);
  spec_.link_send_bytes_per_s.push_back(link_.send_bytes_per_s);
  spec_.link_receive_ns.push_back(link_.receive_ns);
  spec_.link_receive_bytes_per_s.push_back(link_.receive_bytes_per_s);
  link_ = Link();
}

void ProblemReader::EndOp() {
  const size_t outputs = spec_.output_bytes.size(), first = spec_.output_ptr.back();
  if (!op_.has_aliases) {
    spec_.output_alias_src.resize(outputs, kNoAlias);
    spec_.output_alias_output.resize(outputs, 0);
  }
  const size_t aliases = spec_.output_alias_src.size();
  if (aliases != outputs) {
    Fail("has " + std::to_string(aliases - first) + " entries for " +
             std::to_string(outputs - first) + " outputs",
         "output_alias");
  }
  EndDefaultDevice();
  Append(&spec_.op_names, std::move(op_.name));
  spec_.op_types.push_back(std::move(op_.type));
  spec_.output_ptr.push_back(static_cast<int64_t>(outputs));
  spec_.temp_bytes.push_back(op_.temp_bytes);
  spec_.persistent_bytes.push_back(op_.persistent_bytes);
  spec_.allowed_ptr.push_back(static_cast<int64_t>(spec_.allowed_device.size()));
  spec_.allowed_given.push_back(op_.has_allowed);
  spec_.colocation_group.push_back(op_.group);
  spec_.same_as.push_back(op_.same_as);
  op_ = Op();
}

// All ops have one, or none.
void ProblemReader::EndDefaultDevice() {
  constexpr char kField[] = "default_device", kMissing[] = "is missing, other ops have one";
  if (op_.default_device == kNoDevice) {
    if (!spec_.default_device.empty()) Fail(kMissing, kField);
    return;
  }
  if (spec_.default_device.size() < spec_.op_names.size()) {
    hplacer::Fail(FieldPath("ops", 0, kField), kMissing);
  }
  Append(&spec_.default_device, op_.default_device);
}

void ProblemReader::ResolveKinds() {
  std::unordered_map<std::string, int32_t> kind_of_name;
  for (size_t kind = 0; kind < spec_.device_kinds.size(); ++kind) {
    kind_of_name.emplace(spec_.device_kinds[kind], static_cast<int32_t>(kind));
  }
  const auto resolve = [&](const std::string& name, const std::string& path) {
    const auto it = kind_of_name.find(name);
    if (it == kind_of_name.end()) hplacer::Fail(path, "unknown device kind '" + name + "'");
    return it->second;
  };
  for (size_t d = 0; d < device_kind_names_.size(); ++d) {
    spec_.device_kind.push_back(resolve(device_kind_names_[d], FieldPath("devices", d, "kind")));
  }
  const size_t kinds = spec_.device_kinds.size();
  CheckCounts(spec_);  // before they are multiplied
  spec_.cost_ns.assign(spec_.op_names.size() * kinds, kNoKernel);
  const std::vector<std::string> names = kind_names_.InOrder();
  std::vector<int32_t> kind_of_id(names.size(), -1);
  for (const Cost& cost : costs_) {
    int32_t& kind = kind_of_id[cost.kind_name];
    if (kind < 0) kind = resolve(names[cost.kind_name], FieldPath("ops", cost.op, "cost_ns"));
    spec_.cost_ns[cost.op * kinds + kind] = cost.cost_ns;
  }
}

}  // namespace

Problem ReadProblem(std::istream* input) {
  ProblemSpec spec;
  {
    ProblemReader reader;
    reader.Read(input);
    spec = reader.Take();
  }
  return Problem::Build(std::move(spec));
}

}  // namespace hplacer
