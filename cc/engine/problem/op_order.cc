#include "engine/problem/op_order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace hplacer {
namespace {

bool Waits(const OrderedGraph::Input& input) { return input.output == kOnlyWaits; }

// Of each name its place among those that differ, by name from 0.
std::vector<int32_t> PlacesByName(const std::vector<std::string>& names) {
  std::vector<std::string> distinct = names;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<int32_t> places;
  for (const std::string& name : names) {
    const auto it = std::lower_bound(distinct.begin(), distinct.end(), name);
    places.push_back(static_cast<int32_t>(it - distinct.begin()));
  }
  return places;
}

// Counts become the offsets where each begins; the last one is their sum.
void MakeOffsets(std::vector<int32_t>* counts) {
  std::exclusive_scan(counts->begin(), counts->end(), counts->begin(), 0);
}

}  // namespace

OrderedDevices OrderDevices(const std::vector<std::string>& names,
                            const std::vector<std::string>& tasks) {
  OrderedDevices devices = {PlacesByName(names), PlacesByName(tasks)};
  const std::vector<int32_t>& of_tasks = devices.place_of_task;
  if (std::count(of_tasks.begin(), of_tasks.end(), 0) == static_cast<int64_t>(of_tasks.size())) {
    devices.place_of_task.clear();
  }
  return devices;
}

void ShareWaits(OrderedGraph* graph) {
  const auto num_nodes = static_cast<int32_t>(graph->node_op.size());
  const auto begin = graph->inputs.begin();
  // Of the inputs of a node, the first that is only waited for.
  const auto first_wait = [&](int32_t node) {
    return std::find_if(begin + graph->input_ptr[node], begin + graph->input_ptr[node + 1], Waits);
  };
  std::map<std::vector<int32_t>, std::vector<int32_t>> nodes_of;
  for (int32_t node = 0; node < num_nodes; ++node) {
    std::vector<int32_t> sources;
    const auto end = begin + graph->input_ptr[node + 1];
    bool has_own = false;
    for (auto it = first_wait(node); it != end; ++it) {
      sources.push_back(it->node);
      has_own |= graph->node_op[it->node] == graph->node_op[node];
    }
    if (sources.size() > 1 && !has_own) nodes_of[std::move(sources)].push_back(node);
  }
  graph->node_shared.assign(num_nodes, kNoneShared);
  for (const auto& [sources, nodes] : nodes_of) {
    if (nodes.size() < 2) continue;
    const auto index = static_cast<int32_t>(graph->shared.size());
    for (const int32_t node : nodes) graph->node_shared[node] = index;
    graph->shared.emplace_back();
    for (const int32_t source : sources) graph->shared.back().push_back({source, kOnlyWaits});
  }
  std::vector<OrderedGraph::Input> kept;
  std::vector<int32_t> kept_ptr = {0};
  for (int32_t node = 0; node < num_nodes; ++node) {
    const bool is_shared = graph->node_shared[node] != kNoneShared;
    kept.insert(kept.end(), begin + graph->input_ptr[node],
                is_shared ? first_wait(node) : begin + graph->input_ptr[node + 1]);
    kept_ptr.push_back(static_cast<int32_t>(kept.size()));
  }
  graph->inputs = std::move(kept);
  graph->input_ptr = std::move(kept_ptr);
}

std::vector<int32_t> OpOrder::Find(const OrderedGraph& graph, bool is_remapped) {
  graph_.reset();
  TakeNodes(graph);
  MakeShared(graph, nullptr);
  std::vector<int32_t> ops = OrderIds(graph, is_remapped);
  ops.erase(
      std::remove_if(ops.begin(), ops.end(), [&graph](int32_t id) { return id >= graph.num_ops; }),
      ops.end());
  return ops;
}

const std::vector<int32_t>& OpOrder::Places(const std::shared_ptr<const OrderedGraph>& graph,
                                            const OrderedDevices& devices,
                                            const int32_t* placement) {
  const bool is_new = graph != graph_;
  if (is_new) {
    graph_ = graph;
    FindMoving();
  }
  if (!HasMoved(placement) && !is_new) return places_;
  TakeNodes(*graph);
  MakeShared(*graph, placement);
  GroupWaits(devices.place, placement);
  if (!devices.place_of_task.empty()) GroupWaits(devices.place_of_task, placement);
  places_.resize(graph->num_ops);
  int32_t place = 0;
  for (const int32_t id : OrderIds(*graph, /*is_remapped=*/true)) {
    if (id < graph->num_ops) places_[id] = place++;
  }
  return places_;
}

// ---- what matters of a placement ----

