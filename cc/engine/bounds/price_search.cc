#include "engine/bounds/price_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/bounds/ellipsoid.h"

namespace hplacer {
namespace {

constexpr double kPriceScale = 4294967296.0;              // 2^32
constexpr double kMaxPricePerByte = 72057594037927936.0;  // 2^56
constexpr double kMaxSearchWork = 3e8;                    // prices of a unit on a kind computed

// The dual function over x = (shares, memory prices). Kind k pays share[k] / slots[k] per
// nanosecond, where shares add up to 1 and x leaves out the first. A memory price is that of the
// whole memory of a kind as a part of scale_ns, the load if each unit took its most expensive kind:
// no memory is worth more than all load that it could avoid, so these prices are in 0..1.
class Relaxation {
 public:
  Relaxation(const Problem& problem, const DeviceClasses& classes, Memory memory)
      : classes_(classes), kind_of_class_(classes.num_classes()) {
    std::vector<int32_t> position(problem.num_kinds(), -1);
    for (int32_t c = 0; c < classes.num_classes(); ++c) {
      int32_t& k = position[classes.Kind(c)];
      if (k < 0) {
        k = static_cast<int32_t>(slots_.size());
        slots_.push_back(0.0);
        memory_bytes_.push_back(0.0);
      }
      kind_of_class_[c] = k;
      memory_bytes_[k] += static_cast<double>(classes.MemoryBytes(c));
    }
    for (int32_t k = 0; k < static_cast<int32_t>(num_kinds()); ++k) {
      std::vector<int64_t> is_of_kind;
      for (int32_t other : kind_of_class_) is_of_kind.push_back(other == k);
      slots_[k] = static_cast<double>(classes.SlotsWorth(is_of_kind));
    }
    FillUnits(problem);
    if (memory == Memory::kPriced) FindScarceMemory();
    share_.resize(num_kinds());
    memory_price_.resize(num_kinds());
  }

  Prices Maximize() {
    const size_t free = num_kinds() - 1, size = free + scarce_.size();
    std::vector<double> x(size, 1.0 / static_cast<double>(num_kinds()));
    std::vector<double> half_axes(size, std::sqrt(2.0));
    for (size_t j = free; j < size; ++j) {
      x[j] = 0.5;
      half_axes[j] = std::sqrt(0.5 * static_cast<double>(size));
    }
    if (size > 0) {
      const size_t work = std::max(load_.size(), 2 * size * size);  // of a step
      const double steps = std::min(40.0 * static_cast<double>(size * (size + 1)),
                                    kMaxSearchWork / static_cast<double>(work + 1));
      x = MaximizeConcave([this](const std::vector<double>& at) { return Ask(at); }, std::move(x),
                          half_axes, static_cast<int>(steps));
    }
    Unpack(x);
    return ToPrices();
  }

 private:
  size_t num_kinds() const { return slots_.size(); }

  void FillUnits(const Problem& problem) {
    load_.assign(problem.num_units() * num_kinds(), HUGE_VAL);
    for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
      double most = 0.0;
      for (int32_t c = 0; c < classes_.num_classes(); ++c) {
        if (!classes_.Allows(unit, c)) continue;
        const int32_t k = kind_of_class_[c];
        const double load = static_cast<double>(classes_.LoadNs(unit, c)) / slots_[k];
        load_[unit * num_kinds() + k] = load;
        most = std::max(most, load);
      }
      bytes_.push_back(static_cast<double>(classes_.PersistentBytes(unit)));
      scale_ns_ += most;
    }
    scale_ns_ = std::max(scale_ns_, 1.0);
  }

  void FindScarceMemory() {
    for (size_t k = 0; k < num_kinds(); ++k) {
      double bytes = 0.0;
      for (size_t unit = 0; unit < bytes_.size(); ++unit) {
        if (load_[unit * num_kinds() + k] != HUGE_VAL) bytes += bytes_[unit];
      }
      if (bytes > memory_bytes_[k] && memory_bytes_[k] > 0.0) scarce_.push_back(k);
    }
  }

