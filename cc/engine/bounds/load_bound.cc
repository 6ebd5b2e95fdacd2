#include "engine/bounds/load_bound.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace hplacer {
namespace {

constexpr size_t kTailQuantiles = 8;
constexpr size_t kMaxForcedSets = 256;

int64_t LeastOverClasses(const std::vector<int64_t>& values, int64_t op, int32_t classes) {
  const auto begin = values.begin() + op * classes;
  return *std::min_element(begin, begin + classes);
}

bool IsPart(const std::vector<bool>& part, const std::vector<bool>& set) {
  for (size_t c = 0; c < set.size(); ++c) {
    if (part[c] && !set[c]) return false;
  }
  return true;
}

}  // namespace

LoadBound::LoadBound(const Problem& problem, const DeviceClasses& classes, const PathBound& paths)
    : problem_(problem), classes_(classes) {
  const int32_t n = problem.num_ops();
  for (int64_t op = 0; op < n; ++op) {
    head_ns_.push_back(LeastOverClasses(paths.head_ns, op, classes.num_classes()));
    tail_ns_.push_back(LeastOverClasses(paths.tail_ns, op, classes.num_classes()));
  }
  by_head_.resize(n);
  std::iota(by_head_.begin(), by_head_.end(), 0);
  std::stable_sort(by_head_.begin(), by_head_.end(),
                   [&](int32_t a, int32_t b) { return head_ns_[a] > head_ns_[b]; });
  std::vector<int64_t> tails = tail_ns_;
  std::sort(tails.begin(), tails.end());
  min_tails_ns_.push_back(0);
  for (size_t q = 0; q < kTailQuantiles && n > 0; ++q) {
    const int64_t tail_ns = tails[tails.size() * q / kTailQuantiles];
    if (tail_ns > min_tails_ns_.back()) min_tails_ns_.push_back(tail_ns);
  }
}

LoadBound::Wide LoadBound::LeastPrice(const Prices& prices, int32_t unit,
                                      const int64_t* load_ns) const {
  const Wide bytes = classes_.PersistentBytes(unit);
  Wide least = -1;
  for (int32_t c = 0; c < classes_.num_classes(); ++c) {
    if (!classes_.Allows(unit, c)) continue;
    const Wide price = prices.per_ns[c] * Wide{load_ns[c]} + prices.per_byte[c] * bytes;
    if (least < 0 || price < least) least = price;
  }
  return std::max(least, Wide{0});
}

int64_t LoadBound::Certify(const Prices& prices) const {
  const std::vector<int64_t> idle(classes_.num_classes(), 0);
  const Wide per_makespan_ns = classes_.SlotsWorth(prices.per_ns);
  Wide constant = 0;
  for (int32_t c = 0; c < classes_.num_classes(); ++c) {
    constant -= Wide{prices.per_byte[c]} * classes_.MemoryBytes(c);
  }
  if (per_makespan_ns == 0) return 0;
  for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
    constant += LeastPrice(prices, unit, idle.data());
  }
  int64_t best = 0;
  for (int64_t min_tail_ns : min_tails_ns_) {
    best = std::max(best, SweepWindows(prices, per_makespan_ns, constant, min_tail_ns));
  }
  return best;
}

// Adds ops of at least this tail by falling head; after each, the ops so far are a window.
int64_t LoadBound::SweepWindows(const Prices& prices, Wide per_makespan_ns, Wide constant,
                                int64_t min_tail_ns) const {
  const int64_t count = classes_.num_classes();
  std::vector<int64_t> load_ns(problem_.num_units() * count);
  std::vector<Wide> price(problem_.num_units());
  for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
    price[unit] = LeastPrice(prices, unit, &load_ns[unit * count]);
  }
  Wide total = constant;
  int64_t best = 0, tail_ns = kNever;
  for (int32_t op : by_head_) {
    if (tail_ns_[op] < min_tail_ns) continue;
    const int32_t unit = problem_.units()[op];
    int64_t* load = &load_ns[unit * count];
    bool costs = false;
    for (int32_t c = 0; c < count; ++c) {
      if (!classes_.Allows(unit, c) || prices.per_ns[c] == 0) continue;
      load[c] += classes_.CostNs(op, c);
      costs = costs || classes_.CostNs(op, c) > 0;
    }
    // An op that costs nothing need not be in the window and shorten its tail.
    if (!costs) continue;
    tail_ns = std::min(tail_ns, tail_ns_[op]);
    const Wide now = LeastPrice(prices, unit, load);
    total += now - price[unit];
    price[unit] = now;
    if (total <= 0) continue;
    const Wide load_bound = (total + per_makespan_ns - 1) / per_makespan_ns;
    const Wide bound = Wide{head_ns_[op]} + load_bound + tail_ns;
    best = static_cast<int64_t>(std::min(std::max(bound, Wide{best}), Wide{kNever - 1}));
  }
  return best;
}

std::vector<ForcedSet> ForcedSets(const Problem& problem, const DeviceClasses& classes) {
  const int32_t count = classes.num_classes();
  std::map<std::vector<bool>, ForcedSet> confined;
  for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
    std::vector<bool> allowed(count);
    int64_t least_ns = kNever;
    for (int32_t c = 0; c < count; ++c) {
      if (!classes.Allows(unit, c)) continue;
      allowed[c] = true;
      least_ns = std::min(least_ns, classes.LoadNs(unit, c));
    }
    // Leaving sets out is safe, they only prove less.
    if (confined.size() == kMaxForcedSets && confined.count(allowed) == 0) continue;
    ForcedSet& own = confined[allowed];
    own.load_ns += least_ns;
    own.persistent_bytes += classes.PersistentBytes(unit);
  }
  std::vector<ForcedSet> sets;
  for (const auto& [set, ignored] : confined) {
    ForcedSet forced;
    forced.classes = set;
    const auto slots = static_cast<int64_t>(classes.SlotsWorth({set.begin(), set.end()}));
    for (int32_t c = 0; c < count; ++c) {
      if (set[c]) forced.memory_bytes = AddNs(forced.memory_bytes, classes.MemoryBytes(c));
    }
    for (const auto& [part, own] : confined) {
      if (!IsPart(part, set)) continue;
      forced.load_ns += own.load_ns;
      forced.persistent_bytes += own.persistent_bytes;
    }
    forced.load_ns = CeilDiv(forced.load_ns, slots);
    sets.push_back(std::move(forced));
  }
  std::stable_sort(sets.begin(), sets.end(),
                   [](const ForcedSet& a, const ForcedSet& b) { return a.load_ns > b.load_ns; });
  return sets;
}

Prices UniformPrices(const std::vector<bool>& classes) {
  return {{classes.begin(), classes.end()}, std::vector<int64_t>(classes.size(), 0)};
}

}  // namespace hplacer
