#include "tf/capture.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/problem/op_order.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/types.h"
#include "tf/copied_reads.h"
#include "tf/host_tensors.h"
#include "tf/layout_transposes.h"
#include "tf/merged_sums.h"
#include "tf/neutral_ops.h"
#include "tf/node_order.h"
#include "tf/op_work.h"
#include "tf/ordered_inputs.h"
#include "tf/removed_ops.h"
#include "tf/repeated_ops.h"
#include "tf/static_ops.h"

namespace hplacer {
namespace {

using tensorflow::Edge;
using tensorflow::Node;

constexpr int32_t kNoAlias = -1;
constexpr int32_t kPersistentAlias = -2;
constexpr int32_t kNothingRead = -1;

// Ops whose output 0 is their input 0 under another name.
bool ForwardsInput(const Node& node) {
  static const auto* const ops = new absl::flat_hash_set<std::string_view>(
      {"Identity", "StopGradient", "PreventGradient", "Reshape", "Squeeze", "ExpandDims",
       "RefIdentity", "Switch", "RefSwitch"});
  return ops->contains(node.type_string());
}

class StepCapture {
 public:
  StepCapture(const UnitsInput& input, const std::vector<uint64_t>& node_hashes,
              const std::vector<int32_t>& default_devices, const CostOptions& options,
              CapturedStep* captured)
      : input_(input),
        step_(*input.step),
        hashes_(node_hashes),
        default_devices_(default_devices),
        options_(options),
        out_(captured) {}

  absl::Status Run() {
    if (absl::Status status = FindUnits(input_, &units_); !status.ok()) return status;
    tensorflow::GraphDef graph;
    absl::Status status =
        EstimateCosts(step_.nodes, input_.library, options_, &costs_, &graph, &out_->assumptions);
    if (!status.ok()) return status;
    if (units_.compiled_by_xla > 0) {
      out_->assumptions.push_back(
          absl::StrCat("ops that XLA compiles: ", units_.compiled_by_xla,
                       ", which stay where TensorFlow has them; what they take is not known"));
    }
    FindConstants();
    FindNeutral();
    NumberNodes();
    InputLists inputs = OrderedInputs(step_);
    if (status = NumberOps(inputs, /*is_remapped=*/false); !status.ok()) return status;
    const std::vector<int32_t> by_op = PositionsByOp();
    FindRemoved(by_op, inputs);
    JoinEqual(by_op);
    MergeSums();
    FindRepeated(by_op);
    LeaveOnHost();
    JoinUnits(by_op);
    AddTransposes(std::move(graph));
    // Grappler runs twice, the second time on what the first one left.
    KeepLeftInputs(&inputs);
    if (status = NumberOps(inputs, /*is_remapped=*/true); !status.ok()) return status;
    trips_ = TripsOfNodes();
    FillOps();
    FillOrder();
    FillSameConstants();
    FillEdges();
    FillAliases();
    FillUnits();
    FillNodes();
    return absl::OkStatus();
  }

 private:
  // Finds the nodes that are constants at run time; these cost what a constant costs.
  void FindConstants() {
    is_static_ = FindStaticOps(step_, costs_);
    for (size_t i = 0; i < is_static_.size(); ++i) {
      if (is_static_[i]) TakeKernel(i);
    }
  }

  // Finds the nodes that hand on an input at run time; these cost what an Identity costs.
  void FindNeutral() {
    handed_on_ = FindNeutralOps(step_, is_static_, costs_);
    for (size_t i = 0; i < handed_on_.size(); ++i) {
      if (handed_on_[i] == kComputes) continue;
      TakeKernel(i);
      costs_[i].signature.clear();  // no measured cost is its own
    }
  }

  // The node costs what an op without a kernel costs.
  void TakeKernel(size_t i) {
    for (size_t kind = 0; kind < costs_[i].cost_ns.size(); ++kind) {
      costs_[i].cost_ns[kind] =
          WorkTimeNs({/*flops=*/0, /*bytes=*/0, /*kernels=*/0}, (*options_.kinds)[kind]);
    }
    costs_[i].launches = 0;
  }

