#include "tf/bridge.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hplacer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::function<bool()> kNever = [] { return false; };

std::shared_ptr<PlannerRequest> NewRequest(const std::string& label) {
  auto request = std::make_shared<PlannerRequest>();
  request->label = label;
  return request;
}

PlannerRequest::Reply Declined(const std::string& reason) {
  PlannerRequest::Reply reply;
  reply.result = PlannerRequest::Result::kDeclined;
  reply.reason = reason;
  return reply;
}

TEST_CASE("each request is answered once, whatever threads ask and serve") {
  Bridge bridge;
  bridge.Open();
  constexpr int kThreads = 4, kRequests = 50;
  std::vector<std::thread> servers, askers;
  for (int i = 0; i < 2; ++i) {
    servers.emplace_back([&bridge] {
      while (bridge.IsOpen()) {
        if (auto request = bridge.Next(milliseconds(20))) {
          request->Finish(Declined(request->label));
          request->Finish(Declined("a second answer"));
        }
      }
    });
  }
  std::atomic<int> right{0};
  for (int i = 0; i < kThreads; ++i) {
    askers.emplace_back([&bridge, &right, i] {
      for (int k = 0; k < kRequests; ++k) {
        const auto request = NewRequest(std::to_string(i) + "." + std::to_string(k));
        if (!bridge.Submit(request)) continue;
        const auto reply = request->Wait(Clock::now() + seconds(30), kNever);
        right += reply.reason == request->label && !request->IsAbandoned();
      }
    });
  }
  for (std::thread& thread : askers) thread.join();
  bridge.Close();
  for (std::thread& thread : servers) thread.join();
  CHECK(right == kThreads * kRequests);
  CHECK_FALSE(bridge.Submit(NewRequest("too late")));
}

TEST_CASE("a wait ends with its limit, and the request is abandoned") {
  const auto request = NewRequest("unheard");
  const auto begin = Clock::now();
  const auto reply = request->Wait(begin + milliseconds(30), kNever);
  CHECK(reply.result == PlannerRequest::Result::kPending);
  CHECK(Clock::now() - begin >= milliseconds(30));
  CHECK(request->IsAbandoned());
}

TEST_CASE("a wait ends when its thread gives up") {
  const auto request = NewRequest("unheard");
  std::atomic<bool> given_up{false};
  std::thread other([&given_up] {
    std::this_thread::sleep_for(milliseconds(20));
    given_up = true;
  });
  const auto begin = Clock::now();
  request->Wait(begin + seconds(60), [&given_up] { return given_up.load(); });
  other.join();
  CHECK(Clock::now() - begin < seconds(30));
  CHECK(request->IsAbandoned());
}

TEST_CASE("a forked child has a bridge of its own, whoever holds or waits for the parent's") {
  Bridge& bridge = Bridge::Get();
  bridge.Open();
  bridge.Submit(NewRequest("the parent's"));
  PassReport report;
  report.label = "the parent's";
  bridge.AddReport(report);
  std::atomic<bool> stop{false};
  std::thread busy([&bridge, &stop] {  // holds the lock, and waits for requests, all the time
    while (!stop) bridge.Next(milliseconds(1));
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      Bridge& own = Bridge::Get();
      if (own.IsOpen() || !own.Reports().empty()) _exit(1);
      if (own.Submit(NewRequest("refused"))) _exit(2);
      own.Open();
      if (!own.Submit(NewRequest("accepted"))) _exit(3);
      const auto request = own.Next(seconds(10));
      _exit(request != nullptr && request->label == "accepted" ? 0 : 4);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  stop = true;
  busy.join();
  bridge.Close();
}

}  // namespace
}  // namespace hplacer
