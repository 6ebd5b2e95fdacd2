// The queues of a simulated step. Each has a total order, and none allocates once it has grown.
//
// Assumes what a simulation guarantees: time never runs backwards.

#ifndef HPLACER_ENGINE_SIMULATOR_STEP_QUEUES_H_
#define HPLACER_ENGINE_SIMULATOR_STEP_QUEUES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace hplacer {

// A set of small integers, drained in ascending order. Few machines have more than 64 of anything.
class IndexSet {
 public:
  // Empties it, for members 0..size-1.
  void Reset(int32_t size) {
    first_ = 0;
    more_.assign(std::max(0, (size - 1) / 64), 0);
  }

  void Add(int32_t index) { Word(index) |= uint64_t{1} << (index & 63); }
  void Remove(int32_t index) { Word(index) &= ~(uint64_t{1} << (index & 63)); }
  void AddAll(const IndexSet& other) {
    first_ |= other.first_;
    for (size_t i = 0; i < more_.size(); ++i) more_[i] |= other.more_[i];
  }

  template <typename Visit>
  void ForEach(Visit visit) const {
    VisitWord(0, first_, visit);
    for (size_t i = 0; i < more_.size(); ++i) VisitWord(i + 1, more_[i], visit);
  }

  // Empties the set before it visits a word's members, so that a visit may add them again.
  template <typename Visit>
  void Drain(Visit visit) {
    VisitWord(0, std::exchange(first_, 0), visit);
    for (size_t i = 0; i < more_.size(); ++i) VisitWord(i + 1, std::exchange(more_[i], 0), visit);
  }

 private:
  uint64_t& Word(int32_t index) { return index < 64 ? first_ : more_[(index >> 6) - 1]; }

  template <typename Visit>
  static void VisitWord(size_t word, uint64_t members, Visit visit) {
    for (; members != 0; members &= members - 1) {
      visit(static_cast<int32_t>(word * 64) + __builtin_ctzll(members));
    }
  }

  uint64_t first_ = 0;          // members 0..63
  std::vector<uint64_t> more_;  // 64 in each
};

// A queue in the order of arrival.
class Fifo {
 public:
  void Clear() {
    items_.clear();
    head_ = 0;
  }
  bool empty() const { return head_ == items_.size(); }
  size_t size() const { return items_.size() - head_; }
  int32_t Front() const { return items_[head_]; }
  void Push(int32_t item) { items_.push_back(item); }
  int32_t Pop() {
    const int32_t item = items_[head_++];
    if (empty()) Clear();
    return item;
  }

 private:
  std::vector<int32_t> items_;
  size_t head_ = 0;
};

// What waits for a device or a channel, in the order (time of arrival, key).
//
// Arrivals come in batches, one per round. Time does not run backwards, so the queue is an array
// that only its last batch, all of one time, needs sorting in. A later round of the same time puts
// its arrivals into a heap beside that batch.
template <typename Key>
class ArrivalQueue {
 public:
  void Clear() {
    keys_.clear();
    late_.clear();
    head_ = batch_ = 0;
    time_ns_ = -1;
    sorted_ = sealed_ = true;
  }

  bool empty() const { return head_ == keys_.size() && late_.empty(); }
  int64_t size() const { return static_cast<int64_t>(keys_.size() - head_ + late_.size()); }
  // The key that Pop would return.
  Key Front() const { return late_.empty() || IsHeadBeforeLate() ? keys_[head_] : late_.front(); }

  void Push(int64_t time_ns, Key key) {
    if (time_ns != time_ns_) {
      OpenBatch(time_ns);
    } else if (sealed_) {
      late_.push_back(key);
      std::push_heap(late_.begin(), late_.end(), std::greater<>());
      return;
    } else if (keys_.back() > key) {
      sorted_ = false;
    }
    keys_.push_back(key);
  }

  // Ends the round's batch; must come between the pushes and the pops of a round.
  void Seal() {
    if (!sorted_) std::sort(keys_.begin() + batch_, keys_.end());
    sorted_ = sealed_ = true;
  }

  Key Pop() {
    if (late_.empty() || IsHeadBeforeLate()) return keys_[head_++];
    std::pop_heap(late_.begin(), late_.end(), std::greater<>());
    const Key key = late_.back();
    late_.pop_back();
    return key;
  }

