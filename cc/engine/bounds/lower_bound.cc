#include "engine/bounds/lower_bound.h"

#include <algorithm>
#include <utility>

#include "engine/bounds/cut_bound.h"
#include "engine/bounds/device_classes.h"
#include "engine/bounds/load_bound.h"
#include "engine/bounds/path_bound.h"
#include "engine/bounds/price_search.h"

namespace hplacer {
namespace {

constexpr int32_t kNoOp = -1;
constexpr size_t kMaxForcedTerms = 4;
// Of the search for the cut bound: each evaluation bounds a problem as large as the given one.
constexpr int32_t kMaxCutEvaluations = 16, kMaxCutOps = 240'000;
constexpr size_t kMaxNamesInTerm = 4;

std::string UnitName(const Problem& problem, int32_t unit) {
  const int32_t op = problem.unit_ops()[problem.unit_op_ptr()[unit]];
  const int32_t group = problem.spec().colocation_group[op];
  const std::string name = "op '" + problem.spec().op_names[op] + "'";
  if (group == kNoGroup) return name;
  return name + " of colocation group '" + problem.spec().colocation_group_names[group] + "'";
}

std::string Join(const std::vector<std::string>& names) {
  const size_t shown = names.size() > kMaxNamesInTerm ? kMaxNamesInTerm - 1 : names.size();
  std::string result;
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) result += i + 1 == names.size() ? " and " : ", ";
    result += names[i];
  }
  if (shown < names.size()) result += " and " + std::to_string(names.size() - shown) + " more";
  return result;
}

// Kinds of which all devices are meant, then the names of the other devices.
std::string DevicesName(const Problem& problem, const DeviceClasses& classes,
                        const std::vector<bool>& meant) {
  const ProblemSpec& spec = problem.spec();
  std::vector<bool> whole(problem.num_kinds(), true), met(problem.num_kinds(), false);
  for (int32_t device = 0; device < problem.num_devices(); ++device) {
    if (!meant[classes.OfDevice(device)]) whole[spec.device_kind[device]] = false;
  }
  std::vector<std::string> names;
  for (int32_t device = 0; device < problem.num_devices(); ++device) {
    const int32_t kind = spec.device_kind[device];
    if (!meant[classes.OfDevice(device)] || (whole[kind] && met[kind])) continue;
    met[kind] = true;
    names.push_back(whole[kind] ? spec.device_kinds[kind] : spec.device_names[device]);
  }
  return Join(names);
}

class Bounder {
 public:
  explicit Bounder(const Problem& problem) : problem_(problem), classes_(problem) {}

  LowerBound Run() {
    if (problem_.num_ops() == 0) {
      result_.terms.push_back({"no ops", 0});
      return std::move(result_);
    }
    FindHomelessUnits();
    if (!result_.infeasible_because.empty()) return std::move(result_);
    const std::vector<ForcedSet> forced = ForcedSets(problem_, classes_);
    FindOverfullSets(forced);
    const PathBound paths = BoundPaths(problem_, classes_);
    AddPathTerm(paths);
    if (!result_.infeasible_because.empty()) {
      result_.terms.clear();
      return std::move(result_);
    }
    AddLoadTerms(LoadBound(problem_, classes_, paths), forced);
    std::stable_sort(
        result_.terms.begin(), result_.terms.end(),
        [](const LowerBound::Term& a, const LowerBound::Term& b) { return a.ns > b.ns; });
    return std::move(result_);
  }

