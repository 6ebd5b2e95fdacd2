#include "engine/simulator/critical_chain.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace hplacer {
namespace {

constexpr int32_t kNone = -1;

class ChainWalk {
 public:
  ChainWalk(const Problem& problem, const int32_t* placement, const Schedule& schedule)
      : problem_(problem),
        placement_(placement),
        start_ns_(schedule.start_ns),
        finish_ns_(schedule.finish_ns),
        transfers_(schedule.transfers) {
    const int32_t n = problem.num_ops();
    ends_.resize(problem.num_pools());
    for (const int32_t event : schedule.order) {
      if (event >= 0) ends_[PoolOf(event)].emplace_back(finish_ns_[event], event);
    }
    std::vector<size_t> num_ops;
    for (Ends& ends : ends_) {
      SortByTime(ends.begin(), ends.end());
      num_ops.push_back(ends.size());
    }
    channel_ends_.resize(problem.num_channels());
    first_transfer_ = FirstTransfers(transfers_, n);
    for (size_t i = 0; i < transfers_.size(); ++i) {
      const Transfer& sent = transfers_[i];
      const auto index = static_cast<int32_t>(i);
      channel_ends_[sent.channel].emplace_back(sent.carried_ns, index);
      const auto add_work = [&](int32_t device, int64_t from_ns, int64_t to_ns) {
        if (from_ns < to_ns) ends_[problem.device_pool()[device]].emplace_back(to_ns, n + index);
      };
      if (IsCopy(sent)) {  // the next one waits for it
        add_work(sent.src_device, sent.sent_ns, sent.carried_ns);
        add_work(sent.dst_device, sent.sent_ns, sent.carried_ns);
      } else {
        add_work(sent.src_device, sent.issue_ns, sent.sent_ns);
      }
      add_work(sent.dst_device, sent.carried_ns, sent.finish_ns);
    }
    if (problem.has_launches()) {
      before_.assign(n, kNone);
      std::vector<int32_t> last(problem.num_devices(), kNone);
      for (const int32_t event : schedule.order) {
        if (event >= 0) before_[event] = std::exchange(last[placement[event]], event);
      }
    }
    for (size_t pool = 0; pool < ends_.size(); ++pool) {
      const auto middle = ends_[pool].begin() + static_cast<ptrdiff_t>(num_ops[pool]);
      SortByTime(middle, ends_[pool].end());
      std::inplace_merge(ends_[pool].begin(), middle, ends_[pool].end(), IsEarlier);
    }
    for (Ends& ends : channel_ends_) SortByTime(ends.begin(), ends.end());
  }

  CriticalChain Run() {
    CriticalChain chain;
    auto op = static_cast<int32_t>(std::max_element(finish_ns_.begin(), finish_ns_.end()) -
                                   finish_ns_.begin());
    // Ops without duration could be met again and again at one time.
    for (int32_t steps = 0; op != kNone && steps < problem_.num_ops(); ++steps) {
      chain.ops.push_back(op);
      if (start_ns_[op] == 0) break;
      int32_t transfer = kNone;
      const int32_t input = LastInput(op, start_ns_[op], &transfer);
      if (transfer != kNone) {
        op = WalkTransfers(transfer, &chain.senders);
      } else {
        op = input != kNone ? input : EndingAt(ends_[PoolOf(op)], start_ns_[op], op);
      }
      if (op == kNone && problem_.has_launches()) {
        op = BeforeLaunch(chain.ops.back(), &chain.senders);
      }
      if (op >= problem_.num_ops()) {  // the work of a transfer
        op = transfers_[op - problem_.num_ops()].src_op;
        chain.senders.push_back(op);
      }
    }
    return chain;
  }

 private:
  using Ends = std::vector<std::pair<int64_t, int32_t>>;

  int32_t PoolOf(int32_t op) const { return problem_.device_pool()[placement_[op]]; }

  static bool IsEarlier(const Ends::value_type& a, const Ends::value_type& b) {
    return a.first < b.first;
  }
  // The order of starts is nearly that of ends.
  static void SortByTime(Ends::iterator begin, Ends::iterator end) {
    if (!std::is_sorted(begin, end, IsEarlier)) std::sort(begin, end, IsEarlier);
  }

