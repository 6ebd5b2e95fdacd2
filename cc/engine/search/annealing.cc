#include "engine/search/annealing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace hplacer {
namespace {

constexpr double kForget = 0.995;  // of what kinds of moves were worth, per round
constexpr double kLeastKindShare = 0.02;

}  // namespace

Annealing::Annealing(const SearchSpace& space, WorkerTeam* team, uint64_t seed)
    : space_(space), problem_(space.problem()), team_(team), seed_(seed) {
  for (int i = 0; i < team->size(); ++i) {
    workers_.push_back({MakePlacementScorer(problem_, space.tables()),
                        std::make_unique<MoveMaker>(space),
                        {},
                        {}});
  }
  gain_.fill(1);
  effort_.fill(1);
}

void Annealing::Enter(const std::vector<int32_t>& placement) {
  state_.placement = placement;
  state_.unit_device.resize(problem_.num_units());
  for (size_t op = 0; op < placement.size(); ++op) {
    state_.unit_device[problem_.units()[op]] = placement[op];
  }
  state_.unit_ns.assign(problem_.num_units(), 0);
  state_.schedule = Schedule();
  workers_[0].scorer->Run(placement.data(), Score(), &state_.score, &state_.schedule);
}

Score Annealing::Run(const AnnealingSchedule& schedule, const Limits& limits,
                     std::vector<int32_t>* placement) {
  Enter(*placement);
  FinishRound(0);
  Score best = state_.score;
  *placement = state_.placement;
  for (work_ = 0; work_ < schedule.work; ++round_) {
    const int32_t count = limits.take(kRoundSize);
    if (count == 0) break;
    const double progress = static_cast<double>(work_) / static_cast<double>(schedule.work);
    const double temperature =
        schedule.begin_temperature *
        std::pow(schedule.end_temperature / schedule.begin_temperature, progress);
    team_->ForEach(count, [&](int worker, int32_t i) {
      TryCandidate(i, temperature, &workers_[worker], &candidates_[i]);
    });
    FinishRound(count);
    if (state_.score < best) {
      best = state_.score;
      *placement = state_.placement;
      if (limits.on_best) limits.on_best(*placement, best);
    }
  }
  return best;
}

void Annealing::TryCandidate(int32_t index, double temperature, Worker* worker,
                             Candidate* candidate) const {
  RandomStream random(seed_, static_cast<uint64_t>(round_), static_cast<uint64_t>(index));
  candidate->is_scored = false;
  candidate->work = 0;
  if (index < static_cast<int32_t>(retries_.size())) {
    candidate->move = retries_[index];
    candidate->kind = kNumMoveKinds;
  } else {
    candidate->kind = DrawKind(&random);
    worker->mover->Make(state_, candidate->kind, &random, &candidate->move);
  }
  if (candidate->move.empty()) return;
  candidate->cutoff = DrawCutoff(temperature, &random);
  Place(candidate->move, worker);
  candidate->is_scored = worker->scorer->Run(worker->placement.data(), candidate->cutoff,
                                             &candidate->score, &candidate->schedule);
  candidate->work = worker->scorer->work();
}

void Annealing::Place(const Move& move, Worker* worker) const {
  worker->placement = state_.placement;
  for (const auto& [unit, device] : move) {
    for (int32_t i = problem_.unit_op_ptr()[unit]; i < problem_.unit_op_ptr()[unit + 1]; ++i) {
      worker->placement[problem_.unit_ops()[i]] = device;
    }
  }
}

MoveKind Annealing::DrawKind(RandomStream* random) const {
  std::array<double, kNumMoveKinds> share;
  double sum = 0;
  for (int32_t k = 0; k < kNumMoveKinds; ++k) sum += share[k] = gain_[k] / effort_[k];
  double all = 0;
  for (double& s : share) all += s = std::max(s / sum, kLeastKindShare);
  double draw = random->Uniform() * all;
  for (int32_t k = 0; k < kNumMoveKinds; ++k) {
    draw -= share[k];
    if (draw < 0) return static_cast<MoveKind>(k);
  }
  return kOneUnit;
}

Score Annealing::DrawCutoff(double temperature, RandomStream* random) const {
  Score cutoff = state_.score;
  const double worse = random->Exponential() * temperature;
  cutoff.makespan_ns += static_cast<int64_t>(static_cast<double>(cutoff.makespan_ns) * worse);
  return cutoff;
}

void Annealing::FinishRound(int32_t count) {
  int32_t chosen = -1;
  for (int32_t i = 0; i < count; ++i) {
    const Candidate& candidate = candidates_[i];
    work_ += candidate.work + problem_.num_ops() / 16;
    if (candidate.is_scored && chosen < 0) chosen = i;
  }
  for (int32_t k = 0; k < kNumMoveKinds; ++k) {
    gain_[k] = gain_[k] * kForget + (1 - kForget);
    effort_[k] = effort_[k] * kForget + (1 - kForget);
  }
  retries_.clear();
  for (int32_t i = 0; i < count; ++i) {
    Candidate& candidate = candidates_[i];
    const bool improves = candidate.is_scored && candidate.score < state_.score;
    if (candidate.kind != kNumMoveKinds) {
      effort_[candidate.kind] +=
          0.1 + static_cast<double>(candidate.work) / static_cast<double>(problem_.num_ops());
      gain_[candidate.kind] += improves;
    }
    if (improves && i != chosen && static_cast<int32_t>(retries_.size()) < kRoundSize / 2) {
      retries_.push_back(candidate.move);
    }
  }
  if (chosen >= 0) Accept(&candidates_[chosen]);
  if (chosen >= 0 || count == 0) IndexSchedule();
}

// What the moves ask of a new schedule.
void Annealing::IndexSchedule() {
  const std::vector<int64_t>& start_ns = state_.schedule.start_ns;
  state_.busy_ns.assign(static_cast<size_t>(SearchState::kSlices) * problem_.num_devices(), 0);
  state_.chain = FindCriticalChain(problem_, state_.placement.data(), state_.schedule);
  if (start_ns.empty()) return;
  state_.unit_ns.assign(problem_.num_units(), std::numeric_limits<int64_t>::max());
  for (int32_t op = 0; op < problem_.num_ops(); ++op) {
    int64_t& unit_ns = state_.unit_ns[problem_.units()[op]];
    unit_ns = std::min(unit_ns, start_ns[op]);
    const int32_t device = state_.placement[op];
    state_.busy_ns[static_cast<size_t>(state_.SliceOf(start_ns[op])) * problem_.num_devices() +
                   device] += problem_.CostNs(op, device);
  }
}

void Annealing::Accept(Candidate* candidate) {
  for (const auto& [unit, device] : candidate->move) {
    state_.unit_device[unit] = device;
    for (int32_t i = problem_.unit_op_ptr()[unit]; i < problem_.unit_op_ptr()[unit + 1]; ++i) {
      state_.placement[problem_.unit_ops()[i]] = device;
    }
  }
  state_.score = candidate->score;
  std::swap(state_.schedule, candidate->schedule);
}

}  // namespace hplacer
