// Preloaded into a process (LD_PRELOAD): an allocation throws that a module makes itself while
// TensorFlow calls it, or a signal comes there.
//
// `fail_in` names the module by a part of its path, says how many such allocations succeed before
// one is hit, once, and by which of `kinds()` faults: the last is SIGUSR1, after which the
// allocation succeeds. `allocations` counts them.
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

namespace {

constexpr int kMostFrames = 60;
constexpr int kKinds = 8;

struct NotAnException {};

uintptr_t g_begin = 0, g_end = 0;  // the module's code
std::atomic<long> g_left{-1}, g_count{0};
std::atomic<int> g_kind{0};
thread_local bool g_looks = false;

int FindCode(dl_phdr_info* info, size_t, void* part) {
  if (std::strstr(info->dlpi_name, static_cast<const char*>(part)) == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    g_begin = info->dlpi_addr + segment.p_vaddr;
    g_end = g_begin + segment.p_memsz;
  }
  return 1;
}

bool IsInModule(void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return at >= g_begin && at < g_end;
}

// Whether the module allocates, and TensorFlow is what called it.
bool IsOurs(void* caller) {
  if (!IsInModule(caller) || g_looks) return false;
  g_looks = true;  // the first backtrace() allocates
  void* frames[kMostFrames];
  const int count = backtrace(frames, kMostFrames);
  g_looks = false;
  int i = 0;
  while (i < count && frames[i] != caller) ++i;
  while (i < count && IsInModule(frames[i])) ++i;
  Dl_info info;
  return i < count && dladdr(frames[i], &info) != 0 && info.dli_fname != nullptr &&
         std::strstr(info.dli_fname, "libtensorflow") != nullptr;
}

void Fail() {
  switch (g_kind) {
    case 0:
      throw std::bad_alloc();
    case 1:
      throw std::runtime_error("injected");
    case 2:
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    case 3:
      throw std::exception();
    case 4:
      throw 7;
    case 5:
      throw "text";
    case 6:
      throw NotAnException();
    default:
      std::raise(SIGUSR1);
  }
}

void* Allocate(std::size_t size, void* caller) {
  if (IsOurs(caller)) {
    ++g_count;
    if (g_left >= 0 && g_left-- == 0) Fail();
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

extern "C" int kinds() { return kKinds; }

extern "C" int fail_in(char* module, long after, int kind) {
  g_count = 0;
  g_kind = kind;
  g_left = after;
  return dl_iterate_phdr(FindCode, module);
}

extern "C" long allocations() { return g_count; }

void* operator new(std::size_t size) { return Allocate(size, __builtin_return_address(0)); }
void* operator new[](std::size_t size) { return Allocate(size, __builtin_return_address(0)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