  // The lowest.
  static int32_t EndingAt(const Ends& ends, int64_t time_ns, int32_t not_this) {
    int32_t lowest = kNone;
    for (auto it =
             std::lower_bound(ends.begin(), ends.end(), Ends::value_type(time_ns, 0), IsEarlier);
         it != ends.end() && it->first == time_ns; ++it) {
      if (it->second != not_this && (lowest == kNone || it->second < lowest)) lowest = it->second;
    }
    return lowest;
  }

  bool IsCopy(const Transfer& sent) const {
    return problem_.IsCopied(problem_.Link(sent.src_device, sent.dst_device));
  }

  // What let the launch begin of an op that started when it had been launched: the arrival of an
  // input, or the launch of the op before it.
  int32_t BeforeLaunch(int32_t op, std::vector<int32_t>* senders) const {
    const int64_t launch_ns = problem_.spec().device_launch_ns[placement_[op]];
    int32_t transfer = kNone;
    LastInput(op, start_ns_[op] - launch_ns, &transfer);
    return transfer != kNone ? WalkTransfers(transfer, senders) : before_[op];
  }

  // An input that arrived then: an op on its device, or a transfer.
  int32_t LastInput(int32_t op, int64_t time_ns, int32_t* transfer) const {
    const int32_t device = placement_[op];
    const auto arrives = [&](int32_t src) {
      if (placement_[src] == device) return finish_ns_[src] == time_ns;
      for (int32_t i = first_transfer_[src]; i < first_transfer_[src + 1]; ++i) {
        if (transfers_[i].dst_device == device && transfers_[i].finish_ns == time_ns) {
          *transfer = i;
          return true;
        }
      }
      return false;
    };
    for (int32_t r = problem_.read_ptr()[op]; r < problem_.read_ptr()[op + 1]; ++r) {
      const int32_t src = problem_.tensor_op()[problem_.edge_tensor()[problem_.read_edges()[r]]];
      if (arrives(src)) return src;
    }
    for (int32_t c = problem_.control_in_ptr()[op]; c < problem_.control_in_ptr()[op + 1]; ++c) {
      if (arrives(problem_.control_in()[c])) return problem_.control_in()[c];
    }
    return kNone;
  }

  // Back to the op whose end let the first of a row of transfers begin.
  int32_t WalkTransfers(int32_t transfer, std::vector<int32_t>* senders) const {
    for (;;) {
      const Transfer& sent = transfers_[transfer];
      senders->push_back(sent.src_op);
      int32_t before = kNone;
      if (sent.start_ns > sent.sent_ns) {
        before = EndingAt(channel_ends_[sent.channel], sent.start_ns, transfer);
      } else if (IsCopy(sent) && sent.sent_ns > sent.issue_ns) {
        for (const int32_t device : {sent.src_device, sent.dst_device}) {
          const int32_t pool = problem_.device_pool()[device];
          const int32_t event = EndingAt(ends_[pool], sent.sent_ns, problem_.num_ops() + transfer);
          if (event == kNone) continue;
          if (event < problem_.num_ops()) return event;
          before = event - problem_.num_ops();
        }
      }
      if (before == kNone || transfers_[before].start_ns >= sent.start_ns) return sent.src_op;
      transfer = before;
    }
  }

  const Problem& problem_;
  const int32_t* placement_;
  const std::vector<int64_t>&start_ns_, &finish_ns_;
  const std::vector<Transfer>& transfers_;
  // By pool: ops, and from n on the work of transfers; by channel: transfers.
  std::vector<Ends> ends_, channel_ends_;
  std::vector<int32_t> first_transfer_;  // [n + 1]
  std::vector<int32_t> before_;          // [n] the op that started on the device before, or empty
};

}  // namespace

CriticalChain FindCriticalChain(const Problem& problem, const int32_t* placement,
                                const Schedule& schedule) {
  if (schedule.start_ns.empty()) return {};  // no ops, or a placement that cannot run
  return ChainWalk(problem, placement, schedule).Run();
}

}  // namespace hplacer
