// The order in which TensorFlow has a step's ops when it runs them, which depends on the placement.
//
// The executor begins with the nodes that wait for nothing, and goes on with the consumers of what
// it ran, both in the order of the graph. That is not the order in which the nodes were made:
//  * Grappler finds what the step needs by a depth-first search from what is fetched, the last
//    input first, and turns the result round
//    ("tensorflow/core/grappler/utils/transitive_fanin.cc").
//  * Then it sorts: what has all its inputs follows in the order in which they came
//    ("tensorflow/core/grappler/utils/topological_sort.cc").
//  * Its remapper puts the nodes into another order, in which what reads a node comes by the number
//    of the output that it reads (MutableGraphView::SortTopologically in
//    "tensorflow/core/grappler/utils/graph_view.cc"). Then they are sorted as before.
//  * Before all that, a node that waits for several nodes of another device waits for a new node
//    there instead, which waits for them; then the same for the tasks of devices
//    (GroupCrossDeviceControlEdges in
//    "tensorflow/core/grappler/optimizers/dependency_optimizer.cc"). So the update of all
//    variables, for which a training step waits, is searched device by device.
// Where Grappler is switched off, the order is another one.

#ifndef HPLACER_ENGINE_PROBLEM_OP_ORDER_H_
#define HPLACER_ENGINE_PROBLEM_OP_ORDER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace hplacer {

inline constexpr int32_t kOnlyWaits = std::numeric_limits<int32_t>::max();

// The nodes that TensorFlow orders, numbered by the order of their names.
struct OrderedGraph {
  struct Input {
    int32_t node;
    int32_t output;  // of that node; kOnlyWaits: nothing is read
  };
  // An op that no node stands for, as TensorFlow adds it later. It comes by its first reader.
  struct Added {
    int32_t op;
    std::vector<Input> sources;    // ops
    std::vector<int32_t> readers;  // ops, of its output 0
  };

  int32_t num_ops = 0;
  std::vector<int32_t> node_op;    // [N] several nodes may be one op
  std::vector<int32_t> input_ptr;  // [N + 1]
  std::vector<Input> inputs;       // in their order; what is only waited for comes last
  std::vector<int32_t> targets;    // what is fetched; none: what nobody reads
  std::vector<Added> added;
  // Lists of what several nodes wait for, which their inputs do not have: see ShareWaits.
  std::vector<std::vector<Input>> shared;
  std::vector<int32_t> node_shared;  // [N] index into shared, or kNoneShared; or empty
};

inline constexpr int32_t kNoneShared = -1;

// Takes lists that several nodes wait for out of their inputs: hundreds of nodes may wait for
// hundreds. It is as if a node more waited for them, which the others wait for: it passes on at
// once. Nodes that wait for others of their own op keep their lists.
void ShareWaits(OrderedGraph* graph);

// By what the inputs of nodes are grouped: devices, and where there are several their tasks, each
// by name, from 0.
struct OrderedDevices {
  std::vector<int32_t> place;          // [m]
  std::vector<int32_t> place_of_task;  // [m], or empty
};
OrderedDevices OrderDevices(const std::vector<std::string>& names,
                            const std::vector<std::string>& tasks);

// Reuses its arrays from call to call.
class OpOrder {
 public:
  // All ops, where no node waits for another device. Without the remapper: as Grappler's first run
  // has them. Ops of a cycle, and those behind it, are left out.
  std::vector<int32_t> Find(const OrderedGraph& graph, bool is_remapped);

  // The place of each op in the order under a placement, [n]; valid until the next call. There must
  // be no cycle. Takes no time if all ops that matter are where they were in the last call.
  const std::vector<int32_t>& Places(const std::shared_ptr<const OrderedGraph>& graph,
                                     const OrderedDevices& devices, const int32_t* placement);

 private:
  using Input = OrderedGraph::Input;

  // Between ids: ops, then what is made.
  struct Edge {
    int32_t source, id, output;
  };
  struct Follower {
    int32_t id, output;
  };

  void FindMoving();
  bool HasMoved(const int32_t* placement);
  void TakeNodes(const OrderedGraph& graph);
  int32_t MakeNode(int32_t device, const std::vector<Input>& inputs);
  void MakeShared(const OrderedGraph& graph, const int32_t* placement);
  void GroupWaits(const std::vector<int32_t>& places, const int32_t* placement);
  void GroupWaitsOf(int32_t node, const std::vector<int32_t>& places, const int32_t* placement);
  int32_t DeviceOf(int32_t node, const int32_t* placement) const;
  int32_t num_made() const { return static_cast<int32_t>(made_device_.size()); }
  bool IsShared(int32_t id) const { return id >= first_shared_ && id < end_shared_; }
  void SetInputs(int32_t node, const std::vector<Input>& inputs);
  void Search(std::vector<int32_t> targets);
  void SearchFrom(std::vector<int32_t> stack);
  std::vector<int32_t> Unread() const;
  void FindEdges(const OrderedGraph& graph);
  std::vector<int32_t> SearchedIds(const OrderedGraph& graph) const;
  void FindFollowers(const std::vector<int32_t>& ids);
  void SortFollowersByOutput();
  std::vector<int32_t> ReadyIds(const std::vector<int32_t>& ids) const;
  std::vector<int32_t> RemappedIds(const std::vector<int32_t>& ids) const;
  std::vector<int32_t> OrderIds(const OrderedGraph& graph, bool is_remapped);

  // What the places are of.
  std::shared_ptr<const OrderedGraph> graph_;
  std::vector<int32_t> waiting_;        // nodes that wait for several others, if not shared
  std::vector<int32_t> moving_;         // ops of these, and of what they wait for
  std::vector<int32_t> moving_device_;  // where these were
  std::vector<int32_t> places_;

  // Of nodes, then what is made: what they share, and groups.
  std::vector<int32_t> op_;           // ids
  std::vector<int32_t> begin_, end_;  // in inputs_
  std::vector<Input> inputs_;
  std::vector<int32_t> made_device_;
  int32_t first_shared_ = 0, end_shared_ = 0;  // ids
  std::vector<int32_t> rank_;                  // as the search leaves it
  int32_t next_rank_ = 0;
  // Of ids.
  int32_t num_ids_ = 0;
  std::vector<Edge> edges_;              // into an id together
  std::vector<int32_t> first_edge_;      // [ids + 1]
  std::vector<int32_t> first_follower_;  // [ids + 1]
  std::vector<Follower> followers_;
  // Scratch of GroupWaitsOf.
  std::vector<int32_t> num_waits_;  // by place of a device
  std::vector<std::vector<Input>> groups_;
  std::vector<Input> kept_;
  std::vector<int32_t> shared_by_;  // of MakeShared: by device, the node that those there share
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_PROBLEM_OP_ORDER_H_