void OpOrder::FindMoving() {
  waiting_.clear();
  moving_.clear();
  const auto add = [this](const Input* begin, const Input* end) {
    for (const Input* input = begin; input != end; ++input) {
      if (Waits(*input)) moving_.push_back(graph_->node_op[input->node]);
    }
  };
  const auto num_nodes = static_cast<int32_t>(graph_->node_op.size());
  for (int32_t node = 0; node < num_nodes; ++node) {
    const Input* const begin = graph_->inputs.data() + graph_->input_ptr[node];
    const Input* const end = graph_->inputs.data() + graph_->input_ptr[node + 1];
    const bool waits = std::count_if(begin, end, Waits) > 1;
    if (waits) {
      waiting_.push_back(node);
      add(begin, end);
    }
    if (waits || graph_->node_shared[node] != kNoneShared) {
      moving_.push_back(graph_->node_op[node]);
    }
  }
  for (const auto& shared : graph_->shared) add(shared.data(), shared.data() + shared.size());
  std::sort(moving_.begin(), moving_.end());
  moving_.erase(std::unique(moving_.begin(), moving_.end()), moving_.end());
  moving_device_.assign(moving_.size(), -1);
}

// Also keeps where they are now.
bool OpOrder::HasMoved(const int32_t* placement) {
  bool has_moved = false;
  for (size_t i = 0; i < moving_.size(); ++i) {
    const int32_t device = placement[moving_[i]];
    has_moved |= std::exchange(moving_device_[i], device) != device;
  }
  return has_moved;
}

// ---- nodes, and what is made ----

void OpOrder::TakeNodes(const OrderedGraph& graph) {
  op_ = graph.node_op;
  begin_.assign(graph.input_ptr.begin(), graph.input_ptr.end() - 1);
  end_.assign(graph.input_ptr.begin() + 1, graph.input_ptr.end());
  inputs_ = graph.inputs;
  made_device_.clear();
  first_shared_ = end_shared_ = graph.num_ops;
}

void OpOrder::SetInputs(int32_t node, const std::vector<Input>& inputs) {
  begin_[node] = static_cast<int32_t>(inputs_.size());
  inputs_.insert(inputs_.end(), inputs.begin(), inputs.end());
  end_[node] = static_cast<int32_t>(inputs_.size());
}

int32_t OpOrder::MakeNode(int32_t device, const std::vector<Input>& inputs) {
  const auto node = static_cast<int32_t>(op_.size());
  op_.push_back(first_shared_ + num_made());
  made_device_.push_back(device);
  begin_.push_back(0);
  end_.push_back(0);
  SetInputs(node, inputs);
  return node;
}

int32_t OpOrder::DeviceOf(int32_t node, const int32_t* placement) const {
  const size_t num_nodes = op_.size() - made_device_.size();
  const auto i = static_cast<size_t>(node);
  return i < num_nodes ? placement[op_[i]] : made_device_[i - num_nodes];
}

// One for all nodes of a device that wait for the same list. Without a placement: for all.
void OpOrder::MakeShared(const OrderedGraph& graph, const int32_t* placement) {
  const size_t num_lists = graph.shared.size();
  shared_by_.clear();
  const auto num_nodes = static_cast<int32_t>(graph.node_shared.size());
  for (int32_t node = 0; num_lists > 0 && node < num_nodes; ++node) {
    const int32_t list = graph.node_shared[node];
    if (list == kNoneShared) continue;
    const int32_t device = placement == nullptr ? 0 : placement[graph.node_op[node]];
    const size_t place = device * num_lists + list;
    if (shared_by_.size() <= place) shared_by_.resize(place + 1, -1);
    if (shared_by_[place] < 0) shared_by_[place] = MakeNode(device, graph.shared[list]);
    kept_.assign(inputs_.begin() + begin_[node], inputs_.begin() + end_[node]);
    kept_.push_back({shared_by_[place], kOnlyWaits});
    SetInputs(node, kept_);
  }
  end_shared_ = first_shared_ + num_made();
}

void OpOrder::GroupWaits(const std::vector<int32_t>& places, const int32_t* placement) {
  num_waits_.assign(places.size(), 0);
  groups_.resize(places.size());
  const auto num_nodes = static_cast<int32_t>(graph_->node_op.size());
  for (const int32_t node : waiting_) GroupWaitsOf(node, places, placement);
  for (int32_t i = 0; i < end_shared_ - first_shared_; ++i) {
    GroupWaitsOf(num_nodes + i, places, placement);
  }
}

