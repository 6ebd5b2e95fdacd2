#include "engine/learning/table_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "engine/search/random_stream.h"
#include "engine/simulator/worker_team.h"

namespace hplacer {
namespace {

constexpr double kMeanDecay = 0.9, kSquareDecay = 0.99, kTiny = 1e-8;  // of Adam
// How far logits get below the largest of their rows: unlikely choices are still tried. Of a large
// table further, so that of all rows no more than so many make such a choice in a draw.
constexpr double kLowestLogit = -9, kUnlikelyChoices = 0.2;
constexpr int64_t kLeastWork = 200'000;  // steps of loops for which a thread is worth starting
constexpr int32_t kItemsAtOnce = 256;
constexpr int32_t kMostCandidates = 255;  // a choice is a byte

int32_t LargestPlusOne(const std::vector<int32_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end()) + 1;
}

LogitTable MakeTable(std::vector<double> logits, int32_t columns) {
  LogitTable table;
  table.columns = columns;
  table.mean.assign(logits.size(), 0);
  table.square.assign(logits.size(), 0);
  table.logits = std::move(logits);
  const double choices = static_cast<double>(table.rows()) * std::max(columns - 1, 1);
  table.lowest = std::min(kLowestLogit, std::log(kUnlikelyChoices / std::max(choices, 1.0)));
  return table;
}

void Softmax(const double* logits, int32_t count, double* chance) {
  const double largest = *std::max_element(logits, logits + count);
  double sum = 0;
  for (int32_t i = 0; i < count; ++i) sum += chance[i] = std::exp(logits[i] - largest);
  for (int32_t i = 0; i < count; ++i) chance[i] /= sum;
}

std::vector<double> Chances(const LogitTable& table) {
  std::vector<double> chances(table.logits.size());
  for (size_t row = 0; row < table.rows(); ++row) {
    const size_t first = row * table.columns;
    Softmax(&table.logits[first], table.columns, &chances[first]);
  }
  return chances;
}

// The choice that a uniform number in [0, 1) stands for.
int32_t Choose(const double* chance, int32_t count, double uniform) {
  int32_t last = 0;
  for (int32_t i = 0; i < count; ++i) {
    if (chance[i] <= 0) continue;
    last = i;
    uniform -= chance[i];
    if (uniform < 0) break;
  }
  return last;
}

int Workers(int threads, int64_t work) {
  return static_cast<int>(std::clamp<int64_t>(work / kLeastWork, 1, std::max(threads, 1)));
}

}  // namespace

TablePolicy::TablePolicy(const Problem& problem, std::vector<int32_t> item_of_unit,
                         std::vector<int32_t> candidates, std::vector<double> placer_logits,
                         std::vector<double> grouper_logits)
    : problem_(problem),
      num_devices_(problem.num_devices()),
      num_items_(LargestPlusOne(item_of_unit)),
      num_groups_(num_devices_ == 0 ? 0
                                    : static_cast<int32_t>(placer_logits.size()) / num_devices_),
      num_candidates_(num_items_ == 0 ? 0 : static_cast<int32_t>(candidates.size()) / num_items_),
      item_of_unit_(std::move(item_of_unit)),
      candidates_(std::move(candidates)),
      placer_(MakeTable(std::move(placer_logits), num_devices_)),
      grouper_(MakeTable(std::move(grouper_logits), num_candidates_)) {
  const double never = -std::numeric_limits<double>::infinity();
  Check();
  for (size_t at = 0; at < candidates_.size(); ++at) {
    if (candidates_[at] < 0) grouper_.logits[at] = never;
  }
  for (const LogitTable* table : {&placer_, &grouper_}) {
    for (size_t row = 0; row < table->rows(); ++row) {
      const double* first = &table->logits[row * table->columns];
      if (std::count(first, first + table->columns, never) == table->columns) {
        throw ProblemError("policy: row " + std::to_string(row) + " has no choice");
      }
    }
  }
  device_chance_ = Chances(placer_);
  group_chance_ = Chances(grouper_);
}