 private:
  void FindHomelessUnits() {
    for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
      if (classes_.AllowsAny(unit)) continue;
      const bool has_candidate =
          problem_.candidate_ptr()[unit] < problem_.candidate_ptr()[unit + 1];
      result_.infeasible_because.push_back(
          has_candidate ? UnitName(problem_, unit) + " needs at least " +
                              std::to_string(classes_.CertainBytes(unit)) +
                              " bytes, more than the memory of any device that it may be on"
                        : UnitName(problem_, unit) +
                              " has no device: allow one with a kernel for all its ops");
      return;
    }
  }

  void FindOverfullSets(const std::vector<ForcedSet>& sets) {
    for (const ForcedSet& set : sets) {
      if (set.persistent_bytes <= set.memory_bytes) continue;
      result_.infeasible_because.push_back(
          "ops that may only be on " + DevicesName(problem_, classes_, set.classes) + " have " +
          std::to_string(set.persistent_bytes) + " persistent bytes, but there are " +
          std::to_string(set.memory_bytes) + " bytes of memory");
    }
  }

  void AddPathTerm(const PathBound& paths) {
    Through best{-1, kNoOp};
    int32_t best_unit = 0;
    for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
      Through least{kNever, kNoOp};
      for (int32_t c = 0; c < classes_.num_classes(); ++c) {
        if (!classes_.Allows(unit, c)) continue;
        const Through through = UnitOnClass(paths, unit, c);
        if (through.ns < least.ns) least = through;
      }
      if (least.ns == kNever) {
        result_.infeasible_because.push_back(
            UnitName(problem_, unit) +
            " can be on no device to which links lead from all its inputs and from which they "
            "lead to all its consumers");
        return;
      }
      if (least.ns <= best.ns) continue;
      best = least;
      best_unit = unit;
    }
    result_.terms.push_back({best.op == kNoOp
                                 ? "load of the unit of " + UnitName(problem_, best_unit)
                                 : "critical path through " + problem_.spec().op_names[best.op],
                             best.ns});
  }

  struct Through {
    int64_t ns;
    int32_t op;  // kNoOp: not one op but the load of several
  };

  // How long the step takes at least with the unit on class c.
  Through UnitOnClass(const PathBound& paths, int32_t unit, int32_t c) {
    Through most{-1, kNoOp};
    by_head_.clear();
    for (int32_t i = problem_.unit_op_ptr()[unit]; i < problem_.unit_op_ptr()[unit + 1]; ++i) {
      const int32_t op = problem_.unit_ops()[i];
      const int64_t at = static_cast<int64_t>(op) * classes_.num_classes() + c;
      const int64_t head_ns = paths.head_ns[at], tail_ns = paths.tail_ns[at];
      const int64_t ns = AddNs(AddNs(head_ns, classes_.CostNs(op, c)), tail_ns);
      if (ns > most.ns) most = {ns, op};
      if (ns == kNever) return most;
      by_head_.push_back({head_ns, tail_ns, op});
    }
    std::sort(by_head_.begin(), by_head_.end(), [](const Window& a, const Window& b) {
      return a.head_ns != b.head_ns ? a.head_ns > b.head_ns : a.op < b.op;
    });
    int64_t load_ns = 0, tail_ns = kNever;
    for (const Window& w : by_head_) {
      load_ns += classes_.CostNs(w.op, c);
      tail_ns = std::min(tail_ns, w.tail_ns);
      const int64_t ns = AddNs(AddNs(w.head_ns, CeilDiv(load_ns, classes_.Slots(c))), tail_ns);
      if (ns > most.ns) most = {ns, kNoOp};
    }
    return most;
  }

  void AddLoadTerms(const LoadBound& loads, const std::vector<ForcedSet>& forced) {
    Prices prices = SearchPrices(problem_, classes_, Memory::kPriced);
    if (Any(prices.per_byte)) {
      AddTerm("memory of " + PricedName(prices.per_byte) + " forces load on " +
                  PricedName(prices.per_ns),
              loads.Certify(prices));
      prices = SearchPrices(problem_, classes_, Memory::kFree);
    }
    AddTerm("load of " + PricedName(prices.per_ns), loads.Certify(prices));
    for (size_t i = 0; i < std::min(forced.size(), kMaxForcedTerms); ++i) {
      AddTerm("load of " + DevicesName(problem_, classes_, forced[i].classes),
              loads.Certify(UniformPrices(forced[i].classes)));
    }
  }

  // Of two proofs under one name the better.
  void AddTerm(const std::string& name, int64_t ns) {
    for (LowerBound::Term& term : result_.terms) {
      if (term.name != name) continue;
      term.ns = std::max(term.ns, ns);
      return;
    }
    result_.terms.push_back({name, ns});
  }

  static bool Any(const std::vector<int64_t>& prices) {
    return std::any_of(prices.begin(), prices.end(), [](int64_t price) { return price > 0; });
  }

  std::string PricedName(const std::vector<int64_t>& prices) const {
    const int64_t most = *std::max_element(prices.begin(), prices.end());
    std::vector<bool> priced(prices.size());
    // Below that a price is what the search left of zero.
    for (size_t c = 0; c < prices.size(); ++c) priced[c] = prices[c] > most / 1000;
    return DevicesName(problem_, classes_, priced);
  }

  struct Window {
    int64_t head_ns, tail_ns;
    int32_t op;
  };

  const Problem& problem_;
  const DeviceClasses classes_;
  LowerBound result_;
  std::vector<Window> by_head_;  // of one unit
};

// Bisects for the price at which joined edges bound the step best: cut_bound.h. A bound that is no
// better than the others is left out.
void AddCutTerm(const Problem& problem, LowerBound* result) {
  const int32_t evaluations = std::min(kMaxCutEvaluations, kMaxCutOps / problem.num_ops());
  if (evaluations == 0) return;
  const CutPrices prices(problem);
  LowerBound::Term best{"", result->terms[0].ns};
  const std::vector<int64_t> choices = prices.Above(best.ns);
  // The lowest price tells whether there is anything to gain.
  size_t low = 0, high = choices.size(), middle = 0;
  for (int32_t i = 0; i < evaluations && low < high; ++i) {
    const int64_t price_ns = choices[middle];
    const LowerBound joined = Bounder(prices.Join(price_ns)).Run();
    const bool is_infeasible = !joined.infeasible_because.empty();
    const int64_t joined_ns = is_infeasible ? kNever : joined.terms[0].ns;
    if (std::min(price_ns, joined_ns) > best.ns) {
      const std::string why = is_infeasible ? "memory" : joined.terms[0].name;
      best = {"cost of cutting the graph, or " + why, std::min(price_ns, joined_ns)};
    }
    if (joined_ns >= price_ns) {
      low = middle + 1;
    } else {
      high = middle;
    }
    middle = low + (high - low) / 2;
  }
  if (!best.name.empty()) result->terms.insert(result->terms.begin(), best);
}

}  // namespace

LowerBound BoundStep(const Problem& problem) {
  LowerBound result = Bounder(problem).Run();
  if (result.infeasible_because.empty() && problem.num_ops() > 0) AddCutTerm(problem, &result);
  return result;
}

}  // namespace hplacer