// A group for each place from which the node waits for several, but for its own. Grappler takes
// what is grouped out of the list of inputs by exchanging it with the last one.
void OpOrder::GroupWaitsOf(int32_t node, const std::vector<int32_t>& places,
                           const int32_t* placement) {
  const int32_t own = places[DeviceOf(node, placement)];
  kept_.assign(inputs_.begin() + begin_[node], inputs_.begin() + end_[node]);
  bool has_groups = false;
  for (const Input& input : kept_) {
    if (!Waits(input)) continue;
    const int32_t place = places[DeviceOf(input.node, placement)];
    if (place != own) has_groups |= ++num_waits_[place] > 1;
  }
  for (size_t i = 0; has_groups && i < kept_.size();) {
    const Input input = kept_[i];
    const int32_t place = places[DeviceOf(input.node, placement)];
    if (!Waits(input) || num_waits_[place] < 2) {
      ++i;
      continue;
    }
    groups_[place].push_back(input);
    kept_[i] = kept_.back();
    kept_.pop_back();
  }
  std::fill(num_waits_.begin(), num_waits_.end(), 0);
  if (!has_groups) return;
  for (std::vector<Input>& group : groups_) {
    if (group.empty()) continue;
    kept_.push_back({MakeNode(DeviceOf(group.back().node, placement), group), kOnlyWaits});
    group.clear();
  }
  SetInputs(node, kept_);
}

// ---- the search from what is fetched ----

void OpOrder::Search(std::vector<int32_t> targets) {
  rank_.assign(op_.size(), -1);
  next_rank_ = static_cast<int32_t>(op_.size());
  SearchFrom(std::move(targets));
  // What only edges lead to that close a loop, or what is removed.
  std::vector<int32_t> others;
  for (size_t node = 0; node < rank_.size(); ++node) {
    if (rank_[node] < 0) others.push_back(static_cast<int32_t>(node));
  }
  SearchFrom(std::move(others));
}

void OpOrder::SearchFrom(std::vector<int32_t> stack) {
  std::sort(stack.begin(), stack.end());
  while (!stack.empty()) {
    const int32_t node = stack.back();
    stack.pop_back();
    if (rank_[node] >= 0) continue;
    rank_[node] = --next_rank_;
    for (int32_t i = begin_[node]; i < end_[node]; ++i) {
      if (rank_[inputs_[i].node] < 0) stack.push_back(inputs_[i].node);
    }
  }
}

std::vector<int32_t> OpOrder::Unread() const {
  std::vector<bool> is_read(op_.size(), false);
  std::vector<int32_t> unread;
  for (size_t node = 0; node < op_.size(); ++node) {
    for (int32_t i = begin_[node]; i < end_[node]; ++i) is_read[inputs_[i].node] = true;
  }
  for (size_t node = 0; node < op_.size(); ++node) {
    if (!is_read[node]) unread.push_back(static_cast<int32_t>(node));
  }
  return unread;
}

// ---- ids ----

void OpOrder::FindEdges(const OrderedGraph& graph) {
  num_ids_ = graph.num_ops + num_made();
  std::vector<Edge> edges;
  edges.reserve(inputs_.size());
  for (size_t node = 0; node < op_.size(); ++node) {
    for (int32_t i = begin_[node]; i < end_[node]; ++i) {
      const int32_t source = op_[inputs_[i].node];
      if (source != op_[node]) edges.push_back({source, op_[node], inputs_[i].output});
    }
  }
  for (const OrderedGraph::Added& added : graph.added) {
    for (const Input& source : added.sources)
      edges.push_back({source.node, added.op, source.output});
    for (const int32_t reader : added.readers) edges.push_back({added.op, reader, 0});
  }
  first_edge_.assign(num_ids_ + 1, 0);
  first_follower_.assign(num_ids_ + 1, 0);
  for (const Edge& edge : edges) {
    ++first_edge_[edge.id];
    ++first_follower_[edge.source];
  }
  MakeOffsets(&first_edge_);
  MakeOffsets(&first_follower_);
  followers_.resize(edges.size());
  std::vector<int32_t> cursor = first_edge_;
  edges_.resize(edges.size());
  for (const Edge& edge : edges) edges_[cursor[edge.id]++] = edge;
}