void TablePolicy::Check() const {
  const auto wants = [](bool ok, const char* what) {
    if (!ok) throw ProblemError(std::string("policy: ") + what);
  };
  const auto size = [](int64_t rows, int64_t columns) {
    return static_cast<size_t>(rows * columns);
  };
  wants(item_of_unit_.size() == static_cast<size_t>(problem_.num_units()), "one item per unit");
  wants(candidates_.size() == size(num_items_, num_candidates_) &&
            grouper_.logits.size() == candidates_.size() && num_candidates_ <= kMostCandidates,
        "candidates and their logits must have shape [items, at most 255]");
  wants(placer_.logits.size() == size(num_groups_, num_devices_),
        "placer_logits must have shape [groups, devices]");
  wants(
      LargestPlusOne(candidates_) <= num_groups_ &&
          (candidates_.empty() || *std::min_element(candidates_.begin(), candidates_.end()) >= -1),
      "candidates must be groups or -1");
  for (int32_t unit = 0; unit < problem_.num_units(); ++unit) {
    const int32_t item = item_of_unit_[unit];
    wants(item >= 0, "items must not be negative");
    for (int32_t k = 0; k < num_candidates_; ++k) {
      const int32_t group = candidates_[item * static_cast<size_t>(num_candidates_) + k];
      if (group < 0) continue;
      for (int32_t device = 0; device < num_devices_; ++device) {
        const bool may = std::isfinite(placer_.logits[size(group, num_devices_) + device]);
        wants(!may || problem_.IsCandidate(unit, device),
              "a group may draw a device where a unit of it may not run");
      }
    }
  }
}

void TablePolicy::Draw(uint64_t seed, int32_t count, int threads, int32_t* placements) {
  count_ = count;
  group_device_.resize(static_cast<size_t>(count) * num_groups_);
  choice_.resize(static_cast<size_t>(count) * num_items_);
  WorkerTeam team(Workers(std::min(threads, count), int64_t{count} * problem_.num_ops()));
  team.ForEach(count, [&](int, int32_t row) {
    DrawRow(seed, row, placements + static_cast<int64_t>(row) * problem_.num_ops());
  });
}

void TablePolicy::DrawRow(uint64_t seed, int32_t row, int32_t* placement) {
  RandomStream random(seed, row, 0);
  int32_t* device = group_device_.data() + static_cast<size_t>(row) * num_groups_;
  for (int32_t group = 0; group < num_groups_; ++group) {
    device[group] = Choose(&device_chance_[static_cast<size_t>(group) * num_devices_], num_devices_,
                           random.Uniform());
  }
  uint8_t* choice = choice_.data() + static_cast<size_t>(row) * num_items_;
  std::vector<int32_t> item_device(num_items_);
  for (int32_t item = 0; item < num_items_; ++item) {
    const size_t first = static_cast<size_t>(item) * num_candidates_;
    choice[item] =
        static_cast<uint8_t>(Choose(&group_chance_[first], num_candidates_, random.Uniform()));
    item_device[item] = device[candidates_[first + choice[item]]];
  }
  for (int32_t op = 0; op < problem_.num_ops(); ++op) {
    placement[op] = item_device[item_of_unit_[problem_.units()[op]]];
  }
}

void TablePolicy::Learn(const std::vector<double>& advantages, const LearningRule& rule,
                        int threads) {
  if (advantages.size() != static_cast<size_t>(count_)) {
    throw ProblemError("policy: one advantage per placement of the last batch");
  }
  ++updates_;
  const double mean =
      std::accumulate(advantages.begin(), advantages.end(), 0.0) / std::max(count_, 1);
  if (rule.placer_rate > 0) LearnPlacer(advantages, mean, rule);
  if (rule.grouper_rate > 0 && num_candidates_ > 1) {
    WorkerTeam team(Workers(threads, int64_t{count_} * num_items_ * num_candidates_));
    const int32_t blocks = (num_items_ + kItemsAtOnce - 1) / kItemsAtOnce;
    team.ForEach(blocks, [&](int, int32_t block) {
      const int32_t end = std::min(num_items_, (block + 1) * kItemsAtOnce);
      for (int32_t item = block * kItemsAtOnce; item < end; ++item) {
        LearnItem(item, advantages, mean, rule);
      }
    });
    group_chance_ = Chances(grouper_);
  }
  device_chance_ = Chances(placer_);
}

void TablePolicy::LearnPlacer(const std::vector<double>& advantages, double mean,
                              const LearningRule& rule) {
  std::vector<double> gradient(num_devices_);
  for (int32_t group = 0; group < num_groups_; ++group) {
    const double* chance = &device_chance_[static_cast<size_t>(group) * num_devices_];
    double entropy = 0;
    for (int32_t device = 0; device < num_devices_; ++device) {
      gradient[device] = -chance[device] * mean;
      if (chance[device] > 0) entropy -= chance[device] * std::log(chance[device]);
    }
    for (int32_t row = 0; row < count_; ++row) {
      gradient[group_device_[static_cast<size_t>(row) * num_groups_ + group]] +=
          advantages[row] / count_;
    }
    for (int32_t device = 0; device < num_devices_; ++device) {
      if (chance[device] <= 0) continue;
      gradient[device] -=
          rule.entropy_bonus * chance[device] * (std::log(chance[device]) + entropy);
    }
    AddGradient(gradient, rule.placer_rate, group, &placer_);
  }
}

