// The second thread of the host.

#pragma once

#include <ATen/ThreadLocalState.h>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace {

// Runs the backward pass as torch's engine runs it for accelerators: on a thread of its own, with the caller's thread-local
// state (the profiler among it), while the caller waits.
struct Helper {
  std::mutex lock;
  std::condition_variable changed;
  void (*work)() = nullptr;
  const at::ThreadLocalState* state = nullptr;

  Helper() {
    std::thread([this] {
      for (;;) {
        std::unique_lock<std::mutex> guard(lock);
        changed.wait(guard, [this] { return work != nullptr; });
        {
          at::ThreadLocalStateGuard local(*state);
          work();
        }
        work = nullptr;
        changed.notify_all();
      }
    }).detach();
  }

  void run(void (*what)()) {
    const at::ThreadLocalState mine;
    std::unique_lock<std::mutex> guard(lock);
    state = &mine;
    work = what;
    changed.notify_all();
    changed.wait(guard, [this] { return work == nullptr; });
  }
};

} // namespace
