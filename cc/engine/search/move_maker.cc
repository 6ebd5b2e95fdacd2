#include "engine/search/move_maker.h"

#include <algorithm>

namespace hplacer {

MoveMaker::MoveMaker(const SearchSpace& space)
    : space_(space), problem_(space.problem()), mark_(problem_.num_units(), 0) {
  load_before_ns_.push_back(0);
  for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
    load_before_ns_.push_back(load_before_ns_.back() + space.LeastLoadNs(unit));
  }
}

void MoveMaker::Make(const SearchState& state, MoveKind kind, RandomStream* random, Move* move) {
  state_ = &state;
  random_ = random;
  move->clear();
  region_.clear();
  ++mark_id_;
  const int32_t seed = SeedUnit();
  switch (kind) {
    case kOneUnit:
      Mark(seed);
      break;
    case kRegion:
      GrowRegion(seed, random_->LogBelow(std::max(2, problem_.num_units() / 4)));
      break;
    case kCluster:
      TakeCluster(seed);
      break;
    case kChainPiece:
      TakeChainPiece();
      break;
    case kLookAlikes:
      TakeLookAlikes(seed);
      break;
    case kReaders:
      TakeReaders(seed);
      break;
    case kTimeSpan:
      TakeTimeSpan(seed);
      break;
    case kSwapDevices:
      SwapDevices(move);
      return;
    case kSwapRegions:
      SwapRegions(move);
      return;
    case kNumMoveKinds:
      return;
  }
  if (region_.empty()) return;
  const int32_t device =
      TargetDevice(region_[random_->Below(static_cast<int64_t>(region_.size()))]);
  if (random_->Below(2) == 0) PullAlong();
  SendTo(device, move);
}

// On the critical chain, or anywhere; as likely as it takes time, or all alike.
int32_t MoveMaker::SeedUnit() {
  const std::vector<int32_t>& chain = state_->chain.ops;
  const auto pick = [this](const std::vector<int32_t>& ops) {
    return problem_.units()[ops[random_->Below(static_cast<int64_t>(ops.size()))]];
  };
  const int32_t die = random_->Below(16);
  if (die < 2 && !state_->chain.senders.empty()) return pick(state_->chain.senders);
  if (die < 4 && !chain.empty()) return pick(chain);
  if (die < 9 && !chain.empty()) {
    const auto time_ns =
        static_cast<int64_t>(random_->Uniform() * static_cast<double>(state_->score.makespan_ns));
    const auto op = std::find_if(chain.begin(), chain.end(), [&](int32_t i) {
      return state_->schedule.start_ns[i] <= time_ns;
    });
    return problem_.units()[op == chain.end() ? chain.back() : *op];
  }
  if (die < 13) {
    const auto draw =
        static_cast<int64_t>(random_->Uniform() * static_cast<double>(load_before_ns_.back()));
    const auto after = std::upper_bound(load_before_ns_.begin(), load_before_ns_.end() - 1, draw);
    return static_cast<int32_t>(after - load_before_ns_.begin()) - 1;
  }
  return random_->Below(problem_.num_units());
}

// The device of a neighbour, the one that would do the unit soonest, or any candidate.
int32_t MoveMaker::TargetDevice(int32_t unit) {
  const int32_t here = state_->unit_device[unit];
  const int32_t die = random_->Below(8);
  int32_t device = die < 4 ? NeighbourDevice(unit) : die < 7 ? IdleDevice(unit) : here;
  const int32_t first = problem_.candidate_ptr()[unit];
  const int32_t count = problem_.candidate_ptr()[unit + 1] - first;
  for (int32_t attempt = 0; attempt < 4 && device == here; ++attempt) {
    device = problem_.candidates()[first + random_->Below(count)];
  }
  return device;
}

int32_t MoveMaker::NeighbourDevice(int32_t unit) {
  const int32_t here = state_->unit_device[unit];
  const int32_t begin = space_.neighbour_ptr()[unit], end = space_.neighbour_ptr()[unit + 1];
  for (int32_t attempt = 0; attempt < 4 && begin < end; ++attempt) {
    const int32_t other = space_.neighbours()[begin + random_->Below(end - begin)].unit;
    if (state_->unit_device[other] != here) return state_->unit_device[other];
  }
  return here;
}

