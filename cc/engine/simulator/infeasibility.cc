#include "engine/simulator/infeasibility.h"

#include <limits>
#include <utility>

namespace hplacer {
namespace {

std::string Op(const Problem& problem, int32_t op) {
  return "op '" + problem.spec().op_names[op] + "'";
}

std::string Device(const Problem& problem, int32_t device) {
  return "device '" + problem.spec().device_names[device] + "'";
}

std::string OpOnDevice(const Problem& problem, const std::vector<int32_t>& placement, int32_t op) {
  return Op(problem, op) + " is on " + Device(problem, placement[op]);
}

// Keeps the first sentence of its kind and counts the others.
class Violation {
 public:
  template <typename Describe>
  void Add(Describe describe) {
    if (count_++ == 0) first_ = describe();
  }
  void AppendTo(std::vector<std::string>* sentences) const {
    if (count_ == 0) return;
    sentences->push_back(
        count_ == 1 ? first_ : first_ + " (and " + std::to_string(count_ - 1) + " more like it)");
  }

 private:
  int64_t count_ = 0;
  std::string first_;
};

Violation MissingKernels(const Problem& problem, const std::vector<int32_t>& placement) {
  Violation violation;
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    if (problem.CostNs(op, placement[op]) != kNoKernel) continue;
    violation.Add([&] {
      const ProblemSpec& spec = problem.spec();
      return OpOnDevice(problem, placement, op) + " of kind '" +
             spec.device_kinds[spec.device_kind[placement[op]]] + "', which has no kernel for it";
    });
  }
  return violation;
}

Violation ForbiddenDevices(const Problem& problem, const std::vector<int32_t>& placement) {
  Violation violation;
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    if (!problem.spec().allowed_given[op] || problem.IsAllowed(op, placement[op])) continue;
    violation.Add([&] {
      return OpOnDevice(problem, placement, op) + ", which is not among its allowed devices";
    });
  }
  return violation;
}

Violation SplitGroups(const Problem& problem, const std::vector<int32_t>& placement) {
  Violation violation;
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    const int32_t first = problem.unit_ops()[problem.unit_op_ptr()[problem.units()[op]]];
    if (placement[op] == placement[first]) continue;
    violation.Add([&] {
      const ProblemSpec& spec = problem.spec();
      return "colocation group '" + spec.colocation_group_names[spec.colocation_group[op]] +
             "' is split: " + OpOnDevice(problem, placement, first) + " but " +
             OpOnDevice(problem, placement, op);
    });
  }
  return violation;
}

Violation MissingLinks(const Problem& problem, const std::vector<int32_t>& placement) {
  Violation violation;
  const auto check = [&](int32_t src, int32_t dst) {
    const int32_t from = placement[src], to = placement[dst];
    if (from == to || problem.Link(from, to) >= 0) return;
    violation.Add([&] {
      return OpOnDevice(problem, placement, src) + " and its successor " +
             OpOnDevice(problem, placement, dst) + ", but no link leads there";
    });
  };
  for (int32_t edge = 0; edge < problem.num_edges(); ++edge) {
    check(problem.tensor_op()[problem.edge_tensor()[edge]], problem.consumers()[edge]);
  }
  for (int32_t op = 0; op < problem.num_ops(); ++op) {
    for (int32_t c = problem.control_out_ptr()[op]; c < problem.control_out_ptr()[op + 1]; ++c) {
      check(op, problem.control_out()[c]);
    }
  }
  return violation;
}

}  // namespace

bool HonoursConstraints(const Problem& problem, const int32_t* placement) {
  const int32_t* const ops = problem.unit_ops().data();
  for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
    const int32_t begin = problem.unit_op_ptr()[unit], end = problem.unit_op_ptr()[unit + 1];
    const int32_t device = placement[ops[begin]];
    if (!problem.IsCandidate(unit, device)) return false;
    for (int32_t i = begin + 1; i < end; ++i) {
      if (placement[ops[i]] != device) return false;
    }
  }
  return true;
}

bool FitsMemory(const Problem& problem, const int64_t* peak_bytes) {
  for (int32_t device = 0; device < problem.num_devices(); ++device) {
    if (peak_bytes[device] > problem.spec().device_memory_bytes[device]) return false;
  }
  return true;
}

int64_t MissingBytes(const Problem& problem, const int64_t* peak_bytes) {
  int64_t missing = 0;
  for (int32_t device = 0; device < problem.num_devices(); ++device) {
    const int64_t bytes = peak_bytes[device] - problem.spec().device_memory_bytes[device];
    if (bytes <= 0) continue;
    // Copies of a tensor count on each device, so the sum may be larger than all sizes together.
    if (__builtin_add_overflow(missing, bytes, &missing)) {
      return std::numeric_limits<int64_t>::max();
    }
  }
  return missing;
}

std::vector<std::string> DescribeInfeasibility(const Problem& problem,
                                               const std::vector<int32_t>& placement,
                                               const std::vector<int64_t>& peak_bytes) {
  std::vector<std::string> sentences;
  MissingKernels(problem, placement).AppendTo(&sentences);
  MissingLinks(problem, placement).AppendTo(&sentences);
  ForbiddenDevices(problem, placement).AppendTo(&sentences);
  SplitGroups(problem, placement).AppendTo(&sentences);
  for (int32_t device = 0; device < problem.num_devices(); ++device) {
    const int64_t memory = problem.spec().device_memory_bytes[device];
    if (peak_bytes[device] <= memory) continue;
    sentences.push_back(Device(problem, device) + " needs " + std::to_string(peak_bytes[device]) +
                        " bytes at its peak but has " + std::to_string(memory) + ": " +
                        std::to_string(peak_bytes[device] - memory) + " bytes are missing");
  }
  return sentences;
}

}  // namespace hplacer
