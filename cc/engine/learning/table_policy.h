// Grouper and Placer as tables: a policy of independent choices, each with logits of its own.
//
//   Placer:   a device for each group             softmax over placer_logits[group]
//   Grouper:  a group for each item, one of few   softmax over grouper_logits[item]
//
// An item is a set of units; it goes to the device of the group that it drew. Mirhoseini et al., "A
// Hierarchical Model for Device Placement" (ICLR 2018), have networks compute these logits from
// features; here nothing is shared, so that a choice can change without all others.
//
// `Learn` follows the policy gradient (REINFORCE, Williams 1992) of the last batch, by Adam (Kingma
// and Ba, 2015). The Grouper's is Rao-Blackwellised: what counts for an item is its device, not by
// which group it got there, so that its gradient is that of the logarithm of the probability, over
// its groups, of the device that it got, given the devices that the groups drew. That has the same
// mean as the gradient of what it drew, and less variance.
//
// Assumptions: a device that a group may draw is a candidate of every unit of every item that may
// draw the group. Logits of -infinity are never drawn.
//
// The same seed and calls give the same bytes for any number of threads: rows have random streams
// of their own, and sums are made in the order of rows.

#ifndef HPLACER_ENGINE_LEARNING_TABLE_POLICY_H_
#define HPLACER_ENGINE_LEARNING_TABLE_POLICY_H_

#include <cstdint>
#include <vector>

#include "engine/problem/problem.h"

namespace hplacer {

// A table of logits [rows, columns] with Adam's averages of the gradient and of its square.
struct LogitTable {
  int32_t columns = 0;
  std::vector<double> logits, mean, square;
  double lowest = 0;  // of logits, below the largest of their row

  size_t rows() const { return columns == 0 ? 0 : logits.size() / columns; }
};

// How a batch changes the policy.
struct LearningRule {
  double placer_rate = 0;    // of Adam; 0: the Placer stays as it is
  double grouper_rate = 0;   // the same of the Grouper
  double entropy_bonus = 0;  // weight of the entropy of a group's device
  bool rao_blackwell = true;
};

class TablePolicy {
 public:
  // `item_of_unit`: [U] 0..N-1. `candidates`: [N * K] the groups that an item may draw, or -1.
  // `placer_logits`: [G * m]. `grouper_logits`: [N * K]. Throws ProblemError unless these fit each
  // other and the problem as assumed above. Keeps a reference to the problem.
  TablePolicy(const Problem& problem, std::vector<int32_t> item_of_unit,
              std::vector<int32_t> candidates, std::vector<double> placer_logits,
              std::vector<double> grouper_logits);

  const Problem& problem() const { return problem_; }
  int32_t num_groups() const { return num_groups_; }
  int32_t num_items() const { return num_items_; }

  // Draws `count` placements: devices of ops, row-major [count, n].
  void Draw(uint64_t seed, int32_t count, int threads, int32_t* placements);

  // Learns from the last batch: `advantages` has one number per placement, more is better.
  void Learn(const std::vector<double>& advantages, const LearningRule& rule, int threads);

  // The mean entropy of a group's device, in nats.
  double PlacerEntropy() const;

  const LogitTable& placer() const { return placer_; }
  const LogitTable& grouper() const { return grouper_; }
  int64_t updates() const { return updates_; }
  // Throws ProblemError if the sizes differ.
  void Restore(LogitTable placer, LogitTable grouper, int64_t updates);

 private:
  void Check() const;
  void DrawRow(uint64_t seed, int32_t row, int32_t* placement);
  void LearnPlacer(const std::vector<double>& advantages, double mean, const LearningRule& rule);
  void LearnItem(int32_t item, const std::vector<double>& advantages, double mean,
                 const LearningRule& rule);
  void AddGradient(const std::vector<double>& gradient, double rate, size_t row, LogitTable* table);

  const Problem& problem_;
  const int32_t num_devices_, num_items_, num_groups_, num_candidates_;
  const std::vector<int32_t> item_of_unit_, candidates_;
  LogitTable placer_, grouper_;
  int64_t updates_ = 0;
  // Of the logits.
  std::vector<double> device_chance_, group_chance_;
  // Of the last batch, by row: the device of each group, and which candidate each item drew.
  int32_t count_ = 0;
  std::vector<int32_t> group_device_;
  std::vector<uint8_t> choice_;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_LEARNING_TABLE_POLICY_H_
