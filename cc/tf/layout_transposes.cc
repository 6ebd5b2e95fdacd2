#include "tf/layout_transposes.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/graph/tensor_id.h"
#include "tensorflow/core/grappler/clusters/virtual_cluster.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/grappler/optimizers/generic_layout_optimizer.h"
#include "tensorflow/core/grappler/optimizers/generic_layout_optimizer_transposer.h"
#include "tf/neutral_ops.h"

namespace hplacer {
namespace {

using tensorflow::DeviceProperties;
using tensorflow::GraphDef;
using tensorflow::NodeDef;

constexpr char kGpu[] = "/job:localhost/replica:0/task:0/device:GPU:0";
constexpr char kCpu[] = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr char kAdded[] = "-LayoutOptimizer";  // how the names end of what is added
constexpr char kAnyCapability[] = "8.0";       // of a GPU that does not say its own

// "8.0" of "..., compute capability: 8.0".
std::string Capability(const SessionDevice& device) {
  constexpr std::string_view kLabel = "compute capability: ";
  const size_t begin = device.description.find(kLabel);
  if (begin == std::string::npos) return kAnyCapability;
  const size_t end = device.description.find_first_not_of("0123456789.", begin + kLabel.size());
  return device.description.substr(begin + kLabel.size(), end - begin - kLabel.size());
}

class Layouts {
 public:
  Layouts(const Step& step, const Units& units, const std::vector<SessionDevice>& devices,
          const std::vector<int32_t>& handed_on)
      : step_(step), units_(units), devices_(devices), handed_on_(handed_on) {}

  std::vector<AddedTranspose> Find(GraphDef graph) {
    if (!PutOnDevices(&graph)) return {};
    HandOn(&graph);
    tensorflow::grappler::GrapplerItem item;
    item.id = "hplacer";
    item.graph = std::move(graph);
    for (const tensorflow::Node* node : step_.targets) item.fetch.push_back(node->name());
    const auto gpu = absl::c_find_if(devices_, [](const auto& d) { return d.type == "GPU"; });
    DeviceProperties gpu_properties, cpu_properties;
    gpu_properties.set_type("GPU");
    (*gpu_properties.mutable_environment())["architecture"] = Capability(*gpu);
    cpu_properties.set_type("CPU");
    const std::unordered_map<std::string, DeviceProperties> of_names = {{kGpu, gpu_properties},
                                                                        {kCpu, cpu_properties}};
    tensorflow::grappler::VirtualCluster cluster(of_names);
    tensorflow::grappler::GenericLayoutOptimizer optimizer;
    if (!optimizer.Optimize(&cluster, item, &optimized_).ok()) return {};
    FindReaders();
    std::vector<AddedTranspose> added;
    for (const NodeDef& node : optimized_.node()) {
      if (node.op() == "Transpose" && absl::EndsWith(node.name(), kAdded)) Add(node, &added);
    }
    for (AddedTranspose& transpose : added) {
      absl::c_sort(transpose.readers);
      transpose.readers.erase(std::unique(transpose.readers.begin(), transpose.readers.end()),
                              transpose.readers.end());
    }
    return added;
  }

 private:
  // Whether any of them has a layout that depends on its device.
  bool PutOnDevices(GraphDef* graph) {
    for (size_t i = 0; i < step_.nodes.size(); ++i) {
      position_[step_.nodes[i]->name()] = static_cast<int32_t>(i);
    }
    bool any = false;
    for (NodeDef& node : *graph->mutable_node()) {
      const auto known = position_.find(node.name());
      const bool may_run_on_gpu =
          known != position_.end() &&
          absl::c_any_of(units_.allowed[units_.unit_of[known->second]],
                         [this](int32_t device) { return devices_[device].type == "GPU"; });
      node.set_device(may_run_on_gpu ? kGpu : kCpu);
      any |= may_run_on_gpu && tensorflow::grappler::IsLayoutSensitiveOp(node) && !IsBias(node);
    }
    return any;
  }

  // Most are those of matrices, which have no layout.
  static bool IsBias(const NodeDef& node) {
    return node.op() == "BiasAdd" || node.op() == "BiasAddGrad";
  }

