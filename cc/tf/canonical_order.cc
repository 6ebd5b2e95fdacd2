#include "tf/canonical_order.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "tf/hash.h"

namespace hplacer {
namespace {

// The neighbours of each vertex that may still be split off from others, with a hash of the arc's
// label and direction.
class Neighbors {
 public:
  struct Neighbor {
    int32_t vertex;
    uint64_t label;
  };

  template <typename MaySplit>
  Neighbors(const ColoredGraph& graph, const MaySplit& may_split)
      : first_(graph.colors.size() + 1, 0) {
    for (const auto& arc : graph.arcs) {
      if (may_split(arc.target)) ++first_[arc.source + 1];
      if (may_split(arc.source)) ++first_[arc.target + 1];
    }
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    all_.resize(first_.back());
    std::vector<size_t> next(first_.begin(), first_.end() - 1);
    for (const auto& arc : graph.arcs) {
      if (may_split(arc.target)) all_[next[arc.source]++] = {arc.target, Mix(arc.label, 1)};
      if (may_split(arc.source)) all_[next[arc.target]++] = {arc.source, Mix(arc.label, 2)};
    }
  }

  absl::Span<const Neighbor> Of(int32_t vertex) const {
    return {all_.data() + first_[vertex], first_[vertex + 1] - first_[vertex]};
  }

 private:
  std::vector<size_t> first_;
  std::vector<Neighbor> all_;
};

// Vertices in cells, which only ever split. A cell is known by the position of its first vertex.
// All decisions rest on positions, sizes and hashes, never on numbers of vertices.
class Partition {
 public:
  explicit Partition(const ColoredGraph& graph)
      : members_(graph.colors.size()),
        place_(members_.size()),
        cell_(members_.size()),
        size_(members_.size(), 0),
        is_queued_(members_.size(), false),
        sum_(members_.size(), 0),
        is_touched_(members_.size(), false) {
    const std::vector<uint64_t>& colors = graph.colors;
    std::iota(members_.begin(), members_.end(), 0);
    std::sort(members_.begin(), members_.end(),
              [&colors](int32_t a, int32_t b) { return colors[a] < colors[b]; });
    for (size_t i = 0; i < members_.size(); ++i) place_[members_[i]] = static_cast<int32_t>(i);
    for (int32_t begin = 0, end = 0; begin < Size(); begin = end) {
      while (end < Size() && colors[members_[end]] == colors[members_[begin]]) ++end;
      MakeCell(begin, end);
      Enqueue(begin);
    }
    neighbors_.emplace(graph, [this](int32_t vertex) { return size_[cell_[vertex]] > 1; });
  }

  std::vector<int32_t> Order() && {
    Refine();
    for (int32_t cell = 0; cell < Size(); ++cell) {
      while (size_[cell] > 1) {
        // The last member, so that the others keep their cell and are not touched.
        const int32_t last = cell + --size_[cell];
        MakeCell(last, last + 1);
        Enqueue(last);
        Refine();
      }
    }
    return std::move(members_);
  }

 private:
  int32_t Size() const { return static_cast<int32_t>(members_.size()); }

  void MakeCell(int32_t begin, int32_t end) {
    size_[begin] = end - begin;
    for (int32_t i = begin; i < end; ++i) cell_[members_[i]] = begin;
  }

  void Enqueue(int32_t cell) {
    queue_.push_back(cell);
    is_queued_[cell] = true;
  }

  void Refine() {
    while (!queue_.empty()) {
      const int32_t splitter = queue_.front();
      queue_.pop_front();
      is_queued_[splitter] = false;
      Touch(splitter);
      SplitTouched();
    }
  }

  // Sums the labels of the arcs between the splitter's members and each other vertex.
  void Touch(int32_t splitter) {
    for (int32_t i = splitter; i < splitter + size_[splitter]; ++i) {
      for (const auto& [vertex, label] : neighbors_->Of(members_[i])) {
        if (size_[cell_[vertex]] == 1) continue;
        sum_[vertex] += label;
        if (!is_touched_[vertex]) touched_.push_back(vertex);
        is_touched_[vertex] = true;
      }
    }
  }

  void SplitTouched() {
    std::sort(touched_.begin(), touched_.end(), [this](int32_t a, int32_t b) {
      return cell_[a] != cell_[b] ? cell_[a] < cell_[b] : sum_[a] < sum_[b];
    });
    for (size_t begin = 0, end = 0; begin < touched_.size(); begin = end) {
      while (end < touched_.size() && cell_[touched_[end]] == cell_[touched_[begin]]) ++end;
      Split(cell_[touched_[begin]], begin, end);
    }
    for (const int32_t vertex : touched_) {
      sum_[vertex] = 0;
      is_touched_[vertex] = false;
    }
    touched_.clear();
  }

  // Splits a cell into its untouched members and, by their sums, touched_[begin, end).
  void Split(int32_t cell, size_t begin, size_t end) {
    const int32_t cell_end = cell + size_[cell];
    int32_t place = cell_end;
    for (size_t i = end; i-- > begin;) MoveTo(touched_[i], --place);
    std::vector<int32_t> parts;  // their first places; the first is `cell`
    if (place > cell) parts.push_back(cell);
    for (size_t i = begin; i < end; ++i, ++place) {
      if (i == begin || sum_[touched_[i]] != sum_[touched_[i - 1]]) parts.push_back(place);
    }
    if (parts.size() == 1) return;
    size_[cell] = parts[1] - cell;
    for (size_t i = 1; i < parts.size(); ++i) {
      MakeCell(parts[i], i + 1 < parts.size() ? parts[i + 1] : cell_end);
    }
    // What a whole cell has told, all of its parts but one tell again.
    const auto smaller = [this](int32_t a, int32_t b) { return size_[a] < size_[b]; };
    const int32_t skipped =
        is_queued_[cell] ? cell : *std::max_element(parts.begin(), parts.end(), smaller);
    for (const int32_t part : parts) {
      if (part != skipped) Enqueue(part);
    }
  }

  void MoveTo(int32_t vertex, int32_t place) {
    const int32_t other = members_[place];
    std::swap(members_[place_[vertex]], members_[place]);
    std::swap(place_[vertex], place_[other]);
  }

  std::vector<int32_t> members_;  // by position; cells are ranges of it
  std::vector<int32_t> place_;    // by vertex: its position
  std::vector<int32_t> cell_;     // by vertex
  std::vector<int32_t> size_;     // by cell
  std::vector<bool> is_queued_;   // by cell
  std::deque<int32_t> queue_;     // cells that may split others
  std::vector<uint64_t> sum_;     // by vertex
  std::vector<bool> is_touched_;  // by vertex
  std::vector<int32_t> touched_;
  std::optional<Neighbors> neighbors_;
};

uint64_t Certificate(const ColoredGraph& graph, const std::vector<int32_t>& order) {
  std::vector<uint64_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  uint64_t certificate = Mix(order.size(), graph.arcs.size());
  for (const int32_t vertex : order) certificate = Mix(certificate, graph.colors[vertex]);
  // A sum: arcs have no order.
  uint64_t arcs = 0;
  for (const auto& arc : graph.arcs) {
    arcs += Mix(arc.label, Mix(place[arc.source], place[arc.target]));
  }
  return Mix(certificate, arcs);
}

}  // namespace

CanonicalOrder FindCanonicalOrder(const ColoredGraph& graph) {
  CanonicalOrder result;
  result.vertices = Partition(graph).Order();
  result.certificate = Certificate(graph, result.vertices);
  return result;
}

}  // namespace hplacer