  // Whether a node reads this input at run time.
  bool Reads(size_t i, int32_t input) const {
    return handed_on_[i] == kComputes || handed_on_[i] == input;
  }

  // Finds the nodes that are removed before run time; these cost nothing and hold nothing.
  void FindRemoved(const std::vector<int32_t>& by_op, const InputLists& inputs) {
    std::vector<bool> is_fixed(step_.nodes.size());
    for (size_t i = 0; i < is_fixed.size(); ++i) is_fixed[i] = units_.frame_of[i] >= 0;
    removed_ = FindRemovedOps(step_, is_static_, is_fixed, by_op, inputs);
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      if (removed_.is_removed[i]) TakeCosts(i);
    }
  }

  // A node that runs as an equal one is removed, and goes where that one is. What read it or waited
  // for it reads that one, or waits for that one.
  void JoinEqual(const std::vector<int32_t>& by_op) {
    runs_as_ = FindJoinedOps(step_, units_, removed_, is_static_, handed_on_, costs_, by_op);
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      if (runs_as_[i] != static_cast<int32_t>(i)) {
        removed_.is_removed[i] = true;
        removed_.neighbour[i] = runs_as_[i];
        TakeCosts(i);
      } else if (removed_.neighbour[i] >= 0) {
        removed_.neighbour[i] = runs_as_[removed_.neighbour[i]];
      }
      std::vector<int32_t> waits_for;
      absl::flat_hash_set<int32_t> known;
      for (const int32_t source : removed_.waits_for[i]) {
        if (known.insert(runs_as_[source]).second) waits_for.push_back(runs_as_[source]);
      }
      removed_.waits_for[i] = std::move(waits_for);
    }
  }

