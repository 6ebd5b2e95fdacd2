// Random changes of a placement, of every size: what a local search tries.
//
// Each kind of move picks units by another relation: one unit, a connected region of one device, a
// cluster of the coarsening, a piece of the critical chain, all look-alikes in a span of time, the
// readers of one tensor, all that a device does in a span of time; and sends them to one device.
// `kSwapDevices` exchanges two devices within a span of time or from some time on. Regions of all
// sizes are equally likely in the logarithm. Half of the moves start on the critical chain. A unit
// whose neighbours are all moved may go along.
//
// One object per thread, to keep its arrays. A move depends on nothing but the state and the
// random stream.

#ifndef HPLACER_ENGINE_SEARCH_MOVE_MAKER_H_
#define HPLACER_ENGINE_SEARCH_MOVE_MAKER_H_

#include <cstdint>
#include <vector>

#include "engine/search/random_stream.h"
#include "engine/search/search_space.h"
#include "engine/search/search_state.h"

namespace hplacer {

enum MoveKind : int32_t {
  kOneUnit,
  kRegion,
  kCluster,
  kChainPiece,
  kLookAlikes,
  kReaders,
  kTimeSpan,
  kSwapDevices,
  kSwapRegions,
  kNumMoveKinds,
};

class MoveMaker {
 public:
  explicit MoveMaker(const SearchSpace& space);

  // Writes a move that changes something and puts every unit on a candidate; may find none.
  void Make(const SearchState& state, MoveKind kind, RandomStream* random, Move* move);

 private:
  int32_t SeedUnit();
  int32_t TargetDevice(int32_t unit);
  int32_t NeighbourDevice(int32_t unit);
  int32_t IdleDevice(int32_t unit);
  void Mark(int32_t unit);
  bool IsMarked(int32_t unit) const { return mark_[unit] == mark_id_; }
  void GrowRegion(int32_t seed, int32_t size);
  void TakeCluster(int32_t seed);
  void TakeChainPiece();
  void TakeLookAlikes(int32_t seed);
  void TakeReaders(int32_t seed);
  void TakeTimeSpan(int32_t seed);
  void SwapDevices(Move* move);
  void SwapRegions(Move* move);
  void PullAlong();
  void SendTo(int32_t device, Move* move);

  const SearchSpace& space_;
  const Problem& problem_;
  const SearchState* state_ = nullptr;
  RandomStream* random_ = nullptr;
  std::vector<int64_t> load_before_ns_;  // [U + 1] of the units before
  std::vector<int32_t> region_;
  std::vector<int64_t> mark_;  // [U]
  int64_t mark_id_ = 0;
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SEARCH_MOVE_MAKER_H_
