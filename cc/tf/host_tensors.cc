#include "tf/host_tensors.h"

#include <cstddef>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "tensorflow/core/framework/memory_types.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/types.h"

namespace hplacer {
namespace {

using tensorflow::MemoryTypeVector;
using tensorflow::Node;

// Where a GPU has what an op reads and makes; empty if that is not known.
struct Memory {
  MemoryTypeVector inputs, outputs;
};

Memory MemoryOnGpu(const Node& node) {
  Memory found;
  const absl::Status status =
      tensorflow::MemoryTypesForNode(tensorflow::OpRegistry::Global(), tensorflow::DEVICE_GPU,
                                     node.def(), &found.inputs, &found.outputs);
  return status.ok() ? found : Memory();
}

bool IsOnHost(const MemoryTypeVector& memory, int32_t argument) {
  return static_cast<size_t>(argument) < memory.size() &&
         memory[argument] == tensorflow::HOST_MEMORY;
}

bool IsInteger(tensorflow::DataType type) {
  return tensorflow::DataTypeIsInteger(tensorflow::BaseType(type));
}

}  // namespace

bool IsOnHostOfGpu(const Node& node) {
  const Memory memory = MemoryOnGpu(node);
  const auto on_host = [](tensorflow::MemoryType type) { return type == tensorflow::HOST_MEMORY; };
  return memory.inputs.size() + memory.outputs.size() > 0 &&
         absl::c_all_of(memory.inputs, on_host) && absl::c_all_of(memory.outputs, on_host);
}

std::vector<std::vector<bool>> FindHostTensors(const Step& step) {
  std::vector<std::vector<bool>> on_host(step.nodes.size());
  for (size_t i = 0; i < step.nodes.size(); ++i) {
    const Node& node = *step.nodes[i];
    if (!absl::c_any_of(node.output_types(), IsInteger)) continue;
    const Memory memory = MemoryOnGpu(node);
    for (int32_t output = 0; output < node.num_outputs(); ++output) {
      on_host[i].push_back(IsInteger(node.output_type(output)) && IsOnHost(memory.outputs, output));
    }
  }
  // A reader is behind what it reads, so all makers are known.
  for (size_t i = 0; i < step.nodes.size(); ++i) {
    Memory memory;
    for (size_t e = step.first_edge[i]; e < step.first_edge[i + 1]; ++e) {
      const StepEdge& edge = step.edges[e];
      if (edge.dst_input == tensorflow::Graph::kControlSlot || on_host[edge.source].empty() ||
          !on_host[edge.source][edge.src_output]) {
        continue;
      }
      if (memory.inputs.empty()) memory = MemoryOnGpu(*step.nodes[i]);
      if (!IsOnHost(memory.inputs, edge.dst_input)) on_host[edge.source][edge.src_output] = false;
    }
  }
  return on_host;
}

}  // namespace hplacer