  // A sum that is merged into another one is removed, and goes where that one is.
  void MergeSums() {
    sums_ = FindMergedSums(step_, units_, removed_, is_static_, handed_on_, costs_, runs_as_);
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      const size_t num_inputs = sums_.inputs[i].size();
      if (num_inputs == 0) continue;
      const auto bytes = static_cast<double>(costs_[i].output_bytes[0]) * (num_inputs + 1);
      for (size_t kind = 0; kind < costs_[i].cost_ns.size(); ++kind) {
        if (costs_[i].cost_ns[kind] < 0) continue;
        costs_[i].cost_ns[kind] = WorkTimeNs({/*flops=*/0, bytes}, (*options_.kinds)[kind]);
      }
      costs_[i].signature.clear();  // no measured cost is that of so many inputs
    }
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      if (sums_.into[i] < 0) continue;
      removed_.is_removed[i] = true;
      removed_.neighbour[i] = sums_.into[i];
      TakeCosts(i);
    }
  }

  // Finds the other nodes that TensorFlow merges with an equal one; these cost nothing.
  void FindRepeated(const std::vector<int32_t>& by_op) {
    repeated_ =
        FindRepeatedOps(step_, units_, removed_, is_static_, handed_on_, costs_, by_op, runs_as_);
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      if (!repeated_.is_repeated[i]) continue;
      TakeKernel(i);
      costs_[i].signature.clear();  // no measured cost is its own
    }
  }

  // What a GPU has in the host's memory is not copied within a task: it counts as no bytes.
  void LeaveOnHost() {
    const std::vector<SessionDevice>& devices = *input_.devices;
    const auto is_gpu = [](const SessionDevice& device) { return device.type == "GPU"; };
    const auto is_in_first_task = [&](const SessionDevice& device) {
      return TaskOf(device.name) == TaskOf(devices[0].name);
    };
    if (!absl::c_any_of(devices, is_gpu) || !absl::c_all_of(devices, is_in_first_task)) return;
    const std::vector<std::vector<bool>> on_host = FindHostTensors(step_);
    for (size_t i = 0; i < on_host.size(); ++i) {
      for (size_t k = 0; k < on_host[i].size(); ++k) {
        if (on_host[i][k]) costs_[i].output_bytes[k] = 0;
      }
    }
  }

  void TakeCosts(size_t i) {
    for (int64_t& cost_ns : costs_[i].cost_ns) cost_ns = std::min<int64_t>(cost_ns, 0);
    costs_[i].launches = 0;
    std::fill(costs_[i].output_bytes.begin(), costs_[i].output_bytes.end(), 0);
  }

  // All positions in the order of their ops.
  std::vector<int32_t> PositionsByOp() const {
    std::vector<int32_t> positions(step_.nodes.size());
    std::iota(positions.begin(), positions.end(), 0);
    std::sort(positions.begin(), positions.end(), [this](int32_t a, int32_t b) {
      return std::make_pair(op_of_[a], step_.nodes[a]->id()) <
             std::make_pair(op_of_[b], step_.nodes[b]->id());
    });
    return positions;
  }

  // What is removed goes where its neighbour is: alone elsewhere, TensorFlow might keep it, so as
  // not to add edges between devices. A constant goes where its first reader is.
  void JoinUnits(const std::vector<int32_t>& by_op) {
    std::vector<int32_t> size(units_.allowed.size(), 0);
    for (const int32_t unit : units_.unit_of) ++size[unit];
    std::vector<int32_t> neighbour = removed_.neighbour;
    for (const int32_t i : by_op) {
      if (removed_.is_removed[i] || is_static_[i]) continue;
      ForEachInput(i, [&](int32_t source, const Edge& edge) {
        if (is_static_[source] && !edge.IsControlEdge() && neighbour[source] < 0) {
          neighbour[source] = i;
        }
      });
    }
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      const int32_t own = units_.unit_of[i];
      if (neighbour[i] < 0 || size[own] > 1) continue;
      const int32_t unit = units_.unit_of[neighbour[i]];
      const std::vector<int32_t>& allowed = units_.allowed[own];
      const std::vector<int32_t>& of_neighbour = units_.allowed[unit];
      if (std::includes(allowed.begin(), allowed.end(), of_neighbour.begin(), of_neighbour.end())) {
        units_.unit_of[i] = unit;
      }
    }
  }

  // Of what is left: those that nobody reads any more, and those in loops, are left out.
  void AddTransposes(tensorflow::GraphDef graph) {
    const auto merged = [this](int32_t i) {
      return sums_.into[i] >= 0 ? sums_.into[i] : runs_as_[i];
    };
    const auto is_left = [this](int32_t i) {
      return !removed_.is_removed[i] && !is_static_[i] && units_.frame_of[i] < 0;
    };
    std::vector<int32_t> handed_on = handed_on_;
    for (size_t i = 0; i < handed_on.size(); ++i) {
      if (costs_[i].keeps_shape) handed_on[i] = 0;
    }
    for (AddedTranspose& added :
         FindAddedTransposes(step_, units_, *input_.devices, handed_on, std::move(graph))) {
      added.source = runs_as_[added.source];
      added.owner = merged(added.owner);
      std::vector<int32_t> readers;
      for (const int32_t reader : added.readers) {
        if (is_left(merged(reader))) readers.push_back(merged(reader));
      }
      if (readers.empty() || !is_left(added.source) || !is_left(added.owner)) continue;
      added.readers = std::move(readers);
      for (const int32_t reader : added.readers) {
        transpose_between_[{added.source, added.src_output, reader}] =
            static_cast<int32_t>(transposes_.size());
      }
      transposes_.push_back(std::move(added));
    }
  }

  // What is left of the nodes' inputs when constants are known and other nodes are removed.
  void KeepLeftInputs(InputLists* inputs) const {
    for (size_t i = 0; i < inputs->size(); ++i) {
      std::vector<int32_t>& sources = (*inputs)[i];
      sources.resize(is_static_[i] || removed_.is_removed[i] ? 0 : NumDataInputs(step_, i));
      if (handed_on_[i] != kComputes && !sources.empty()) sources = {sources[handed_on_[i]]};
      for (int32_t& source : sources) source = runs_as_[source];
      SortCommuting(step_, i, &sources);
      if (!sums_.inputs[i].empty()) {
        sources.clear();
        for (const StepEdge& edge : sums_.inputs[i]) sources.push_back(edge.source);
      }
      const auto& waits_for = removed_.waits_for[i];  // nothing, where the node is removed itself
      sources.insert(sources.end(), waits_for.begin(), waits_for.end());
    }
  }

  // By source that the node reads: the first output of it that it reads.
  absl::flat_hash_map<int32_t, int32_t> OutputsRead(size_t i) const {
    absl::flat_hash_map<int32_t, int32_t> outputs;
    const auto add = [&](const StepEdge& edge) {
      if (edge.dst_input == tensorflow::Graph::kControlSlot) return;
      const int32_t source = runs_as_.empty() ? edge.source : runs_as_[edge.source];
      int32_t& output = outputs.try_emplace(source, edge.src_output).first->second;
      output = std::min(output, edge.src_output);
    };
    for (size_t k = step_.first_edge[i]; k < step_.first_edge[i + 1]; ++k) add(step_.edges[k]);
    if (!sums_.inputs.empty()) absl::c_for_each(sums_.inputs[i], add);
    return outputs;
  }

  // All positions by the names of their nodes, and the other way round.
  void NumberNodes() {
    by_name_.resize(step_.nodes.size());
    std::iota(by_name_.begin(), by_name_.end(), 0);
    SortByName(step_, by_name_.begin(), by_name_.end());
    node_number_.resize(by_name_.size());
    for (size_t number = 0; number < by_name_.size(); ++number) {
      node_number_[by_name_[number]] = static_cast<int32_t>(number);
    }
  }

  // Of provisional ops: collapsed loops, then single nodes, then transposes.
  OrderedGraph GraphToOrder(const InputLists& inputs) const {
    OrderedGraph graph;
    const size_t num_nodes = step_.nodes.size();
    std::vector<int32_t> provisional(num_nodes);
    graph.num_ops = static_cast<int32_t>(units_.frame_names.size());
    for (size_t i = 0; i < num_nodes; ++i) {
      provisional[i] = units_.frame_of[i] >= 0 ? units_.frame_of[i] : graph.num_ops++;
    }
    graph.input_ptr.push_back(0);
    for (const int32_t i : by_name_) {
      graph.node_op.push_back(provisional[i]);
      const auto outputs = OutputsRead(i);
      for (const int32_t source : inputs[i]) {
        const auto read = outputs.find(source);
        const int32_t output = read == outputs.end() ? kOnlyWaits : read->second;
        graph.inputs.push_back({node_number_[source], output});
      }
      graph.input_ptr.push_back(static_cast<int32_t>(graph.inputs.size()));
    }
    for (const Node* target : step_.targets) {
      graph.targets.push_back(node_number_[step_.position[target->id()]]);
    }
    for (const AddedTranspose& transpose : transposes_) {
      graph.added.push_back({graph.num_ops++, {}, {}});
      graph.added.back().sources = {{provisional[transpose.source], transpose.src_output}};
      for (const int32_t reader : transpose.readers) {
        graph.added.back().readers.push_back(provisional[reader]);
      }
    }
    return graph;
  }

  // Position -> op, ops in the order in which TensorFlow has them if all are on one device, with
  // every collapsed loop as one op.
  absl::Status NumberOps(const InputLists& inputs, bool is_remapped) {
    graph_ = GraphToOrder(inputs);
    num_ops_ = graph_.num_ops;
    OrderedGraph shared = graph_;
    ShareWaits(&shared);
    const std::vector<int32_t> order = OpOrder().Find(shared, is_remapped);
    if (static_cast<int32_t>(order.size()) != num_ops_) {
      return absl::UnimplementedError(
          "a while loop feeds itself through ops outside of the loop: it cannot be one op");
    }
    std::vector<int32_t> final_id(num_ops_);
    for (int32_t op = 0; op < num_ops_; ++op) final_id[order[op]] = op;
    for (int32_t& op : graph_.node_op) op = final_id[op];
    op_of_.resize(step_.nodes.size());
    for (size_t i = 0; i < op_of_.size(); ++i) op_of_[i] = graph_.node_op[node_number_[i]];
    frame_op_.assign(final_id.begin(), final_id.begin() + units_.frame_names.size());
    transpose_op_.assign(final_id.end() - transposes_.size(), final_id.end());
    return absl::OkStatus();
  }

  // Calls f(source position, edge) for the step's edges into position `i`; back-edges are cut. The
  // source is the node that runs for the one at the edge.
  template <typename F>
  void ForEachInput(size_t i, const F& f) const {
    for (const Edge* edge : step_.nodes[i]->in_edges()) {
      if (!edge->src()->IsOp() || IsBackEdge(*edge)) continue;
      f(runs_as_[step_.position[edge->src()->id()]], *edge);
    }
  }

  // How often each node of a collapsed loop runs; 1 elsewhere.
  std::vector<int64_t> TripsOfNodes() {
    std::vector<int64_t> trips(step_.nodes.size(), 1);
    if (units_.frame_names.empty()) return trips;
    const std::map<std::string, int64_t> constant = ConstantLoopTrips(step_.nodes);
    int64_t assumed = 0;
    std::vector<int64_t> of_frame;
    for (const std::string& frame : units_.frame_names) {
      const auto it = constant.find(frame);
      assumed += it == constant.end();
      of_frame.push_back(it == constant.end() ? options_.loop_trip_count : it->second);
    }
    for (size_t i = 0; i < trips.size(); ++i) {
      if (units_.frame_of[i] >= 0) trips[i] = std::max<int64_t>(1, of_frame[units_.frame_of[i]]);
    }
    if (assumed > 0) {
      out_->assumptions.push_back(
          absl::StrCat(assumed, " while loops without a constant bound: ", options_.loop_trip_count,
                       " trips (option loop_trip_count)"));
    }
    return trips;
  }

  bool IsLoopOutput(size_t i) const {
    if (units_.frame_of[i] < 0 || !step_.nodes[i]->IsExit()) return false;
    return std::any_of(step_.nodes[i]->out_edges().begin(), step_.nodes[i]->out_edges().end(),
                       [&](const Edge* edge) {
                         return step_.position[edge->dst()->id()] >= 0 &&
                                units_.frame_of[step_.position[edge->dst()->id()]] !=
                                    units_.frame_of[i];
                       });
  }

  void FillOps() {
    const size_t num_kinds = options_.kinds->size();
    out_->num_kinds = static_cast<int>(num_kinds);
    out_->op_names.resize(num_ops_);
    out_->op_types.resize(num_ops_);
    out_->op_signatures.resize(num_ops_);
    out_->cost_ns.assign(num_ops_ * num_kinds, 0);
    out_->temp_bytes.assign(num_ops_, 0);
    out_->persistent_bytes.assign(num_ops_, 0);
    out_->is_static.assign(num_ops_, 0);
    out_->is_removed.assign(num_ops_, 0);
    out_->is_repeated.assign(num_ops_, 0);
    std::vector<std::vector<int64_t>> outputs(num_ops_);
    OpCosts nothing;
    nothing.cost_ns.assign(num_kinds, 0);
    nothing.launches = 0;
    std::vector<OpCosts> sums(num_ops_, nothing);
    first_output_.assign(step_.nodes.size(), -1);
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      const int32_t op = op_of_[i];
      const bool in_loop = units_.frame_of[i] >= 0;
      out_->op_names[op] =
          in_loop ? units_.frame_names[units_.frame_of[i]] : step_.nodes[i]->name();
      out_->op_types[op] = in_loop ? "WhileLoop" : step_.nodes[i]->type_string();
      if (!in_loop) out_->op_signatures[op] = std::move(costs_[i].signature);
      if (!in_loop) out_->is_static[op] = is_static_[i];
      if (!in_loop) out_->is_removed[op] = removed_.is_removed[i];
      if (!in_loop) {
        out_->is_repeated[op] = repeated_.is_repeated[i] || runs_as_[i] != static_cast<int32_t>(i);
      }
      AddTrips(costs_[i], trips_[i], &sums[op]);
      out_->persistent_bytes[op] += costs_[i].persistent_bytes;
      if (in_loop && !IsLoopOutput(i)) continue;
      first_output_[i] = static_cast<int32_t>(outputs[op].size());
      outputs[op].insert(outputs[op].end(), costs_[i].output_bytes.begin(),
                         costs_[i].output_bytes.end());
    }
    for (size_t t = 0; t < transposes_.size(); ++t) {
      const AddedTranspose& added = transposes_[t];
      const int32_t op = transpose_op_[t];
      out_->op_names[op] = added.name;
      out_->op_types[op] = "Transpose";
      const int64_t bytes = costs_[added.source].output_bytes[added.src_output];
      outputs[op] = {bytes};
      OpWork work;
      work.bytes = 2.0 * static_cast<double>(bytes);
      for (size_t kind = 0; kind < num_kinds; ++kind) {
        const KindRates& rates = (*options_.kinds)[kind];
        if (rates.type == "GPU") sums[op].cost_ns[kind] = WorkTimeNs(work, rates);
      }
      sums[op].launches = NumLaunches(work);
    }
    for (int32_t op = 0; op < num_ops_; ++op) {
      for (size_t kind = 0; kind < num_kinds; ++kind) {
        const KindRates& rates = (*options_.kinds)[kind];
        out_->cost_ns[op * num_kinds + kind] = CostOnKind(sums[op], kind, rates);
      }
    }
    MakeNamesDistinct();
    out_->output_ptr.push_back(0);
    for (const auto& bytes : outputs) {
      out_->output_bytes.insert(out_->output_bytes.end(), bytes.begin(), bytes.end());
      out_->output_ptr.push_back(static_cast<int64_t>(out_->output_bytes.size()));
    }
  }

  void FillOrder() {
    out_->order_op = graph_.node_op;
    out_->order_input_ptr.assign(graph_.input_ptr.begin(), graph_.input_ptr.end());
    for (const OrderedGraph::Input& input : graph_.inputs) {
      const int32_t output = input.output == kOnlyWaits ? kNothingRead : input.output;
      out_->order_inputs.insert(out_->order_inputs.end(), {input.node, output});
    }
    out_->order_targets = graph_.targets;
  }

  // A loop's frame name may equal a node's name.
  void MakeNamesDistinct() {
    absl::flat_hash_set<std::string> names(out_->op_names.begin(), out_->op_names.end());
    if (names.size() == out_->op_names.size()) return;
    for (const int32_t op : frame_op_) out_->op_names[op] += " (loop)";
  }

  // What node `i` reads for that output of a source: an op, and an output of it.
  std::pair<int32_t, int32_t> TensorFor(size_t i, int32_t source, int32_t output) const {
    const auto between = transpose_between_.find({source, output, static_cast<int32_t>(i)});
    if (between != transpose_between_.end()) return {transpose_op_[between->second], 0};
    return {op_of_[source], first_output_[source] + output};
  }

  // A constant reads nothing. It does wait for other ops, such as the condition of the branch that
  // it belongs to.
  void FillEdges() {
    const auto add_control = [this](int32_t source, size_t i) {
      if (op_of_[source] == op_of_[i]) return;
      out_->control_edges.insert(out_->control_edges.end(), {op_of_[source], op_of_[i]});
    };
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      if (removed_.is_removed[i]) continue;
      for (const int32_t source : removed_.waits_for[i]) add_control(source, i);
      if (is_static_[i]) continue;
      const auto add = [&](int32_t source, int32_t output) {
        if (op_of_[source] == op_of_[i]) return;
        if (first_output_[source] < 0) return add_control(source, i);
        const auto [op, of_op] = TensorFor(i, source, output);
        out_->edges.insert(out_->edges.end(), {op, of_op, op_of_[i]});
      };
      for (const StepEdge& edge : sums_.inputs[i]) add(edge.source, edge.src_output);
      if (!sums_.inputs[i].empty()) continue;
      ForEachInput(i, [&](int32_t source, const Edge& edge) {
        if (!edge.IsControlEdge() && Reads(i, edge.dst_input())) add(source, edge.src_output());
      });
    }
    for (size_t t = 0; t < transposes_.size(); ++t) {
      const AddedTranspose& added = transposes_[t];
      out_->edges.insert(
          out_->edges.end(),
          {op_of_[added.source], first_output_[added.source] + added.src_output, transpose_op_[t]});
    }
  }

  void FillAliases() {
    out_->output_alias_src.assign(out_->output_bytes.size(), kNoAlias);
    out_->output_alias_output.assign(out_->output_bytes.size(), 0);
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      const Node& node = *step_.nodes[i];
      if (units_.frame_of[i] >= 0 || node.num_outputs() == 0 || is_static_[i] ||
          removed_.is_removed[i]) {
        continue;
      }
      const int64_t base = out_->output_ptr[op_of_[i]];
      const bool is_reference = tensorflow::IsRefType(node.output_type(0));
      if ((node.type_string() == "ReadVariableOp" && !IsCopiedRead(node)) ||
          (is_reference && costs_[i].persistent_bytes > 0)) {
        out_->output_alias_src[base] = kPersistentAlias;
      } else if (handed_on_[i] != kComputes || ForwardsInput(node) ||
                 node.type_string() == "IdentityN") {
        const bool forwards_all = node.type_string() == "IdentityN";
        const int32_t forwarded = std::max(handed_on_[i], 0);
        ForEachInput(i, [&](int32_t source, const Edge& edge) {
          if (edge.IsControlEdge() || first_output_[source] < 0) return;
          if (!forwards_all && edge.dst_input() != forwarded) return;
          const int first = forwards_all ? edge.dst_input() : 0, outputs = node.IsSwitch() ? 2 : 1;
          for (int k = first; k < first + outputs; ++k) {
            std::tie(out_->output_alias_src[base + k], out_->output_alias_output[base + k]) =
                TensorFor(i, source, edge.src_output());
          }
        });
      }
    }
  }

  // Each by the lowest op that is the same.
  void FillSameConstants() {
    std::vector<int32_t> lowest(step_.nodes.size(), num_ops_);
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      int32_t& op = lowest[repeated_.same_constant[i]];
      op = std::min(op, op_of_[i]);
    }
    out_->same_as.assign(num_ops_, -1);
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      const int32_t op = lowest[repeated_.same_constant[i]];
      if (op < op_of_[i]) out_->same_as[op_of_[i]] = op;
    }
  }

  void FillUnits() {
    out_->unit.resize(num_ops_);
    std::vector<int32_t> position_of(num_ops_, -1);
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      int32_t& position = position_of[op_of_[i]];
      // A loop is known by a node of its unit, one that is free to move if there is any.
      const int32_t frame = units_.frame_of[i];
      if (frame >= 0 && units_.unit_of[i] != units_.unit_of[units_.frame_position[frame]]) continue;
      if (position < 0 || (units_.movable[i] && !units_.movable[position])) {
        position = static_cast<int32_t>(i);
      }
    }
    for (size_t t = 0; t < transposes_.size(); ++t) {
      position_of[transpose_op_[t]] = transposes_[t].owner;
    }
    absl::flat_hash_map<int32_t, int32_t> dense;
    out_->allowed_ptr.push_back(0);
    for (int32_t op = 0; op < num_ops_; ++op) {
      const int32_t unit = units_.unit_of[position_of[op]];
      out_->unit[op] = dense.emplace(unit, static_cast<int32_t>(dense.size())).first->second;
      const std::vector<int32_t>& allowed = units_.allowed[unit];
      out_->allowed_device.insert(out_->allowed_device.end(), allowed.begin(), allowed.end());
      out_->allowed_ptr.push_back(static_cast<int64_t>(out_->allowed_device.size()));
    }
    out_->num_units = static_cast<int>(dense.size());
    if (!default_devices_.empty()) {
      for (const int32_t position : position_of) {
        out_->default_device.push_back(default_devices_[position]);
      }
    }
    unit_position_ = std::move(position_of);
  }

  void FillNodes() {
    const NodeOrder order = FindNodeOrder(*input_.graph, step_, input_.library, hashes_);
    out_->structure = order.structure;
    std::vector<size_t> by_id(step_.nodes.size());
    std::iota(by_id.begin(), by_id.end(), size_t{0});
    std::sort(by_id.begin(), by_id.end(),
              [this](size_t a, size_t b) { return step_.nodes[a]->id() < step_.nodes[b]->id(); });
    for (const size_t i : by_id) {
      // A loop's op stands for the nodes of its unit only; others stay where TensorFlow has them.
      if (!units_.movable[i] || units_.unit_of[i] != units_.unit_of[unit_position_[op_of_[i]]]) {
        continue;
      }
      out_->node_names.push_back(step_.nodes[i]->name());
      out_->node_hashes.push_back(hashes_[i]);
      out_->node_ranks.push_back(order.ranks[i]);
      out_->node_op.push_back(op_of_[i]);
    }
  }

  const UnitsInput& input_;
  const Step& step_;
  const std::vector<uint64_t>& hashes_;
  const std::vector<int32_t>& default_devices_;
  const CostOptions& options_;
  CapturedStep* out_;
  Units units_;
  std::vector<OpCosts> costs_;      // by position
  std::vector<bool> is_static_;     // by position
  std::vector<int32_t> handed_on_;  // by position: see neutral_ops.h
  RemovedOps removed_;
  std::vector<int32_t> runs_as_;  // by position: see repeated_ops.h
  MergedSums sums_;
  RepeatedOps repeated_;
  std::vector<AddedTranspose> transposes_;
  // The transpose that a reader has for an output of a source.
  absl::flat_hash_map<std::tuple<int32_t, int32_t, int32_t>, int32_t> transpose_between_;
  std::vector<int32_t> transpose_op_;   // by transpose
  std::vector<int32_t> by_name_;        // all positions
  std::vector<int32_t> node_number_;    // by position: its place in by_name_
  OrderedGraph graph_;                  // in which the ops have their order
  std::vector<int64_t> trips_;          // by position
  std::vector<int32_t> op_of_;          // by position
  std::vector<int32_t> frame_op_;       // by collapsed loop
  std::vector<int32_t> first_output_;   // by position: its output 0 among the op's, or -1
  std::vector<int32_t> unit_position_;  // by op: the position whose unit is the op's
  int32_t num_ops_ = 0;
};

}  // namespace

absl::Status CaptureStep(const UnitsInput& input, const std::vector<uint64_t>& node_hashes,
                         const std::vector<int32_t>& default_devices, const CostOptions& options,
                         CapturedStep* captured) {
  return StepCapture(input, node_hashes, default_devices, options, captured).Run();
}

}  // namespace hplacer