void TablePolicy::LearnItem(int32_t item, const std::vector<double>& advantages, double mean,
                            const LearningRule& rule) {
  const size_t first = static_cast<size_t>(item) * num_candidates_;
  const double* chance = &group_chance_[first];
  if (chance[0] == 1) return;  // it has no other group
  std::vector<double> gradient(num_candidates_);
  for (int32_t row = 0; row < count_; ++row) {
    const int32_t* device = group_device_.data() + static_cast<size_t>(row) * num_groups_;
    const int32_t drawn = choice_[static_cast<size_t>(row) * num_items_ + item];
    if (!rule.rao_blackwell) {
      gradient[drawn] += advantages[row] / count_;
      continue;
    }
    const int32_t its = device[candidates_[first + drawn]];
    double total = 0;  // the probability of its device
    for (int32_t k = 0; k < num_candidates_; ++k) {
      if (chance[k] > 0 && device[candidates_[first + k]] == its) total += chance[k];
    }
    const double weight = advantages[row] / count_ / total;
    for (int32_t k = 0; k < num_candidates_; ++k) {
      if (chance[k] > 0 && device[candidates_[first + k]] == its) gradient[k] += weight * chance[k];
    }
  }
  for (int32_t k = 0; k < num_candidates_; ++k) gradient[k] -= chance[k] * mean;
  AddGradient(gradient, rule.grouper_rate, item, &grouper_);
}

void TablePolicy::AddGradient(const std::vector<double>& gradient, double rate, size_t row,
                              LogitTable* table) {
  const size_t first = row * table->columns;
  const double of_mean = 1 - std::pow(kMeanDecay, static_cast<double>(updates_));
  const double of_square = 1 - std::pow(kSquareDecay, static_cast<double>(updates_));
  double largest = -std::numeric_limits<double>::infinity();
  for (int32_t i = 0; i < table->columns; ++i) {
    double& logit = table->logits[first + i];
    if (!std::isfinite(logit)) continue;
    double& mean = table->mean[first + i];
    double& square = table->square[first + i];
    mean = kMeanDecay * mean + (1 - kMeanDecay) * gradient[i];
    square = kSquareDecay * square + (1 - kSquareDecay) * gradient[i] * gradient[i];
    logit += rate * (mean / of_mean) / (std::sqrt(square / of_square) + kTiny);
    largest = std::max(largest, logit);
  }
  for (int32_t i = 0; i < table->columns; ++i) {
    double& logit = table->logits[first + i];
    if (std::isfinite(logit)) logit = std::max(logit - largest, table->lowest);
  }
}

double TablePolicy::PlacerEntropy() const {
  double sum = 0;
  for (const double chance : device_chance_) {
    if (chance > 0) sum -= chance * std::log(chance);
  }
  return num_groups_ == 0 ? 0 : sum / num_groups_;
}

void TablePolicy::Restore(LogitTable placer, LogitTable grouper, int64_t updates) {
  const auto fits = [](const LogitTable& table, const LogitTable& present) {
    const size_t size = present.logits.size();
    return table.columns == present.columns && table.logits.size() == size &&
           table.mean.size() == size && table.square.size() == size;
  };
  // What cannot be drawn is what could not be drawn before.
  const auto draws = [](const LogitTable& table, const LogitTable& present) {
    return std::equal(table.logits.begin(), table.logits.end(), present.logits.begin(),
                      [](double logit, double other) {
                        return std::isfinite(logit) || std::isfinite(other)
                                   ? std::isfinite(logit) && std::isfinite(other)
                                   : logit < 0;
                      });
  };
  if (!fits(placer, placer_) || !fits(grouper, grouper_)) {
    throw ProblemError("policy: tables of another size");
  }
  if (!draws(placer, placer_) || !draws(grouper, grouper_) || updates < 0) {
    throw ProblemError("policy: tables with logits where there can be none, or the reverse");
  }
  placer.lowest = placer_.lowest;
  grouper.lowest = grouper_.lowest;
  placer_ = std::move(placer);
  grouper_ = std::move(grouper);
  updates_ = updates;
  device_chance_ = Chances(placer_);
  group_chance_ = Chances(grouper_);
}

}  // namespace hplacer