// Ids by the rank of their first node; what is added comes before its first reader.
std::vector<int32_t> OpOrder::SearchedIds(const OrderedGraph& graph) const {
  constexpr int32_t kLast = std::numeric_limits<int32_t>::max();
  std::vector<int32_t> rank(num_ids_, kLast), ids(num_ids_), node_at(op_.size());
  for (size_t node = 0; node < op_.size(); ++node) {
    node_at[rank_[node]] = static_cast<int32_t>(node);
    rank[op_[node]] = std::min(rank[op_[node]], rank_[node]);
  }
  std::vector<std::pair<int32_t, int32_t>> added;  // (rank, id)
  for (const OrderedGraph::Added& one : graph.added) {
    int32_t first = kLast;
    for (const int32_t reader : one.readers) first = std::min(first, rank[reader]);
    added.emplace_back(first, one.op);
  }
  std::sort(added.begin(), added.end());
  ids.clear();
  auto next = added.begin();
  const auto add_until = [&](int32_t last) {
    for (; next != added.end() && next->first <= last; ++next) ids.push_back(next->second);
  };
  for (size_t r = 0; r < node_at.size(); ++r) {
    const int32_t id = op_[node_at[r]];
    if (rank[id] != static_cast<int32_t>(r)) continue;
    add_until(rank[id]);
    ids.push_back(id);
  }
  add_until(kLast);
  return ids;
}

// What follows each id, in the order of these.
void OpOrder::FindFollowers(const std::vector<int32_t>& ids) {
  std::vector<int32_t> cursor = first_follower_;
  for (const int32_t id : ids) {
    for (int32_t e = first_edge_[id]; e < first_edge_[id + 1]; ++e) {
      followers_[cursor[edges_[e].source]++] = {id, edges_[e].output};
    }
  }
}

void OpOrder::SortFollowersByOutput() {
  const auto is_before = [](const Follower& a, const Follower& b) { return a.output < b.output; };
  for (int32_t id = 0; id < num_ids_; ++id) {
    const auto begin = followers_.begin() + first_follower_[id];
    const auto end = followers_.begin() + first_follower_[id + 1];
    if (!std::is_sorted(begin, end, is_before)) std::stable_sort(begin, end, is_before);
  }
}

// What has all its inputs follows in the order in which they came; of one, in that of `ids`.
std::vector<int32_t> OpOrder::ReadyIds(const std::vector<int32_t>& ids) const {
  std::vector<int32_t> pending(num_ids_), ready;
  ready.reserve(num_ids_);
  for (const int32_t id : ids) {
    pending[id] = first_edge_[id + 1] - first_edge_[id];
    if (pending[id] == 0) ready.push_back(id);
  }
  const auto pass_on = [&](int32_t id, const auto& arrive) {
    for (int32_t f = first_follower_[id]; f < first_follower_[id + 1]; ++f) {
      if (--pending[followers_[f].id] == 0) arrive(followers_[f].id);
    }
  };
  const auto add = [&](int32_t id) { ready.push_back(id); };
  for (size_t next = 0; next < ready.size(); ++next) {
    if (IsShared(ready[next])) continue;
    pass_on(ready[next], [&](int32_t id) {
      add(id);
      if (IsShared(id)) pass_on(id, add);
    });
  }
  return ready;
}

// As the remapper leaves them: a depth-first search along the followers, turned round.
std::vector<int32_t> OpOrder::RemappedIds(const std::vector<int32_t>& ids) const {
  enum class Visited : uint8_t { kNot, kEntered, kLeft };
  std::vector<Visited> visited(num_ids_, Visited::kNot);
  std::vector<int32_t> result(num_ids_), stack;
  auto next = result.end();
  for (size_t i = ids.size(); i-- > 0;) {
    if (first_edge_[ids[i]] == first_edge_[ids[i] + 1]) stack.push_back(ids[i]);
    while (!stack.empty()) {
      const int32_t id = stack.back();
      if (visited[id] == Visited::kNot) {
        visited[id] = Visited::kEntered;
        for (int32_t f = first_follower_[id]; f < first_follower_[id + 1]; ++f) {
          if (visited[followers_[f].id] == Visited::kNot) stack.push_back(followers_[f].id);
        }
        continue;
      }
      stack.pop_back();
      if (std::exchange(visited[id], Visited::kLeft) == Visited::kEntered) *--next = id;
    }
  }
  return result;
}

std::vector<int32_t> OpOrder::OrderIds(const OrderedGraph& graph, bool is_remapped) {
  Search(graph.targets.empty() ? Unread() : graph.targets);
  FindEdges(graph);
  std::vector<int32_t> ids = SearchedIds(graph);
  FindFollowers(ids);
  ids = ReadyIds(ids);
  if (!is_remapped || static_cast<int32_t>(ids.size()) < num_ids_) return ids;
  FindFollowers(ids);
  SortFollowersByOutput();
  ids = RemappedIds(ids);
  FindFollowers(ids);
  return ReadyIds(ids);
}

}  // namespace hplacer
