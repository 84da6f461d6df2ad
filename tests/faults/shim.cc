// Makes one chosen file operation of a process fail, or ends the process there: loaded with LD_PRELOAD.
//
// FAULT_UNDER  folders, separated by ':'; only files below them count
// FAULT_LOG    a file that gets a line for every call: its number, the operation, the path
// FAULT_AT     the number of the call that fails, from 1; 0 or unset: none
// FAULT_KIND   an errno's name, `kill`, or `short`: half of a write, after which the disk is full
// FAULT_STAYS  set: every later call that writes fails, too, as on a disk that stays full; deleting works
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>

namespace {

constexpr int kMaxFd = 1 << 16;
std::atomic<bool> watched[kMaxFd];
std::atomic<int> calls{0};
std::atomic<bool> failed{false};
std::mutex log_mutex;

struct Plan {
  std::string under, log, kind;
  int at = 0, error = 0;
  bool stays = false;
  pid_t pid = 0;
};

const char* text(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

Plan& plan() {
  static Plan* made = [] {
    Plan* p = new Plan;
    p->under = text("FAULT_UNDER");
    p->log = text("FAULT_LOG");
    p->kind = text("FAULT_KIND");
    p->at = atoi(text("FAULT_AT"));
    p->stays = *text("FAULT_STAYS");
    p->error = p->kind == "EIO" ? EIO : p->kind == "EROFS" ? EROFS : p->kind == "EACCES" ? EACCES : ENOSPC;
    return p;
  }();
  return *made;
}

template <typename F>
F real(const char* name, F) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) (real(#name, &name))

std::string absolute(int folder, const char* path) {
  if (path[0] == '/') return path;
  char base[PATH_MAX] = "";
  if (folder == AT_FDCWD) {
    if (!getcwd(base, sizeof base)) return path;
  } else {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t size = readlink(link, base, sizeof base - 1);
    if (size < 0) return path;
    base[size] = 0;
  }
  return std::string(base) + "/" + path;
}

bool below(const std::string& path) {
  const std::string& under = plan().under;
  for (size_t from = 0; from < under.size();) {
    size_t to = under.find(':', from);
    if (to == std::string::npos) to = under.size();
    std::string folder = under.substr(from, to - from);
    if (!folder.empty() && path.compare(0, folder.size(), folder) == 0 &&
        (path.size() == folder.size() || path[folder.size()] == '/'))
      return true;
    from = to + 1;
  }
  return false;
}

std::string path_of(int fd) {
  char link[64], found[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, found, sizeof found - 1);
  if (size < 0) return "?";
  found[size] = 0;
  return found;
}

// 0: goes on. 1: fails with errno. 2: half of it.
int meet(const char* operation, const std::string& path, bool writes) {
  Plan& p = plan();
  int number = ++calls;
  bool here = number == p.at;
  bool again = p.stays && failed && writes;
  if (!p.log.empty()) {
    std::lock_guard<std::mutex> hold(log_mutex);
    int fd = syscall(SYS_openat, AT_FDCWD, p.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
      std::string line = std::to_string(number) + "\t" + operation + "\t" + path + (here ? "\t!\n" : "\n");
      syscall(SYS_write, fd, line.data(), line.size());
      syscall(SYS_close, fd);
    }
  }
  if (!here && !again) return 0;
  failed = true;
  if (here && p.kind == "kill") kill(getpid(), SIGKILL);
  if (here && p.kind == "short" && !strcmp(operation, "write")) return 2;
  errno = p.error;
  return 1;
}

bool is_watched(int fd) { return fd >= 0 && fd < kMaxFd && watched[fd]; }
void watch(int fd, bool on) {
  if (fd >= 0 && fd < kMaxFd) watched[fd] = on;
}

template <typename Open>
int opened(int folder, const char* path, int flags, Open open_it) {
  if (!path || plan().under.empty()) return open_it();
  std::string full = absolute(folder, path);
  if (!below(full)) {
    int fd = open_it();
    watch(fd, false);
    return fd;
  }
  bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
  if (meet(writes ? "create" : "open", full, writes)) return -1;
  int fd = open_it();
  watch(fd, true);
  return fd;
}

mode_t mode_of(int flags, va_list more) {
  return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

}  // namespace

extern "C" {

#define OPEN(name)                                                                        \
  int name(const char* path, int flags, ...) {                                            \
    va_list more;                                                                         \
    va_start(more, flags);                                                                \
    mode_t mode = mode_of(flags, more);                                                   \
    va_end(more);                                                                         \
    return opened(AT_FDCWD, path, flags, [&] { return REAL(name)(path, flags, mode); });  \
  }
#define OPENAT(name)                                                                             \
  int name(int folder, const char* path, int flags, ...) {                                       \
    va_list more;                                                                                \
    va_start(more, flags);                                                                       \
    mode_t mode = mode_of(flags, more);                                                          \
    va_end(more);                                                                                \
    return opened(folder, path, flags, [&] { return REAL(name)(folder, path, flags, mode); });   \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                                        \
  FILE* name(const char* path, const char* mode) {                                         \
    std::string full = path ? absolute(AT_FDCWD, path) : "";                               \
    bool under = below(full), writes = !strchr(mode, 'r') || strchr(mode, '+');            \
    if (under && meet(writes ? "create" : "open", full, writes)) return nullptr;           \
    FILE* file = REAL(name)(path, mode);                                                   \
    if (file) watch(fileno(file), under);                                                  \
    return file;                                                                           \
  }
FOPEN(fopen)
FOPEN(fopen64)

int close(int fd) {
  watch(fd, false);
  return REAL(close)(fd);
}

ssize_t write(int fd, const void* data, size_t size) {
  if (is_watched(fd)) {
    int how = meet("write", path_of(fd), true);
    if (how == 1) return -1;
    if (how == 2 && size > 1) size /= 2, plan().stays = true;
  }
  return REAL(write)(fd, data, size);
}

#define PWRITE(name, off)                                              \
  ssize_t name(int fd, const void* data, size_t size, off at) {        \
    if (is_watched(fd)) {                                              \
      int how = meet("write", path_of(fd), true);                      \
      if (how == 1) return -1;                                         \
      if (how == 2 && size > 1) size /= 2, plan().stays = true;        \
    }                                                                  \
    return REAL(name)(fd, data, size, at);                             \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int fd, const struct iovec* parts, int count) {
  if (is_watched(fd) && meet("write", path_of(fd), true)) return errno = plan().error, -1;
  return REAL(writev)(fd, parts, count);
}

ssize_t read(int fd, void* data, size_t size) {
  if (is_watched(fd) && meet("read", path_of(fd), false)) return -1;
  return REAL(read)(fd, data, size);
}

#define PREAD(name, off)                                               \
  ssize_t name(int fd, void* data, size_t size, off at) {              \
    if (is_watched(fd) && meet("read", path_of(fd), false)) return -1; \
    return REAL(name)(fd, data, size, at);                             \
  }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

#define SYNC(name)                                                     \
  int name(int fd) {                                                   \
    if (is_watched(fd) && meet("sync", path_of(fd), true)) return -1;  \
    return REAL(name)(fd);                                             \
  }
SYNC(fsync)
SYNC(fdatasync)

int rename(const char* from, const char* to) {
  std::string full = absolute(AT_FDCWD, to);
  if (below(full) && meet("rename", full, true)) return -1;
  return REAL(rename)(from, to);
}

int renameat(int in, const char* from, int out, const char* to) {
  std::string full = absolute(out, to);
  if (below(full) && meet("rename", full, true)) return -1;
  return REAL(renameat)(in, from, out, to);
}

int renameat2(int in, const char* from, int out, const char* to, unsigned flags) {
  std::string full = absolute(out, to);
  if (below(full) && meet("rename", full, true)) return -1;
  return REAL(renameat2)(in, from, out, to, flags);
}

int mkdir(const char* path, mode_t mode) {
  std::string full = absolute(AT_FDCWD, path);
  if (below(full) && meet("mkdir", full, true)) return -1;
  return REAL(mkdir)(path, mode);
}

int unlink(const char* path) {
  std::string full = absolute(AT_FDCWD, path);
  if (below(full) && meet("unlink", full, plan().error == EROFS)) return -1;
  return REAL(unlink)(path);
}

int unlinkat(int folder, const char* path, int flags) {
  std::string full = absolute(folder, path);
  if (below(full) && meet("unlink", full, plan().error == EROFS)) return -1;
  return REAL(unlinkat)(folder, path, flags);
}

int rmdir(const char* path) {
  std::string full = absolute(AT_FDCWD, path);
  if (below(full) && meet("unlink", full, plan().error == EROFS)) return -1;
  return REAL(rmdir)(path);
}

}  // extern "C"
