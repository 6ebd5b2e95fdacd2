#include "engine/search/annealing.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hplacer {
namespace {

constexpr double kForgetPerRound = 0.995;  // of what kinds of moves were worth
constexpr double kLeastKindShare = 0.02;
constexpr int32_t kUnscreened = 4;  // of so many moves one is made as it comes
constexpr size_t kMostRetries = Annealing::kRoundSize / 2;

}  // namespace

Annealing::Annealing(const SearchSpace& space, WorkerTeam* team, uint64_t seed,
                     const AnnealingParts& parts)
    : space_(space), problem_(space.problem()), team_(team), seed_(seed), parts_(parts) {
  for (int i = 0; i < team->size(); ++i) {
    auto mover = std::make_unique<MoveMaker>(space);
    auto screen = std::make_unique<MoveScreen>(space, mover.get());
    auto scorer = MakePlacementScorer(problem_, space.tables(), OrdersOf(parts));
    workers_.push_back({std::move(scorer), std::move(mover), std::move(screen), {}});
  }
  gain_.fill(1);
  effort_.fill(1);
}

Score Annealing::Run(const AnnealingSchedule& schedule, const Limits& limits,
                     std::vector<int32_t>* placement) {
  state_.Enter(problem_, *placement, workers_[0].scorer.get());
  retries_.clear();
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
    if (parts_.screens_moves && index % kUnscreened != 0) {
      worker->screen->Make(state_, candidate->kind, &random, &candidate->move);
    } else {
      worker->mover->Make(state_, candidate->kind, &random, &candidate->move);
    }
  }
  if (candidate->move.empty()) return;
  candidate->cutoff = DrawCutoff(temperature, &random);
  worker->placement = state_.placement;
  PlaceMove(problem_, candidate->move, &worker->placement);
  candidate->is_scored = worker->scorer->Run(worker->placement.data(), candidate->cutoff,
                                             &candidate->score, &candidate->schedule);
  candidate->work = worker->scorer->work();
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
  for (int32_t i = 0; i < count; ++i) work_ += candidates_[i].work + problem_.num_ops() / 16;
  const int32_t chosen = Choose(count);
  for (int32_t k = 0; k < kNumMoveKinds; ++k) {
    gain_[k] = gain_[k] * kForgetPerRound + (1 - kForgetPerRound);
    effort_[k] = effort_[k] * kForgetPerRound + (1 - kForgetPerRound);
  }
  std::vector<std::pair<Score, int32_t>> improving;
  for (int32_t i = 0; i < count; ++i) {
    const Candidate& candidate = candidates_[i];
    const bool improves = candidate.is_scored && candidate.score < state_.score;
    if (candidate.kind != kNumMoveKinds) {
      effort_[candidate.kind] +=
          0.1 + static_cast<double>(candidate.work) / static_cast<double>(problem_.num_ops());
      gain_[candidate.kind] += improves;
    }
    if (improves && i != chosen) improving.emplace_back(candidate.score, i);
  }
  MakeRetries(std::move(improving));
  if (chosen < 0) return;
  Candidate& next = candidates_[chosen];
  state_.Accept(problem_, next.move, next.score, &next.schedule);
}

// The best one if that improves, else the first that is good enough, or -1.
int32_t Annealing::Choose(int32_t count) const {
  int32_t first = -1, best = -1;
  for (int32_t i = 0; i < count; ++i) {
    if (!candidates_[i].is_scored) continue;
    if (first < 0) first = i;
    if (best < 0 || candidates_[i].score < candidates_[best].score) best = i;
  }
  return best >= 0 && candidates_[best].score < state_.score ? best : first;
}

// The best ones.
void Annealing::MakeRetries(std::vector<std::pair<Score, int32_t>> improving) {
  std::stable_sort(improving.begin(), improving.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (improving.size() > kMostRetries) improving.resize(kMostRetries);
  retries_.clear();
  for (const auto& [score, i] : improving) retries_.push_back(candidates_[i].move);
}

}  // namespace hplacer
