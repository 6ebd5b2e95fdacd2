#include "engine/problem/problem.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "engine/problem/problem_check.h"

namespace hplacer {
namespace {

using Int128 = __int128;

// Sorts the rows of a flat row-major table and removes repeated ones.
template <size_t kWidth>
void SortDistinctRows(std::vector<int32_t>* table) {
  bool sorted = true;
  for (auto row = table->begin(); sorted && table->end() - row > int{kWidth}; row += kWidth) {
    const auto next = row + kWidth;
    sorted = std::lexicographical_compare(row, next, next, next + kWidth);
  }
  if (sorted) return;  // as saved files are: spares a copy
  std::vector<std::array<int32_t, kWidth>> rows(table->size() / kWidth);
  for (size_t i = 0; i < table->size(); ++i) rows[i / kWidth][i % kWidth] = (*table)[i];
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  table->clear();
  for (const auto& row : rows) table->insert(table->end(), row.begin(), row.end());
}

// CSR offsets of rows whose keys are counted: ptr[k]..ptr[k + 1] for key k.
std::vector<int32_t> Offsets(const std::vector<int32_t>& keys, int32_t num_keys) {
  std::vector<int32_t> ptr(num_keys + 1, 0);
  for (int32_t key : keys) ++ptr[key + 1];
  std::partial_sum(ptr.begin(), ptr.end(), ptr.begin());
  return ptr;
}

// Positions 0..keys.size()-1 grouped by key, ascending within a key.
std::vector<int32_t> GroupByKey(const std::vector<int32_t>& keys, std::vector<int32_t> ptr) {
  std::vector<int32_t> positions(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) positions[ptr[keys[i]]++] = static_cast<int32_t>(i);
  return positions;
}

void SortDistinctAllowed(ProblemSpec* spec) {
  const auto devices = spec->allowed_device.begin();
  auto end = devices;
  int64_t row_begin = 0;
  for (size_t i = 0; i < spec->op_names.size(); ++i) {
    const int64_t row_end = spec->allowed_ptr[i + 1];
    std::sort(devices + row_begin, devices + row_end);
    const auto last = std::unique(devices + row_begin, devices + row_end);
    for (auto it = devices + row_begin; it != last; ++it) *end++ = *it;
    spec->allowed_ptr[i + 1] = end - devices;
    row_begin = row_end;
  }
  spec->allowed_device.erase(end, spec->allowed_device.end());
}

// "/job:worker/replica:0/task:1" of a full name; "" of a short one.
std::string TaskOf(const std::string& device) {
  const size_t end = device.find("/device:");
  return end == std::string::npos ? "" : device.substr(0, end);
}

Int128 WideNs(int64_t fixed_ns, int64_t bytes_per_s, int64_t bytes) {
  return fixed_ns + (static_cast<Int128>(bytes) * 1'000'000'000 + bytes_per_s - 1) / bytes_per_s;
}

// fixed_ns + ceil(bytes * 10^9 / bytes_per_s).
int64_t BytesNs(int64_t fixed_ns, int64_t bytes_per_s, int64_t bytes) {
  // 64-bit division is several times faster and enough for tensors below 9 GB.
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  if (bytes <= (kMax - bytes_per_s) / 1'000'000'000) {
    return fixed_ns + (bytes * 1'000'000'000 + bytes_per_s - 1) / bytes_per_s;
  }
  return static_cast<int64_t>(WideNs(fixed_ns, bytes_per_s, bytes));
}

}  // namespace

Problem Problem::Build(ProblemSpec spec) {
  CheckSpec(spec);
  SortDistinctRows<3>(&spec.edges);
  SortDistinctRows<2>(&spec.control_edges);
  SortDistinctAllowed(&spec);
  Problem problem(std::move(spec));
  problem.FillDefaults();
  problem.IndexPools();
  problem.IndexTasks();
  problem.IndexChannels();
  problem.IndexEdges();
  problem.IndexControlEdges();
  problem.IndexAliases();
  problem.CheckAcyclic();
  problem.CheckBounds();
  problem.IndexUnits();
  problem.IndexCandidates();
  problem.IndexOrder();
  problem.step_graph_ = PackStepGraph(problem);
  return problem;
}

bool Problem::IsAllowed(int32_t op, int32_t device) const {
  if (!spec_.allowed_given[op]) return CostNs(op, device) != kNoKernel;
  const auto begin = spec_.allowed_device.begin();
  return std::binary_search(begin + spec_.allowed_ptr[op], begin + spec_.allowed_ptr[op + 1],
                            device);
}

int64_t Problem::ChannelNs(int32_t link, int64_t bytes) const {
  if (bytes == 0 && IsCopied(link)) return 0;
  return BytesNs(spec_.link_latency_ns[link], spec_.link_bytes_per_s[link], bytes);
}

int64_t Problem::WorkNs(const std::vector<int64_t>& fixed_ns,
                        const std::vector<int64_t>& bytes_per_s, int32_t link, int64_t bytes) {
  const int64_t rate = bytes_per_s[link];
  return rate == 0 ? fixed_ns[link] : BytesNs(fixed_ns[link], rate, bytes);
}

void Problem::FillDefaults() {
  spec_.device_cores.resize(spec_.device_names.size());
  spec_.device_start_ns.resize(spec_.device_names.size());
  spec_.device_turn_ns.resize(spec_.device_names.size());
  spec_.device_cold_ns.resize(spec_.device_names.size());
  spec_.device_launch_ns.resize(spec_.device_names.size());
  spec_.same_as.resize(spec_.op_names.size(), kNotSame);
  spec_.order_input_ptr.resize(spec_.order_op.size() + 1);
  has_launches_ = std::any_of(spec_.device_launch_ns.begin(), spec_.device_launch_ns.end(),
                              [](int64_t launch_ns) { return launch_ns > 0; });
  for (auto* work : {&spec_.link_send_ns, &spec_.link_send_bytes_per_s, &spec_.link_receive_ns,
                     &spec_.link_receive_bytes_per_s}) {
    work->resize(spec_.link_src.size());
    has_work_ |= std::any_of(work->begin(), work->end(), [](int64_t value) { return value > 0; });
  }
}

void Problem::IndexPools() {
  std::unordered_map<std::string, int32_t> pool_of_cores;
  for (int32_t device = 0; device < num_devices(); ++device) {
    int32_t pool = num_pools();
    const std::string& cores = spec_.device_cores[device];
    if (!cores.empty()) pool = pool_of_cores.emplace(cores, pool).first->second;
    device_pool_.push_back(pool);
    if (pool < num_pools()) continue;
    pool_slots_.push_back(spec_.device_slots[device]);
    pool_turn_ns_.push_back(spec_.device_turn_ns[device]);
    pool_cold_ns_.push_back(spec_.device_cold_ns[device]);
  }
}

void Problem::IndexTasks() {
  std::unordered_map<std::string, int32_t> index;
  for (const std::string& name : spec_.device_names) {
    const auto next = static_cast<int32_t>(index.size());
    device_task_.push_back(index.emplace(TaskOf(name), next).first->second);
  }
  num_tasks_ = static_cast<int32_t>(index.size());
}

void Problem::IndexChannels() {
  std::unordered_map<std::string, int32_t> index;
  link_of_pair_.assign(static_cast<size_t>(num_devices()) * num_devices(), -1);
  for (size_t i = 0; i < spec_.link_channel.size(); ++i) {
    const auto [it, added] = index.emplace(spec_.link_channel[i], num_channels());
    if (added) channel_names_.push_back(spec_.link_channel[i]);
    link_channel_.push_back(it->second);
    link_of_pair_[static_cast<size_t>(spec_.link_src[i]) * num_devices() + spec_.link_dst[i]] =
        static_cast<int32_t>(i);
  }
}

void Problem::IndexEdges() {
  tensor_op_.resize(num_tensors());
  for (int32_t op = 0; op < num_ops(); ++op) {
    std::fill(tensor_op_.begin() + FirstTensor(op), tensor_op_.begin() + FirstTensor(op + 1), op);
  }
  for (size_t e = 0; e < spec_.edges.size(); e += 3) {
    edge_tensor_.push_back(FirstTensor(spec_.edges[e]) + spec_.edges[e + 1]);
    consumers_.push_back(spec_.edges[e + 2]);
  }
  consumer_ptr_ = Offsets(edge_tensor_, num_tensors());
  read_ptr_ = Offsets(consumers_, num_ops());
  read_edges_ = GroupByKey(consumers_, read_ptr_);
}

void Problem::IndexControlEdges() {
  std::vector<int32_t> src, dst;
  for (size_t c = 0; c < spec_.control_edges.size(); c += 2) {
    src.push_back(spec_.control_edges[c]);
    dst.push_back(spec_.control_edges[c + 1]);
  }
  control_out_ptr_ = Offsets(src, num_ops());
  control_in_ptr_ = Offsets(dst, num_ops());
  for (int32_t edge : GroupByKey(dst, control_in_ptr_)) control_in_.push_back(src[edge]);
  control_out_ = std::move(dst);
  for (int32_t op = 0; op < num_ops(); ++op) {
    in_degree_.push_back(read_ptr_[op + 1] - read_ptr_[op] + control_in_ptr_[op + 1] -
                         control_in_ptr_[op]);
  }
}

int32_t Problem::FindRead(int32_t op, int32_t src, int32_t output) const {
  if (src < 0 || src >= num_ops()) return -1;
  if (output < 0 || output >= FirstTensor(src + 1) - FirstTensor(src)) return -1;
  const int32_t tensor = FirstTensor(src) + output;
  const auto end = read_edges_.begin() + read_ptr_[op + 1];
  // Edge ids ascend, and so do the tensors of their edges.
  const auto it = std::lower_bound(read_edges_.begin() + read_ptr_[op], end, tensor,
                                   [&](int32_t edge, int32_t t) { return edge_tensor_[edge] < t; });
  return it != end && edge_tensor_[*it] == tensor ? *it : -1;
}

void Problem::IndexAliases() {
  alias_edge_ = spec_.output_alias_src;
  for (int32_t tensor = 0; tensor < num_tensors(); ++tensor) {
    const int32_t src = spec_.output_alias_src[tensor];
    if (src == kNoAlias || src == kPersistentAlias) continue;
    const int32_t op = tensor_op_[tensor], output = spec_.output_alias_output[tensor];
    const int32_t edge = FindRead(op, src, output);
    if (edge < 0) {
      Fail(FieldPath("ops", op, "output_alias"),
           "output " + std::to_string(tensor - FirstTensor(op)) + " aliases [" +
               std::to_string(src) + ", " + std::to_string(output) + "], which op '" +
               spec_.op_names[op] + "' does not read");
    }
    alias_edge_[tensor] = edge;
  }
}

void Problem::CheckAcyclic() const {
  std::vector<int32_t> pending = in_degree_;
  std::vector<int32_t> done;
  const auto visit = [&](int32_t op) {
    if (--pending[op] == 0) done.push_back(op);
  };
  for (int32_t op = 0; op < num_ops(); ++op) {
    if (pending[op] == 0) done.push_back(op);
  }
  for (size_t next = 0; next < done.size(); ++next) {
    const int32_t op = done[next];
    const int32_t end = consumer_ptr_[FirstTensor(op + 1)];
    for (int32_t edge = consumer_ptr_[FirstTensor(op)]; edge < end; ++edge) visit(consumers_[edge]);
    for (int32_t c = control_out_ptr_[op]; c < control_out_ptr_[op + 1]; ++c)
      visit(control_out_[c]);
  }
  if (static_cast<int32_t>(done.size()) < num_ops()) throw ProblemError(DescribeCycle(pending));
}

// Every op with inputs pending has a predecessor with inputs pending, so that walking backwards
// over these must close a cycle.
std::string Problem::DescribeCycle(const std::vector<int32_t>& pending) const {
  const auto predecessor = [&](int32_t op) -> std::pair<int32_t, bool> {
    for (int32_t r = read_ptr_[op]; r < read_ptr_[op + 1]; ++r) {
      const int32_t src = tensor_op_[edge_tensor_[read_edges_[r]]];
      if (pending[src] > 0) return {src, true};
    }
    const auto begin = control_in_.begin() + control_in_ptr_[op];
    const auto end = control_in_.begin() + control_in_ptr_[op + 1];
    return {*std::find_if(begin, end, [&](int32_t src) { return pending[src] > 0; }), false};
  };
  std::vector<int32_t> position(num_ops(), -1), walk;
  const auto first = std::find_if(pending.begin(), pending.end(), [](int32_t p) { return p > 0; });
  int32_t op = static_cast<int32_t>(first - pending.begin());
  for (; position[op] < 0; op = predecessor(op).first) {
    position[op] = static_cast<int32_t>(walk.size());
    walk.push_back(op);
  }
  const std::vector<int32_t> cycle(walk.begin() + position[op], walk.end());
  const bool has_data =
      std::any_of(cycle.begin(), cycle.end(), [&](int32_t v) { return predecessor(v).second; });
  std::string message = has_data ? "edges: cycle " : "control_edges: cycle ";
  message += "'" + spec_.op_names[op] + "'";
  constexpr size_t kMaxNamed = 20;
  if (cycle.size() > kMaxNamed) {
    message += " -> (" + std::to_string(cycle.size() - kMaxNamed) + " more)";
  }
  for (size_t i = std::min(cycle.size(), kMaxNamed); i-- > 0;) {
    message += " -> '" + spec_.op_names[cycle[i]] + "'";
  }
  return message;
}

void Problem::CheckBounds() {
  constexpr Int128 kMax = std::numeric_limits<int64_t>::max();
  // The most that the three parts of a transfer can take.
  struct Part {
    int64_t fixed_ns = 0, bytes_per_s = std::numeric_limits<int64_t>::max();

    void Cover(int64_t more_ns, int64_t rate) {
      fixed_ns = std::max(fixed_ns, more_ns);
      if (rate > 0) bytes_per_s = std::min(bytes_per_s, rate);
    }
  };
  Part channel, send, receive;
  for (size_t i = 0; i < spec_.link_src.size(); ++i) {
    channel.Cover(spec_.link_latency_ns[i], spec_.link_bytes_per_s[i]);
    send.Cover(spec_.link_send_ns[i], spec_.link_send_bytes_per_s[i]);
    receive.Cover(spec_.link_receive_ns[i], spec_.link_receive_bytes_per_s[i]);
  }
  int64_t cold_ns = 0;
  for (int64_t of_device : spec_.device_cold_ns) cold_ns = std::max(cold_ns, of_device);
  const bool has_links = !spec_.link_src.empty();
  // `consumers` or fewer transfers of one tensor, to as many devices.
  const auto transfers_ns = [&](int64_t size_bytes, int32_t consumers) -> Int128 {
    if (!has_links) return 0;
    Int128 ns = WideNs(channel.fixed_ns, channel.bytes_per_s, size_bytes);
    if (has_work_) {
      ns += WideNs(send.fixed_ns, send.bytes_per_s, size_bytes) +
            WideNs(receive.fixed_ns, receive.bytes_per_s, size_bytes) + 2 * Int128{cold_ns};
    }
    return ns * std::max(0, std::min(consumers, num_devices() - 1));
  };
  std::vector<uint8_t> has_device(num_kinds(), 0);
  for (int32_t kind : spec_.device_kind) has_device[kind] = 1;
  Int128 time_ns = 0, bytes = 0;
  for (int64_t start_ns : spec_.device_start_ns) time_ns = std::max<Int128>(time_ns, start_ns);
  int64_t launch_ns = 0;
  for (int64_t of_device : spec_.device_launch_ns) launch_ns = std::max(launch_ns, of_device);
  for (int32_t op = 0; op < num_ops(); ++op) {
    int64_t cost = 0;
    for (int32_t kind = 0; kind < num_kinds(); ++kind) {
      if (has_device[kind]) cost = std::max(cost, spec_.cost_ns[int64_t{op} * num_kinds() + kind]);
    }
    time_ns +=
        Int128{cost} + launch_ns + transfers_ns(0, control_out_ptr_[op + 1] - control_out_ptr_[op]);
    bytes += spec_.persistent_bytes[op];
    bytes += spec_.temp_bytes[op];
    for (int32_t tensor = FirstTensor(op); tensor < FirstTensor(op + 1); ++tensor) {
      bytes += spec_.output_bytes[tensor];
      time_ns += transfers_ns(spec_.output_bytes[tensor],
                              consumer_ptr_[tensor + 1] - consumer_ptr_[tensor]);
      if (time_ns > kMax || bytes > kMax) break;  // before 128 bits overflow too
    }
    if (time_ns > kMax) Fail("ops", "the sum of all times could exceed 2^63 - 1 ns");
    if (bytes > kMax) Fail("ops", "the sum of all sizes could exceed 2^63 - 1 bytes");
  }
  max_time_ns_ = static_cast<int64_t>(time_ns);
}

void Problem::IndexUnits() {
  std::vector<int32_t> unit_of_group(spec_.colocation_group_names.size(), -1);
  int32_t num_units = 0;
  for (int32_t op = 0; op < num_ops(); ++op) {
    const int32_t group = spec_.colocation_group[op];
    if (group == kNoGroup) {
      units_.push_back(num_units++);
      continue;
    }
    if (unit_of_group[group] < 0) unit_of_group[group] = num_units++;
    units_.push_back(unit_of_group[group]);
  }
  unit_op_ptr_ = Offsets(units_, num_units);
  unit_ops_ = GroupByKey(units_, unit_op_ptr_);
}

void Problem::IndexCandidates() {
  candidate_ptr_.push_back(0);
  for (int32_t unit = 0; unit < num_units(); ++unit) {
    const auto begin = unit_ops_.begin() + unit_op_ptr_[unit];
    const auto end = unit_ops_.begin() + unit_op_ptr_[unit + 1];
    for (int32_t device = 0; device < num_devices(); ++device) {
      const bool runs = std::all_of(begin, end, [&](int32_t op) {
        return CostNs(op, device) != kNoKernel && IsAllowed(op, device);
      });
      is_candidate_.push_back(runs);
      if (runs) candidates_.push_back(device);
    }
    if (static_cast<int64_t>(candidates_.size()) > kMaxCount) {
      Fail("ops", "more than " + std::to_string(kMaxCount) + " pairs of a unit and its devices");
    }
    candidate_ptr_.push_back(static_cast<int32_t>(candidates_.size()));
  }
}

void Problem::IndexOrder() {
  if (spec_.order_op.empty()) return;
  OrderedGraph graph;
  graph.num_ops = num_ops();
  graph.node_op = spec_.order_op;
  graph.input_ptr.assign(spec_.order_input_ptr.begin(), spec_.order_input_ptr.end());
  for (size_t i = 0; i < spec_.order_inputs.size(); i += 2) {
    const int32_t output = spec_.order_inputs[i + 1];
    graph.inputs.push_back({spec_.order_inputs[i], output == kNothingRead ? kOnlyWaits : output});
  }
  graph.targets = spec_.order_targets;
  std::vector<bool> has_node(num_ops(), false);
  for (const int32_t op : spec_.order_op) has_node[op] = true;
  for (int32_t op = 0; op < num_ops(); ++op) {
    if (has_node[op]) continue;
    OrderedGraph::Added added = {op, {}, {}};
    for (int32_t r = read_ptr_[op]; r < read_ptr_[op + 1]; ++r) {
      const int32_t tensor = edge_tensor_[read_edges_[r]], source = tensor_op_[tensor];
      added.sources.push_back({source, tensor - FirstTensor(source)});
    }
    const auto consumers = consumers_.begin();
    added.readers.assign(consumers + consumer_ptr_[FirstTensor(op)],
                         consumers + consumer_ptr_[FirstTensor(op + 1)]);
    graph.added.push_back(std::move(added));
  }
  ShareWaits(&graph);
  std::vector<int32_t> missing(num_ops(), 1);
  for (const int32_t op : OpOrder().Find(graph, /*is_remapped=*/false)) missing[op] = 0;
  const auto first = std::find(missing.begin(), missing.end(), 1);
  if (first != missing.end()) {
    Fail("order.nodes", "op '" + spec_.op_names[first - missing.begin()] +
                            "' waits for a cycle of nodes, or is in it");
  }
  ordered_graph_ = std::make_shared<const OrderedGraph>(std::move(graph));
  std::vector<std::string> tasks;
  for (const std::string& name : spec_.device_names) tasks.push_back(TaskOf(name));
  ordered_devices_ = OrderDevices(spec_.device_names, tasks);
}

void CheckPlacement(const Problem& problem, const int32_t* placement, int64_t size) {
  if (size != problem.num_ops()) {
    Fail("placement", "has " + std::to_string(size) + " devices for " +
                          std::to_string(problem.num_ops()) + " ops");
  }
  // Without a branch, which the compiler turns into vector instructions.
  const auto num_devices = static_cast<uint32_t>(problem.num_devices());
  uint32_t outside = 0;
  for (int64_t i = 0; i < size; ++i) {
    outside |= static_cast<uint32_t>(placement[i]) >= num_devices;
  }
  if (!outside) return;
  const int32_t* const bad = std::find_if(placement, placement + size, [&](int32_t device) {
    return static_cast<uint32_t>(device) >= num_devices;
  });
  Fail(FieldPath("placement", bad - placement), "device " + std::to_string(*bad) +
                                                    " is out of range, there are " +
                                                    std::to_string(num_devices));
}

std::vector<int32_t> OpPlaces(const Problem& problem, const std::vector<int32_t>& placement) {
  CheckPlacement(problem, placement);
  if (problem.ordered_graph() != nullptr) {
    return OpOrder().Places(problem.ordered_graph(), problem.ordered_devices(), placement.data());
  }
  std::vector<int32_t> places(problem.num_ops());
  std::iota(places.begin(), places.end(), 0);
  return places;
}

}  // namespace hplacer
