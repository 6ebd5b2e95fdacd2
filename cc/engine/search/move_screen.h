// Of several random moves the one that promises most, told from the schedule as it is.
//
// A simulation takes as long as hundreds of estimates. So of moves of one kind only the one with
// the least lateness is simulated. The lateness of a move is how much longer the step becomes by
// it, estimated: each moved op gets a start on its new device, when its inputs are there and the op
// that runs at that time has ended; what comes after it, its readers and the next op of that
// device, may start later by its slack (schedule_slack.h). The length of the longest way through a
// moved op is also how local search for job shops estimates its moves (Taillard, "Parallel Taboo
// Search Techniques for the Job Shop Scheduling Problem", ORSA Journal on Computing 1994). What
// moved ops leave behind on their old device is not in it, nor are queues of transfers, nor memory.
//
// One object per thread, to keep its arrays.

#ifndef HPLACER_ENGINE_SEARCH_MOVE_SCREEN_H_
#define HPLACER_ENGINE_SEARCH_MOVE_SCREEN_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/search/move_maker.h"
#include "engine/search/random_stream.h"
#include "engine/search/search_space.h"
#include "engine/search/search_state.h"

namespace hplacer {

class MoveScreen {
 public:
  static constexpr int32_t kDraws = 8;

  // Keeps a reference. `mover` is that of the same thread.
  MoveScreen(const SearchSpace& space, MoveMaker* mover);

  // Writes the move with the least lateness of kDraws, or the first one if that is too large to be
  // estimated, or if what is wanted of the state's placement is that it becomes feasible.
  void Make(const SearchState& state, MoveKind kind, RandomStream* random, Move* move);

  // In ns; negative if everything that comes after a moved op could start later than it would.
  // Lateness of `limit_ns` and more is told as that. The state must have a slack.
  int64_t LatenessNs(const SearchState& state, const Move& move, int64_t limit_ns);

 private:
  int64_t ReadyNs(const SearchState& state, int32_t op) const;
  int64_t ArrivalNs(const SearchState& state, int32_t src, int32_t tensor, int32_t device) const;
  int64_t TransferNs(int32_t tensor, int32_t from, int32_t to) const;
  int64_t ReadersLatenessNs(const SearchState& state, int32_t op) const;
  bool IsMoved(int32_t op) const { return mark_[op] == mark_id_; }

  const SearchSpace& space_;
  const Problem& problem_;
  MoveMaker* mover_;
  Move other_;
  std::vector<std::pair<int64_t, int32_t>> moved_;  // (start, op)
  // [n] of moved ops.
  std::vector<int64_t> mark_, finish_ns_;
  std::vector<int32_t> device_;
  int64_t mark_id_ = 0;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_MOVE_SCREEN_H_