// Of two random candidates the one that has less to do around the time of the unit, with the unit.
int32_t MoveMaker::IdleDevice(int32_t unit) {
  const int32_t here = state_->unit_device[unit];
  const int32_t first = problem_.candidate_ptr()[unit];
  const int32_t count = problem_.candidate_ptr()[unit + 1] - first;
  const int32_t slice = state_->SliceOf(state_->unit_ns[unit]);
  int32_t best = here;
  int64_t best_ns = 0;
  for (int32_t attempt = 0; attempt < 2; ++attempt) {
    const int32_t device = problem_.candidates()[first + random_->Below(count)];
    if (device == here) continue;
    const int64_t ns =
        space_.LoadNs(unit, device) +
        state_->busy_ns[static_cast<size_t>(slice) * problem_.num_devices() + device];
    if (best != here && ns >= best_ns) continue;
    best = device;
    best_ns = ns;
  }
  return best;
}

void MoveMaker::Mark(int32_t unit) {
  if (IsMarked(unit)) return;
  mark_[unit] = mark_id_;
  region_.push_back(unit);
}

// Breadth first over units of the seed's device, or, as often, at random.
void MoveMaker::GrowRegion(int32_t seed, int32_t size) {
  const int32_t device = state_->unit_device[seed];
  const bool breadth_first = random_->Below(2) == 0;
  const auto first = region_.size();
  Mark(seed);
  for (size_t next = first; next < region_.size(); ++next) {
    if (!breadth_first) {
      std::swap(region_[next],
                region_[next + random_->Below(static_cast<int64_t>(region_.size() - next))]);
    }
    const int32_t unit = region_[next];
    for (int32_t i = space_.neighbour_ptr()[unit]; i < space_.neighbour_ptr()[unit + 1]; ++i) {
      if (static_cast<int32_t>(region_.size() - first) >= size) return;
      const int32_t other = space_.neighbours()[i].unit;
      if (state_->unit_device[other] == device) Mark(other);
    }
  }
}

// Of any level; what is on the seed's device, or all.
void MoveMaker::TakeCluster(int32_t seed) {
  const auto levels = static_cast<int64_t>(space_.clusters().size());
  if (levels == 0) return;
  const SearchSpace::Clusters& clusters = space_.clusters()[random_->Below(levels)];
  const bool all = random_->Below(3) == 0;
  const int32_t cluster = clusters.of_unit[seed], device = state_->unit_device[seed];
  for (int32_t i = clusters.members.ptr[cluster]; i < clusters.members.ptr[cluster + 1]; ++i) {
    const int32_t unit = clusters.members.items[i];
    if (all || state_->unit_device[unit] == device) Mark(unit);
  }
}

void MoveMaker::TakeChainPiece() {
  const std::vector<int32_t>& chain = state_->chain.ops;
  if (chain.empty()) return;
  const auto size = static_cast<int32_t>(chain.size());
  const int32_t begin = random_->Below(size);
  const int32_t length = random_->LogBelow(std::max(2, size / 2));
  const int32_t device = state_->placement[chain[begin]];
  for (int32_t i = begin; i < std::min(size, begin + length); ++i) {
    if (state_->placement[chain[i]] == device) Mark(problem_.units()[chain[i]]);
  }
}

// Those that start within a span of time around the seed, or all.
void MoveMaker::TakeLookAlikes(int32_t seed) {
  const Grouping& alike = space_.look_alikes();
  const int32_t look = space_.look()[seed];
  const int32_t device = state_->unit_device[seed];
  const int64_t now_ns = state_->unit_ns[seed];
  const auto span_ns = static_cast<int64_t>(static_cast<double>(state_->score.makespan_ns) *
                                            (random_->Below(2) == 0 ? 2 : random_->Uniform()));
  for (int32_t i = alike.ptr[look]; i < alike.ptr[look + 1]; ++i) {
    const int32_t unit = alike.items[i];
    if (state_->unit_device[unit] == device &&
        std::abs(state_->unit_ns[unit] - now_ns) <= span_ns) {
      Mark(unit);
    }
  }
}

