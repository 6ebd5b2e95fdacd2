// The queues of a simulated step. Each has a total order, and none allocates once it has grown.
//
// Assumes what a simulation guarantees: time never runs backwards.

#ifndef HPLACER_ENGINE_STEP_QUEUES_H_
#define HPLACER_ENGINE_STEP_QUEUES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace hplacer {

// A set of small integers, drained in ascending order.
class IndexSet {
 public:
  explicit IndexSet(int32_t size) : words_((size + 63) / 64, 0) {}

  void Add(int32_t index) { words_[index >> 6] |= uint64_t{1} << (index & 63); }
  void Remove(int32_t index) { words_[index >> 6] &= ~(uint64_t{1} << (index & 63)); }
  bool Contains(int32_t index) const { return words_[index >> 6] >> (index & 63) & 1; }
  void AddAll(const IndexSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  void Clear() { std::fill(words_.begin(), words_.end(), 0); }

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
        visit(static_cast<int32_t>(i * 64) + __builtin_ctzll(word));
      }
    }
  }

  // Empties the set before it visits a word's members, so that a visit may add them again.
  template <typename Visit>
  void Drain(Visit visit) {
    for (size_t i = 0; i < words_.size(); ++i) {
      uint64_t word = words_[i];
      words_[i] = 0;
      for (; word != 0; word &= word - 1) {
        visit(static_cast<int32_t>(i * 64) + __builtin_ctzll(word));
      }
    }
  }

 private:
  std::vector<uint64_t> words_;
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
class EventQueue {
 public:
  EventQueue() { Grow(); }

  bool empty() const { return size_ == 0; }
  int64_t time_ns() const { return static_cast<int64_t>(nodes_[1].time_ns); }

  void Clear() {
    while (!empty()) Pop();
  }

  void Push(int64_t time_ns, int32_t event) {
    if (free_.empty()) Grow();
    const int32_t leaf = free_.back();
    free_.pop_back();
    ++size_;
    Replay({static_cast<uint64_t>(time_ns), leaf, event});
  }

  int32_t Pop() {
    const Node winner = nodes_[1];
    free_.push_back(winner.leaf);
    --size_;
    Replay({kNever, winner.leaf, 0});
    return winner.event;
  }

 private:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  struct Node {
    uint64_t time_ns;
    int32_t leaf, event;
  };

  void Replay(Node node) {
    Node* const nodes = nodes_.data();
    size_t i = num_leaves_ + node.leaf;
    nodes[i] = node;
    for (; i > 1; i >>= 1) {
      const Node& rival = nodes[i ^ 1];
      const bool loses = rival.time_ns < node.time_ns;
      node.time_ns = loses ? rival.time_ns : node.time_ns;
      node.leaf = loses ? rival.leaf : node.leaf;
      node.event = loses ? rival.event : node.event;
      nodes[i >> 1] = node;
    }
  }

  void Grow() {
    std::vector<Node> leaves(nodes_.begin() + static_cast<ptrdiff_t>(num_leaves_), nodes_.end());
    num_leaves_ = leaves.empty() ? 1 : 2 * leaves.size();
    nodes_.assign(2 * num_leaves_, {kNever, 0, 0});
    for (const Node& leaf : leaves) Replay(leaf);
    for (size_t leaf = num_leaves_; leaf-- > leaves.size();) {
      free_.push_back(static_cast<int32_t>(leaf));
    }
  }

  size_t num_leaves_ = 0, size_ = 0;
  std::vector<Node> nodes_;    // the parent of i is i / 2, the root is 1, leaves come last
  std::vector<int32_t> free_;  // leaves without an event, the next one last
};

}  // namespace hplacer

#endif  // HPLACER_ENGINE_STEP_QUEUES_H_
