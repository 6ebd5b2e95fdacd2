// A problem's graph, packed for the simulator: records in the order in which a step walks them.
//
// The arrays of `Problem` are apart, one per field. A step touches all fields of one op at once and
// is bound by cache misses, so here one op is half a cache line and one tensor a quarter. Nothing
// here depends on a placement; `Problem::Build` makes it once.
//
// Barriers. `tf.control_dependencies` and `tf.group` make every op of one set wait for every op of
// another: 192 x 391 control edges in Inception-V3's training step. Ops with the same control
// successors, at least two, form a barrier: a successor waits for the barrier once, and the barrier
// counts on each device its sources there, and the other devices that have some.
//
// Constants. Ops that are the same one are a class.

#ifndef HPLACER_ENGINE_PROBLEM_STEP_GRAPH_H_
#define HPLACER_ENGINE_PROBLEM_STEP_GRAPH_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace hplacer {

class Problem;

inline constexpr int32_t kNoControl = -1;
inline constexpr int32_t kNoBarrier = -1;
inline constexpr int32_t kNoClass = -1;

struct StepGraph {
  // Ranges end where the next record's begin; a last record closes the last range.
  struct Op {
    int64_t start_bytes = 0;  // temp and outputs that own a buffer: allocated when the op starts
    int64_t temp_bytes = 0;
    int32_t first_tensor = 0;
    int32_t first_consumer = 0;    // of the first tensor, index into Problem::consumers
    int32_t first_read = 0;        // the op's place in an array of all reads, by reader
    int32_t control = kNoControl;  // index into controls
  };
  struct Tensor {
    int64_t bytes = 0;
    int32_t first_consumer = 0;  // index into Problem::consumers
    int32_t alias = -1;          // the tensor that it aliases, kNoAlias or kPersistentAlias
  };
  // The control successors of an op, or of all sources of a barrier.
  struct Control {
    int32_t begin, end;  // in Problem::control_out
    int32_t num_sources;
    int32_t barrier;  // or kNoBarrier
  };

  std::vector<Op> ops;          // [n + 1]
  std::vector<Tensor> tensors;  // [T + 1]
  std::vector<Control> controls;
  std::vector<int32_t> barriers;                        // indices into controls
  std::vector<int32_t> in_degree;                       // [n] where a barrier counts once
  std::vector<int32_t> sources;                         // ops of in-degree 0, ascending
  std::vector<std::pair<int32_t, int64_t>> persistent;  // (op, bytes) where there are any
  std::vector<int32_t> constant_class;                  // [n] or kNoClass; empty if there is none
  int32_t num_classes = 0;
};

// `problem` must have its edges, control edges and aliases indexed.
StepGraph PackStepGraph(const Problem& problem);

}  // namespace hplacer

#endif  // HPLACER_ENGINE_PROBLEM_STEP_GRAPH_H_
