// Signal handling by a pipe and a waiting thread, since a handler itself may not walk folders.
#include "io/cleanup.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

namespace halfbyte {

namespace {

struct Temporaries {
  std::mutex mutex;
  std::set<std::filesystem::path> paths;
};

// Never destroyed: the waiting thread may outlive main.
Temporaries& temporaries() {
  static auto* const list = new Temporaries;
  return *list;
}

int g_pipe[2] = {-1, -1};

extern "C" void on_signal(int number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t written = ::write(g_pipe[1], &byte, 1);
  errno = saved;
}

void wait_for_signal() {
  unsigned char number = 0;
  ssize_t got = 0;
  while ((got = ::read(g_pipe[0], &number, 1)) < 0 && errno == EINTR) {
  }
  if (got != 1) return;
  temporaries().mutex.lock();  // for good: nothing may be committed any more
  for (const auto& path : temporaries().paths) {
    // Other threads still run and may add a file to a folder while it is being removed.
    std::error_code error;
    for (int attempt = 0; attempt < 100; ++attempt) {
      std::filesystem::remove_all(path, error);
      if (!error) break;
      ::usleep(1000);
    }
  }
  ::signal(number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::kill(::getpid(), number);
}

}  // namespace

void install_cleanup_handler() {
  if (g_pipe[0] >= 0 || ::pipe2(g_pipe, O_CLOEXEC) != 0) return;
  std::thread(wait_for_signal).detach();
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction old {};
    if (::sigaction(number, nullptr, &old) != 0 || old.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    ::sigaction(number, &action, nullptr);
  }
}

void register_temporary(const std::filesystem::path& path) {
  const std::lock_guard lock(temporaries().mutex);
  temporaries().paths.insert(path);
}

void settle_temporary(const std::filesystem::path& path, const std::function<void()>& step) {
  const std::lock_guard lock(temporaries().mutex);
  step();
  temporaries().paths.erase(path);
}

}  // namespace halfbyte
