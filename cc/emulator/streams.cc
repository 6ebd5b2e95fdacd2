#include "emulator/streams.h"

#include <algorithm>
#include <utility>

namespace hplacer::emulator {

Stream* Streams::Add(int device) {
  return streams_.emplace_back(std::make_unique<Stream>(device)).get();
}

void Streams::Remove(Stream* stream) {
  const auto is_it = [stream](const auto& other) { return other.get() == stream; };
  streams_.erase(std::find_if(streams_.begin(), streams_.end(), is_it));
}

void Streams::Add(Stream* stream, Stream::Work work) {
  work.order = order_++;
  if (work.record != nullptr) work.record->enqueued_ns = now_ns_;
  stream->work_.push_back(std::move(work));
  Continue({stream});
}

void Streams::AddKernel(Stream* stream, int64_t duration_ns, RecordPtr record) {
  Stream::Work work;
  work.duration_ns = duration_ns;
  work.record = std::move(record);
  Add(stream, std::move(work));
}

void Streams::AddCopy(Stream* stream, Channel* channel, int64_t duration_ns, RecordPtr record) {
  Stream::Work work;
  work.duration_ns = duration_ns;
  work.channel = channel;
  work.record = std::move(record);
  Add(stream, std::move(work));
}

MarkPtr Streams::AddMark(Stream* stream, bool is_seen_by_host) {
  auto mark = std::make_shared<Mark>();
  mark->is_seen_by_host = is_seen_by_host;
  Stream::Work work;
  work.done = mark;
  Add(stream, std::move(work));
  return mark;
}

void Streams::AddWait(Stream* stream, const MarkPtr& mark) {
  if (mark == nullptr) return;  // an event that was never recorded
  Stream::Work work;
  work.awaited = mark;
  Add(stream, std::move(work));
}

void Streams::AddCallback(Stream* stream, std::function<void()> callback) {
  Stream::Work work;
  work.callback = std::move(callback);
  Add(stream, std::move(work));
}

std::pair<Stream*, std::function<void()>> Streams::TakeCallback() {
  if (callbacks_.empty()) return {nullptr, nullptr};
  Stream* stream = std::get<2>(*callbacks_.begin());
  callbacks_.erase(callbacks_.begin());
  return {stream, std::move(stream->work_.front().callback)};
}

void Streams::Finish(Stream* stream) {
  End(stream);
  Continue({stream});
}

void Streams::End(Stream* stream) {
  Stream::Work& work = stream->work_.front();
  if (work.record != nullptr) work.record->end_ns = now_ns_;
  if (work.channel != nullptr) work.channel->is_busy = false;
  stream->work_.pop_front();
  stream->is_held_ = false;
}

// Does what takes no time, and starts what does. Copies that are ready at the same time compete for
// their channel after that.
void Streams::Continue(std::vector<Stream*> streams) {
  std::vector<Channel*> asked;
  while (!streams.empty()) {
    Stream* stream = streams.back();
    streams.pop_back();
    while (!stream->is_held_ && !stream->work_.empty()) {
      Stream::Work& work = stream->work_.front();
      if (work.awaited != nullptr && !work.awaited->is_done()) {
        stream->is_held_ = true;
        work.awaited->held.push_back(stream);
      } else if (work.done != nullptr) {
        work.done->done_ns = now_ns_;
        is_noticeable_ |= work.done->is_seen_by_host;
        for (Stream* held : std::exchange(work.done->held, {})) {
          held->is_held_ = false;
          streams.push_back(held);
        }
        stream->work_.pop_front();
      } else if (work.callback != nullptr) {
        stream->is_held_ = true;
        callbacks_.emplace(now_ns_, work.order, stream);
        is_noticeable_ = true;
      } else if (work.channel != nullptr) {
        stream->is_held_ = true;
        work.channel->ready.emplace(now_ns_, work.order, stream);
        asked.push_back(work.channel);
      } else if (work.duration_ns > 0) {
        stream->is_held_ = true;
        Start(stream);
      } else {  // takes no time, or waited for a mark that is done
        if (work.record != nullptr) work.record->start_ns = work.record->end_ns = now_ns_;
        stream->work_.pop_front();
      }
    }
  }
  for (Channel* channel : asked) Serve(channel);
}

void Streams::Serve(Channel* channel) {
  if (channel->is_busy || channel->ready.empty()) return;
  channel->is_busy = true;
  Stream* stream = std::get<2>(*channel->ready.begin());
  channel->ready.erase(channel->ready.begin());
  Start(stream);
}

void Streams::Start(Stream* stream) {
  const Stream::Work& work = stream->work_.front();
  if (work.record != nullptr) work.record->start_ns = now_ns_;
  ends_.emplace(now_ns_ + work.duration_ns, work.order, stream);
}

int64_t Streams::NextNs() const { return ends_.empty() ? kNever : std::get<0>(*ends_.begin()); }

bool Streams::AdvanceTo(int64_t time_ns) {
  is_noticeable_ = false;
  now_ns_ = std::max(now_ns_, time_ns);
  while (NextNs() <= now_ns_) {
    std::vector<Stream*> ended;
    std::vector<Channel*> freed;
    for (const int64_t at = NextNs(); NextNs() == at; ends_.erase(ends_.begin())) {
      Stream* stream = std::get<2>(*ends_.begin());
      if (Channel* channel = stream->work_.front().channel) freed.push_back(channel);
      End(stream);
      ended.push_back(stream);
    }
    Continue(std::move(ended));
    for (Channel* channel : freed) Serve(channel);
  }
  return is_noticeable_;
}

}  // namespace hplacer::emulator