 private:
  void OpenBatch(int64_t time_ns) {
    if (!late_.empty()) CloseBatch();
    if (head_ == keys_.size()) {
      keys_.clear();
      head_ = 0;
    }
    batch_ = static_cast<ptrdiff_t>(keys_.size());
    time_ns_ = time_ns;
    sealed_ = false;
  }

  void CloseBatch() {
    std::sort(late_.begin(), late_.end());
    const auto middle = static_cast<ptrdiff_t>(keys_.size());
    const auto begin = std::max(batch_, static_cast<ptrdiff_t>(head_));
    keys_.insert(keys_.end(), late_.begin(), late_.end());
    std::inplace_merge(keys_.begin() + begin, keys_.begin() + middle, keys_.end());
    late_.clear();
  }

  bool IsHeadBeforeLate() const {
    if (head_ == keys_.size()) return false;
    return static_cast<ptrdiff_t>(head_) < batch_ || keys_[head_] < late_.front();
  }

  std::vector<Key> keys_;  // [head_, size) are waiting
  std::vector<Key> late_;  // heap
  size_t head_ = 0;
  ptrdiff_t batch_ = 0;  // where the last batch begins
  int64_t time_ns_ = -1;
  bool sorted_ = true, sealed_ = true;
};

// Events by time, those of one time in any order. A tournament tree: as many leaves as events were
// ever pending at once, which is how many ops and transfers a machine runs at once. Unlike a heap
// it has no branch that depends on the times.
//
// A node is the key (time, leaf) of the earliest event below it, packed into one unsigned integer:
// 64 bits are enough for the times of real steps, 128 for all.
template <typename Key>
class EventQueue {
 public:
  // Empties it. At most `max_events` will be pending at once; `Fits` must hold.
  void Reset(int64_t max_events) {
    leaf_bits_ = LeafBits(max_events);
    leaf_mask_ = (Key{1} << leaf_bits_) - 1;
    nodes_.clear();
    events_.clear();
    free_.clear();
    Grow();
  }

  static bool Fits(int64_t max_events, int64_t max_time_ns) {
    return static_cast<Key>(max_time_ns) < kNever >> LeafBits(max_events);
  }

  bool empty() const { return nodes_[1] == kNever; }
  // Of the next event; later than max_time_ns or negative if there is none.
  int64_t time_ns() const { return static_cast<int64_t>(nodes_[1] >> leaf_bits_); }

  void Push(int64_t time_ns, int32_t event) {
    if (free_.empty()) Grow();
    const int32_t leaf = free_.back();
    free_.pop_back();
    events_[leaf] = event;
    Replay(leaf, static_cast<Key>(time_ns) << leaf_bits_ | static_cast<Key>(leaf));
  }

  int32_t Pop() {
    const auto leaf = static_cast<int32_t>(nodes_[1] & leaf_mask_);
    free_.push_back(leaf);
    Replay(leaf, kNever);
    return events_[leaf];
  }

 private:
  static constexpr Key kNever = ~Key{0};

  static int LeafBits(int64_t max_events) {
    int bits = 1;
    while (int64_t{1} << bits < max_events) ++bits;
    return bits;
  }

  void Replay(int32_t leaf, Key key) {
    Key* const nodes = nodes_.data();
    size_t i = events_.size() + leaf;
    nodes[i] = key;
    for (; i > 1; i >>= 1) {
      key = std::min(key, nodes[i ^ 1]);
      nodes[i >> 1] = key;
    }
  }

  void Grow() {
    const auto half = static_cast<int32_t>(events_.size());
    const std::vector<Key> leaves(nodes_.begin() + half, nodes_.end());
    events_.resize(half == 0 ? 1 : 2 * half);
    nodes_.assign(2 * events_.size(), kNever);
    for (int32_t leaf = 0; leaf < half; ++leaf) Replay(leaf, leaves[leaf]);
    for (auto leaf = static_cast<int32_t>(events_.size()); leaf-- > half;) free_.push_back(leaf);
  }

  int leaf_bits_ = 1;
  Key leaf_mask_ = 1;
  std::vector<Key> nodes_;       // the parent of i is i / 2, the root is 1, leaves come last
  std::vector<int32_t> events_;  // [leaves]
  std::vector<int32_t> free_;    // leaves without an event, the next one last
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_SIMULATOR_STEP_QUEUES_H_
