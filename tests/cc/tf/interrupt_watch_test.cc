#include "tf/interrupt_watch.h"

#include <doctest/doctest.h>
#include <signal.h>

namespace hplacer {
namespace {

volatile sig_atomic_t handled = 0;

void CountHandled(int) { handled = handled + 1; }

TEST_CASE("a watch sees signals, and their handler still gets them") {
  struct sigaction before;
  sigaction(SIGINT, nullptr, &before);
  handled = 0;
  signal(SIGINT, &CountHandled);
  {
    const InterruptWatch outer;
    raise(SIGINT);
    const InterruptWatch inner;
    CHECK(outer.interrupted());
    CHECK_FALSE(inner.interrupted());
    raise(SIGINT);
    CHECK(inner.interrupted());
  }
  raise(SIGINT);
  CHECK(handled == 3);
  struct sigaction after;
  sigaction(SIGINT, nullptr, &after);
  CHECK((after.sa_handler == &CountHandled));
  sigaction(SIGINT, &before, nullptr);
}

TEST_CASE("a watch leaves a handler that was installed meanwhile, and ignored signals") {
  struct sigaction before;
  sigaction(SIGINT, nullptr, &before);
  signal(SIGINT, SIG_IGN);
  {
    const InterruptWatch watch;
    raise(SIGINT);
    CHECK_FALSE(watch.interrupted());
    signal(SIGINT, &CountHandled);
  }
  struct sigaction after;
  sigaction(SIGINT, nullptr, &after);
  CHECK((after.sa_handler == &CountHandled));
  sigaction(SIGINT, &before, nullptr);
}

}  // namespace
}  // namespace hplacer
