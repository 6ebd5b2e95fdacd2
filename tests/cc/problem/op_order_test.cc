#include "engine/problem/op_order.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

namespace hplacer {
namespace {

using Ints = std::vector<int32_t>;

struct TestNode {
  Ints reads, waits_for;  // nodes
};

// A node for each op. The last one is fetched.
OrderedGraph Graph(const std::vector<TestNode>& nodes) {
  OrderedGraph graph;
  graph.input_ptr = {0};
  for (const TestNode& node : nodes) {
    graph.node_op.push_back(graph.num_ops++);
    for (const int32_t source : node.reads) graph.inputs.push_back({source, 0});
    for (const int32_t source : node.waits_for) graph.inputs.push_back({source, kOnlyWaits});
    graph.input_ptr.push_back(static_cast<int32_t>(graph.inputs.size()));
  }
  graph.targets = {graph.num_ops - 1};
  return graph;
}

Ints PlacesOf(OrderedGraph graph, const Ints& placement, const std::vector<std::string>& tasks) {
  const std::vector<std::string> names = {"b", "a", "c"};
  ShareWaits(&graph);
  return OpOrder().Places(std::make_shared<const OrderedGraph>(std::move(graph)),
                          OrderDevices(names, tasks), placement.data());
}

// Four updates, and what waits for all of them.
const std::vector<TestNode> kUpdates = {{}, {}, {}, {}, {{}, {0, 1, 2, 3}}};

TEST_CASE("what is fetched is searched device by device, by their names") {
  const std::vector<std::string> tasks(3, "");
  CHECK(PlacesOf(Graph(kUpdates), {0, 0, 0, 0, 0}, tasks) == Ints{0, 1, 2, 3, 4});
  // Of devices 0, "b", and 1, "a", each has two, which groups wait for: last that of "b".
  CHECK(PlacesOf(Graph(kUpdates), {0, 1, 0, 1, 2}, tasks) == Ints{2, 1, 3, 0, 4});
  // One alone has no group, nor have those of the same device.
  CHECK(PlacesOf(Graph(kUpdates), {0, 1, 2, 2, 2}, tasks) == Ints{0, 1, 2, 3, 4});
}

TEST_CASE("so is one task after the other") {
  CHECK(PlacesOf(Graph(kUpdates), {0, 1, 2, 2, 2}, {"x", "x", "y"}) == Ints{2, 3, 1, 0, 4});
}

TEST_CASE("nodes that wait for the same ones share a node, which does not change the order") {
  std::vector<TestNode> nodes = kUpdates;
  nodes.push_back({{0}, {1, 2, 3}});
  nodes.push_back({{1}, {1, 2, 3}});
  nodes.push_back({{5, 6, 4}, {}});
  OrderedGraph shared = Graph(nodes);
  ShareWaits(&shared);
  REQUIRE(shared.shared.size() == 1);
  CHECK(shared.inputs.size() == Graph(nodes).inputs.size() - 6);
  OrderedGraph apart = Graph(nodes);
  apart.node_shared.assign(nodes.size(), kNoneShared);
  for (const bool is_remapped : {false, true}) {
    CHECK(OpOrder().Find(shared, is_remapped) == OpOrder().Find(apart, is_remapped));
  }
}

TEST_CASE("nodes of a loop may wait for the same ones in it") {
  OrderedGraph loop = Graph({{}, {{0}, {}}, {{0}, {}}, {{}, {1, 2}}, {{}, {1, 2}}, {{3, 4}, {}}});
  loop.node_op = {0, 1, 1, 1, 1, 2};
  loop.num_ops = 3;
  ShareWaits(&loop);
  CHECK(OpOrder().Find(loop, true) == Ints{0, 1, 2});
}

TEST_CASE("places are found again where what matters has moved") {
  auto graph = std::make_shared<OrderedGraph>(Graph(kUpdates));
  ShareWaits(graph.get());
  const OrderedDevices devices = OrderDevices({"b", "a", "c"}, {"", "", ""});
  OpOrder order;
  const Ints together = {0, 0, 0, 0, 0}, apart = {0, 1, 0, 1, 2};
  for (int i = 0; i < 2; ++i) {
    CHECK(order.Places(graph, devices, together.data()) == Ints{0, 1, 2, 3, 4});
    CHECK(order.Places(graph, devices, apart.data()) == Ints{2, 1, 3, 0, 4});
  }
}

TEST_CASE("ops of a cycle, and those behind it, are left out") {
  CHECK(OpOrder().Find(Graph({{{1}, {}}, {{0}, {}}, {}, {{1}, {2}}}), false) == Ints{2});
}

}  // namespace
}  // namespace hplacer