  // Before Grappler looks at layouts, it has replaced what hands on an input.
  void HandOn(GraphDef* graph) const {
    for (NodeDef& node : *graph->mutable_node()) {
      const auto known = position_.find(node.name());
      const auto attr = node.attr().find("T");
      if (known == position_.end() || handed_on_[known->second] == kComputes ||
          attr == node.attr().end()) {
        continue;
      }
      const std::string input = node.input(handed_on_[known->second]);
      const tensorflow::AttrValue type = attr->second;
      node.set_op("Identity");
      node.clear_input();
      node.add_input(input);
      node.clear_attr();
      (*node.mutable_attr())["T"] = type;
    }
  }

  void FindReaders() {
    for (const NodeDef& node : optimized_.node()) {
      by_name_[node.name()] = &node;
      for (const std::string& input : node.input()) {
        const tensorflow::TensorId read = tensorflow::ParseTensorName(input);
        if (read.index() >= 0) readers_[read.node()].push_back(&node);
      }
    }
  }

  void AddReaders(std::string_view name, std::vector<int32_t>* positions) const {
    const auto read_by = readers_.find(name);
    if (read_by == readers_.end()) return;
    for (const NodeDef* reader : read_by->second) {
      const auto known = position_.find(reader->name());
      if (known != position_.end()) {
        positions->push_back(known->second);
      } else if (reader->op() != "Transpose") {
        AddReaders(reader->name(), positions);
      }
    }
  }

  void Add(const NodeDef& node, std::vector<AddedTranspose>* added) {
    const tensorflow::TensorId read = Source(node);
    const auto source = position_.find(read.node());
    std::vector<int32_t> readers;
    AddReaders(node.name(), &readers);
    if (source == position_.end() || readers.empty()) return;
    const auto is_owner = [&node, this](int32_t position) {
      return absl::StartsWith(node.name(), absl::StrCat(step_.nodes[position]->name(), "-"));
    };
    const auto reader = absl::c_find_if(readers, is_owner);
    const int32_t owner = reader == readers.end() ? source->second : *reader;
    // Transposes of one tensor are equal. TensorFlow makes one of those on a device.
    const auto [known, is_first] =
        number_.try_emplace({source->second, read.index()}, added->size());
    if (is_first) {
      added->push_back({node.name(), source->second, read.index(), owner, std::move(readers)});
      return;
    }
    AddedTranspose& equal = (*added)[known->second];
    if (owner < equal.owner) {
      equal.owner = owner;
      equal.name = node.name();
    }
    equal.readers.insert(equal.readers.end(), readers.begin(), readers.end());
  }

  // The tensor that is transposed. What is added beside transposes launches nothing: it is passed
  // over.
  tensorflow::TensorId Source(const NodeDef& transpose) const {
    tensorflow::TensorId read = tensorflow::ParseTensorName(transpose.input(0));
    for (;;) {
      const auto added = by_name_.find(read.node());
      if (position_.contains(read.node()) || added == by_name_.end() ||
          added->second->input_size() == 0) {
        return read;
      }
      read = tensorflow::ParseTensorName(added->second->input(0));
    }
  }

  const Step& step_;
  const Units& units_;
  const std::vector<SessionDevice>& devices_;
  const std::vector<int32_t>& handed_on_;
  GraphDef optimized_;
  absl::flat_hash_map<std::string_view, int32_t> position_;
  absl::flat_hash_map<std::string_view, const NodeDef*> by_name_;  // of the optimized graph
  absl::flat_hash_map<std::string_view, std::vector<const NodeDef*>> readers_;
  absl::flat_hash_map<std::pair<int32_t, int>, size_t> number_;  // by source and output
};

}  // namespace

std::vector<AddedTranspose> FindAddedTransposes(const Step& step, const Units& units,
                                                const std::vector<SessionDevice>& devices,
                                                const std::vector<int32_t>& handed_on,
                                                tensorflow::GraphDef graph) {
  return Layouts(step, units, devices, handed_on).Find(std::move(graph));
}

}  // namespace hplacer