// The consumers on one device of a tensor that the seed makes, and half of the time the seed.
void MoveMaker::TakeReaders(int32_t seed) {
  const int32_t first = problem_.unit_op_ptr()[seed];
  const int32_t op =
      problem_.unit_ops()[first + random_->Below(problem_.unit_op_ptr()[seed + 1] - first)];
  const int32_t begin = problem_.consumer_ptr()[problem_.FirstTensor(op)];
  const int32_t end = problem_.consumer_ptr()[problem_.FirstTensor(op + 1)];
  if (begin == end) return;
  const int32_t reader = problem_.consumers()[begin + random_->Below(end - begin)];
  const int32_t device = state_->placement[reader];
  for (int32_t e = begin; e < end; ++e) {
    const int32_t consumer = problem_.consumers()[e];
    if (state_->placement[consumer] == device) Mark(problem_.units()[consumer]);
  }
  if (random_->Below(2) == 0 && state_->unit_device[seed] == device) Mark(seed);
}

void MoveMaker::TakeTimeSpan(int32_t seed) {
  const int32_t device = state_->unit_device[seed];
  const int64_t from_ns = state_->unit_ns[seed];
  const double share = 0.5 / random_->LogBelow(256);
  const int64_t to_ns =
      from_ns + static_cast<int64_t>(share * static_cast<double>(state_->score.makespan_ns));
  for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
    if (state_->unit_device[unit] == device && state_->unit_ns[unit] >= from_ns &&
        state_->unit_ns[unit] <= to_ns) {
      Mark(unit);
    }
  }
}

void MoveMaker::SwapDevices(Move* move) {
  const int32_t seed = SeedUnit();
  const int32_t a = state_->unit_device[seed], b = TargetDevice(seed);
  if (a == b) return;
  const int64_t from_ns = state_->unit_ns[seed];
  const double share = random_->Below(2) == 0 ? 1 : random_->Uniform() * random_->Uniform();
  const int64_t to_ns =
      from_ns + static_cast<int64_t>(share * static_cast<double>(state_->score.makespan_ns));
  for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
    if (state_->unit_ns[unit] < from_ns || state_->unit_ns[unit] > to_ns) continue;
    const int32_t device = state_->unit_device[unit];
    if (device == a && problem_.IsCandidate(unit, b)) move->emplace_back(unit, b);
    if (device == b && problem_.IsCandidate(unit, a)) move->emplace_back(unit, a);
  }
}

void MoveMaker::SwapRegions(Move* move) {
  const int32_t seed = SeedUnit();
  const int32_t here = state_->unit_device[seed], there = TargetDevice(seed);
  if (here == there) return;
  const int32_t size = random_->LogBelow(std::max(2, problem_.num_units() / 16));
  GrowRegion(seed, size);
  SendTo(there, move);
  region_.clear();
  for (int32_t attempt = 0; attempt < 8; ++attempt) {
    const int32_t other = random_->Below(problem_.num_units());
    if (state_->unit_device[other] != there || IsMarked(other)) continue;
    GrowRegion(other, size);
    SendTo(here, move);
    return;
  }
}

// Neighbours on the same device, all of whose own neighbours are in the region.
void MoveMaker::PullAlong() {
  const size_t size = region_.size();
  for (size_t r = 0; r < size; ++r) {
    const int32_t unit = region_[r];
    for (int32_t i = space_.neighbour_ptr()[unit]; i < space_.neighbour_ptr()[unit + 1]; ++i) {
      const int32_t other = space_.neighbours()[i].unit;
      if (IsMarked(other) || state_->unit_device[other] != state_->unit_device[unit]) continue;
      const int32_t begin = space_.neighbour_ptr()[other], end = space_.neighbour_ptr()[other + 1];
      bool surrounded = true;
      for (int32_t j = begin; surrounded && j < end; ++j) {
        surrounded = IsMarked(space_.neighbours()[j].unit);
      }
      if (surrounded) Mark(other);
    }
  }
}

void MoveMaker::SendTo(int32_t device, Move* move) {
  for (int32_t unit : region_) {
    if (state_->unit_device[unit] != device && problem_.IsCandidate(unit, device)) {
      move->emplace_back(unit, device);
    }
  }
}

}  // namespace hplacer
