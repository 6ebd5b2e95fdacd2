#include "engine/search/memory_repair.h"

#include <algorithm>
#include <utility>

#include "engine/search/random_stream.h"

namespace hplacer {
namespace {

constexpr int32_t kRounds = 8;
constexpr int32_t kTrialsPerStep = 4096;

class Packing {
 public:
  Packing(const Problem& problem, const std::vector<int64_t>& capacity_bytes,
          std::vector<int32_t>* placement, RandomStream* random)
      : problem_(problem),
        random_(random),
        placement_(placement),
        free_bytes_(capacity_bytes),
        unit_bytes_(problem.num_units(), 0),
        holders_(problem.num_devices()) {
    for (int32_t op = 0; op < problem.num_ops(); ++op) {
      unit_bytes_[problem.units()[op]] += problem.spec().persistent_bytes[op];
    }
    for (int32_t unit = 0; unit < problem.num_units(); ++unit) {
      free_bytes_[DeviceOf(unit)] -= unit_bytes_[unit];
      if (unit_bytes_[unit] > 0) holders_[DeviceOf(unit)].push_back(unit);
    }
  }

  // Returns whether all fits.
  bool Run() {
    for (;;) {
      const auto fullest = static_cast<int32_t>(
          std::min_element(free_bytes_.begin(), free_bytes_.end()) - free_bytes_.begin());
      if (free_bytes_[fullest] >= 0) return true;
      if (!Relieve(fullest)) return false;
    }
  }

 private:
  struct Change {
    int32_t unit = -1, other = -1, device = -1;  // `other`: comes back in exchange, or -1
    int64_t gain_bytes = 0;
  };

  int32_t DeviceOf(int32_t unit) const {
    return (*placement_)[problem_.unit_ops()[problem_.unit_op_ptr()[unit]]];
  }

  static int64_t Overflow(int64_t free_bytes) { return std::max<int64_t>(0, -free_bytes); }

  // Of many random changes, the one that lessens the overflow most.
  bool Relieve(int32_t from) {
    const int32_t m = problem_.num_devices();
    if (m < 2 || holders_[from].empty()) return false;
    Change best;
    for (int32_t trial = 0; trial < kTrialsPerStep; ++trial) {
      Change change;
      change.unit = Pick(from);
      change.device = random_->Below(m - 1);
      change.device += change.device >= from;
      if (trial % 2 == 1 && !holders_[change.device].empty()) change.other = Pick(change.device);
      if (!problem_.IsCandidate(change.unit, change.device)) continue;
      if (change.other >= 0 && !problem_.IsCandidate(change.other, from)) continue;
      const int64_t bytes =
          unit_bytes_[change.unit] - (change.other < 0 ? 0 : unit_bytes_[change.other]);
      const int64_t before = Overflow(free_bytes_[from]) + Overflow(free_bytes_[change.device]);
      const int64_t after =
          Overflow(free_bytes_[from] + bytes) + Overflow(free_bytes_[change.device] - bytes);
      change.gain_bytes = before - after;
      if (change.gain_bytes > best.gain_bytes) best = change;
    }
    if (best.unit < 0) return false;
    MoveUnit(best.unit, from, best.device);
    if (best.other >= 0) MoveUnit(best.other, best.device, from);
    return true;
  }

  int32_t Pick(int32_t device) const {
    return holders_[device][random_->Below(static_cast<int64_t>(holders_[device].size()))];
  }

  void MoveUnit(int32_t unit, int32_t from, int32_t to) {
    for (int32_t i = problem_.unit_op_ptr()[unit]; i < problem_.unit_op_ptr()[unit + 1]; ++i) {
      (*placement_)[problem_.unit_ops()[i]] = to;
    }
    free_bytes_[from] += unit_bytes_[unit];
    free_bytes_[to] -= unit_bytes_[unit];
    std::vector<int32_t>& left = holders_[from];
    left.erase(std::find(left.begin(), left.end(), unit));
    holders_[to].push_back(unit);
  }

  const Problem& problem_;
  RandomStream* random_;
  std::vector<int32_t>* placement_;
  std::vector<int64_t> free_bytes_;  // [m]
  std::vector<int64_t> unit_bytes_;  // [U]
  std::vector<std::vector<int32_t>> holders_;
};

}  // namespace

std::vector<int32_t> RepairMemory(const Problem& problem, PlacementScorer* scorer, uint64_t seed,
                                  std::vector<int32_t> placement, int32_t* evaluations) {
  RandomStream random(seed, 0, 0);
  std::vector<int32_t> best;
  Score best_score;
  for (int32_t round = 0; round < kRounds; ++round) {
    Score score;
    ++*evaluations;
    if (scorer->Run(placement.data(), best_score, &score, nullptr)) {
      best_score = score;
      best = placement;
    }
    if (best_score.feasible() || score.missing_links > 0) break;
    std::vector<int64_t> capacity_bytes = problem.spec().device_memory_bytes;
    for (int32_t device = 0; device < problem.num_devices(); ++device) {
      capacity_bytes[device] -= scorer->peak_bytes()[device];
    }
    for (int32_t op = 0; op < problem.num_ops(); ++op) {
      capacity_bytes[placement[op]] += problem.spec().persistent_bytes[op];
    }
    std::vector<int32_t> packed = placement;
    Packing(problem, capacity_bytes, &packed, &random).Run();
    if (packed == placement) break;
    placement = std::move(packed);
  }
  return best;
}

}  // namespace hplacer