  void Unpack(const std::vector<double>& x) {
    const size_t free = num_kinds() - 1;
    share_[0] = 1.0 - std::accumulate(x.begin(), x.begin() + free, 0.0);
    std::copy_n(x.begin(), free, share_.begin() + 1);
    for (size_t j = 0; j < scarce_.size(); ++j) memory_price_[scarce_[j]] = x[free + j];
  }

  OracleAnswer Ask(const std::vector<double>& x) {
    const size_t free = num_kinds() - 1;
    Unpack(x);
    OracleAnswer answer{false, 0.0, std::vector<double>(x.size(), 0.0)};
    for (size_t j = 0; j < x.size(); ++j) {
      if (x[j] >= 0.0) continue;
      answer.direction[j] = 1.0;
      return answer;
    }
    if (share_[0] < 0.0) {
      std::fill_n(answer.direction.begin(), free, -1.0);
      return answer;
    }
    answer.inside = true;
    std::vector<double> work(num_kinds(), 0.0), held(num_kinds(), 0.0);
    answer.value = AssignUnits(&work, &held);
    for (size_t j = 0; j < free; ++j) answer.direction[j] = work[j + 1] - work[0];
    for (size_t j = 0; j < scarce_.size(); ++j) {
      answer.value -= x[free + j] * scale_ns_;
      answer.direction[free + j] = (held[scarce_[j]] / memory_bytes_[scarce_[j]] - 1.0) * scale_ns_;
    }
    return answer;
  }

  // Each unit to its cheapest kind; returns the sum of prices.
  double AssignUnits(std::vector<double>* work, std::vector<double>* held) const {
    const size_t kinds = num_kinds();
    std::vector<double> per_byte(kinds, 0.0);
    for (size_t k : scarce_) per_byte[k] = memory_price_[k] * scale_ns_ / memory_bytes_[k];
    double sum = 0.0;
    for (size_t unit = 0; unit < bytes_.size(); ++unit) {
      const double* load = &load_[unit * kinds];
      size_t best = 0;
      double least = HUGE_VAL;
      for (size_t k = 0; k < kinds; ++k) {
        if (load[k] == HUGE_VAL) continue;
        const double price = share_[k] * load[k] + per_byte[k] * bytes_[unit];
        if (price >= least) continue;
        least = price;
        best = k;
      }
      sum += least;
      (*work)[best] += load[best];
      (*held)[best] += bytes_[unit];
    }
    return sum;
  }

  Prices ToPrices() const {
    Prices prices;
    for (int32_t k : kind_of_class_) {
      const double per_ns = std::max(share_[k], 0.0) / slots_[k];
      prices.per_ns.push_back(std::llround(std::min(per_ns, 1.0) * kPriceScale));
      double per_byte = 0.0;
      if (memory_price_[k] > 0.0) per_byte = memory_price_[k] * scale_ns_ / memory_bytes_[k];
      prices.per_byte.push_back(std::llround(std::min(per_byte * kPriceScale, kMaxPricePerByte)));
    }
    return prices;
  }

  const DeviceClasses& classes_;
  std::vector<int32_t> kind_of_class_;        // [classes] position among kinds with devices
  std::vector<double> slots_, memory_bytes_;  // [kinds] of all devices
  std::vector<double> load_;                  // [U * kinds] / slots, infinite where not allowed
  std::vector<double> bytes_;                 // [U]
  double scale_ns_ = 0.0;
  std::vector<size_t> scarce_;                // kinds whose memory has a price
  std::vector<double> share_, memory_price_;  // [kinds]
};

}  // namespace

Prices SearchPrices(const Problem& problem, const DeviceClasses& classes, Memory memory) {
  return Relaxation(problem, classes, memory).Maximize();
}

}  // namespace hplacer
