// Makes one chosen file operation of a process fail, or ends the process there: loaded with LD_PRELOAD.
//
// FAULT_UNDER        folders, separated by ':'; only files below them count
// FAULT_LOG          a file that gets a line for every call: its number, the operation, the path, `!` where it fails
// FAULT_AT           the number of the call that fails, from 1; 0 or unset: none
// FAULT_OPERATION, FAULT_PATH, FAULT_NTH
//                    instead: the n-th call of this operation on this path, as the log names them
// FAULT_KIND         an errno's name, `kill`, or `short`: half of a write, after which the disk is full
// FAULT_STAYS        set: every later call that writes fails, too, as on a disk that stays full; deleting works
// FAULT_SNAPSHOTS    a folder: before every call that changes a file, FAULT_SNAPSHOT_OF is copied into it under the
//                    call's number. That is what a kill at this call leaves. Calls then wait for each other.
//
// In paths, what differs from one run to the next is `*`: long hexadecimal names, process ids and times.
// A process that has changed its environment calls `fault_reload`.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ctype.h>
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
#include <filesystem>
#include <mutex>
#include <string>

namespace {

constexpr int kMaxFd = 1 << 16;
std::atomic<bool> watched[kMaxFd];
std::atomic<bool> failed{false};
std::recursive_mutex turns;
thread_local bool copying = false;

struct Plan {
  std::string under, log, kind, operation, path, snapshots, snapshot_of;
  int at = 0, nth = 0, error = 0;
  int calls = 0, met = 0;
  bool stays = false;
};

std::string text(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

int error_of(const std::string& kind) {
  if (kind == "EIO") return EIO;
  if (kind == "EROFS") return EROFS;
  if (kind == "EACCES") return EACCES;
  return ENOSPC;
}

void read_plan(Plan& p) {
  p = Plan{};
  p.under = text("FAULT_UNDER");
  p.log = text("FAULT_LOG");
  p.kind = text("FAULT_KIND");
  p.at = atoi(text("FAULT_AT").c_str());
  p.operation = text("FAULT_OPERATION");
  p.path = text("FAULT_PATH");
  p.nth = atoi(text("FAULT_NTH").c_str());
  p.stays = !text("FAULT_STAYS").empty();
  p.snapshots = text("FAULT_SNAPSHOTS");
  p.snapshot_of = text("FAULT_SNAPSHOT_OF");
  p.error = error_of(p.kind);
}

Plan& plan() {
  static Plan* made = [] {
    Plan* p = new Plan;
    read_plan(*p);
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
  if (copying) return false;
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

// Runs of 16 and more hexadecimal digits, digits before `.tmp`, and what follows `tmp-` or `tfevents.` are `*`; so is
// what `mkdtemp` draws for a hidden folder, `.NAME.abcdefgh`.
std::string named(const std::string& path) {
  std::string found;
  for (size_t from = 0; from < path.size();) {
    size_t to = path.find('/', from);
    if (to == std::string::npos) to = path.size();
    std::string part = path.substr(from, to - from);
    for (const char* before : {"tmp-", "tfevents."}) {
      size_t at = part.find(before);
      if (at != std::string::npos) part = part.substr(0, at + strlen(before)) + "*";
    }
    size_t tmp = part.rfind(".tmp");
    if (tmp != std::string::npos) {
      size_t digits = tmp;
      while (digits > 0 && isdigit(static_cast<unsigned char>(part[digits - 1]))) --digits;
      if (digits < tmp) part = part.substr(0, digits) + "*" + part.substr(tmp);
    }
    if (part.size() > 10 && part[0] == '.') {
      size_t old = part.size() > 14 && part.compare(part.size() - 4, 4, ".old") == 0 ? 4 : 0;
      size_t dot = part.size() - old - 9;
      if (part[dot] == '.' && dot > 0 && part.find('.', dot + 1) >= part.size() - old)
        part = part.substr(0, dot + 1) + "*" + (old ? ".old" : "");
    }
    std::string kept;
    for (size_t i = 0; i < part.size();) {
      size_t j = i;
      while (j < part.size() && isxdigit(static_cast<unsigned char>(part[j]))) ++j;
      kept += j - i >= 16 ? "*" : part.substr(i, j - i);
      if (j < part.size()) kept += part[j];
      i = j + 1;
    }
    found += kept;
    if (to < path.size()) found += '/';
    from = to + 1;
  }
  return found;
}

std::string path_of(int fd) {
  char link[64], found[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, found, sizeof found - 1);
  if (size < 0) return "?";
  found[size] = 0;
  return found;
}

void take_snapshot(const Plan& p, int number) {
  copying = true;
  std::error_code ignored;
  std::string to = p.snapshots + "/" + std::to_string(number);
  std::filesystem::create_directories(to, ignored);
  if (std::filesystem::exists(p.snapshot_of, ignored))
    std::filesystem::copy(p.snapshot_of, to + "/of", std::filesystem::copy_options::recursive, ignored);
  copying = false;
}

void append_line(const std::string& file, const std::string& line) {
  int fd = syscall(SYS_openat, AT_FDCWD, file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  syscall(SYS_write, fd, line.data(), line.size());
  syscall(SYS_close, fd);
}

// A call that is about to be made. `how`: 0 as it is, 1 it fails with errno, 2 half of it.
struct Call {
  std::unique_lock<std::recursive_mutex> turn;
  int how = 0;

  Call(const char* operation, const std::string& path, bool writes) : Call(operation, path, writes, writes) {}

  // `refused`: whether a disk that stays full refuses it.
  Call(const char* operation, const std::string& path, bool writes, bool refused) : turn(turns) {
    Plan& p = plan();
    int number = ++p.calls;
    std::string name = named(path);
    bool here = number == p.at;
    if (p.nth && p.operation == operation && p.path == name) here = ++p.met == p.nth;
    if (!p.snapshots.empty() && writes) take_snapshot(p, number);
    if (!p.log.empty())
      append_line(p.log, std::to_string(number) + "\t" + operation + "\t" + name + (here ? "\t!\n" : "\n"));
    bool again = p.stays && failed && refused;
    if (p.snapshots.empty()) turn.unlock();
    if (!here && !again) return;
    failed = true;
    if (here && p.kind == "kill") kill(getpid(), SIGKILL);
    how = here && p.kind == "short" && !strcmp(operation, "write") ? 2 : 1;
    errno = p.error;
  }
};

bool is_watched(int fd) { return !copying && fd >= 0 && fd < kMaxFd && watched[fd]; }
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
  Call call(writes ? "create" : "open", full, writes);
  if (call.how) return -1;
  int fd = open_it();
  watch(fd, true);
  return fd;
}

mode_t mode_of(int flags, va_list more) {
  return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

// What a write of `size` may write; -1 where it fails.
ssize_t writable(const Call& call, size_t size) {
  if (call.how == 1) return -1;
  if (call.how == 2) {
    plan().stays = true;
    return size > 1 ? size / 2 : size;
  }
  return size;
}

}  // namespace

extern "C" {

void fault_reload() {
  read_plan(plan());
  failed = false;
}

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
    if (!below(full)) {                                                                    \
      FILE* file = REAL(name)(path, mode);                                                 \
      if (file) watch(fileno(file), false);                                                \
      return file;                                                                         \
    }                                                                                      \
    bool writes = !strchr(mode, 'r') || strchr(mode, '+');                                 \
    Call call(writes ? "create" : "open", full, writes);                                   \
    if (call.how) return nullptr;                                                          \
    FILE* file = REAL(name)(path, mode);                                                   \
    if (file) watch(fileno(file), true);                                                   \
    return file;                                                                           \
  }
FOPEN(fopen)
FOPEN(fopen64)

// C's buffered files write inside of the C library, where nothing can be put between: what is handed over counts.
size_t fwrite(const void* data, size_t size, size_t count, FILE* file) {
  if (!is_watched(fileno(file))) return REAL(fwrite)(data, size, count, file);
  Call call("write", path_of(fileno(file)), true);
  ssize_t can = writable(call, count);
  return can < 0 ? 0 : REAL(fwrite)(data, size, can, file);
}

int close(int fd) {
  watch(fd, false);
  return REAL(close)(fd);
}

// A second number of a file counts as the first one does; NumPy writes through one.
int fcntl(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  long argument = va_arg(more, long);
  va_end(more);
  int result = REAL(fcntl)(fd, command, argument);
  if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC)) watch(result, is_watched(fd));
  return result;
}

int fcntl64(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  long argument = va_arg(more, long);
  va_end(more);
  int result = REAL(fcntl64)(fd, command, argument);
  if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC)) watch(result, is_watched(fd));
  return result;
}

int dup(int fd) {
  int result = REAL(dup)(fd);
  if (result >= 0) watch(result, is_watched(fd));
  return result;
}

ssize_t write(int fd, const void* data, size_t size) {
  if (!is_watched(fd)) return REAL(write)(fd, data, size);
  Call call("write", path_of(fd), true);
  ssize_t can = writable(call, size);
  return can < 0 ? -1 : REAL(write)(fd, data, can);
}

#define PWRITE(name, off)                                              \
  ssize_t name(int fd, const void* data, size_t size, off at) {        \
    if (!is_watched(fd)) return REAL(name)(fd, data, size, at);        \
    Call call("write", path_of(fd), true);                             \
    ssize_t can = writable(call, size);                                \
    return can < 0 ? -1 : REAL(name)(fd, data, can, at);               \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int fd, const struct iovec* parts, int count) {
  if (!is_watched(fd)) return REAL(writev)(fd, parts, count);
  Call call("write", path_of(fd), true);
  if (call.how == 1) return -1;
  if (call.how == 2) {
    plan().stays = true;
    return REAL(write)(fd, parts[0].iov_base, parts[0].iov_len > 1 ? parts[0].iov_len / 2 : parts[0].iov_len);
  }
  return REAL(writev)(fd, parts, count);
}

ssize_t read(int fd, void* data, size_t size) {
  if (!is_watched(fd)) return REAL(read)(fd, data, size);
  Call call("read", path_of(fd), false);
  return call.how ? -1 : REAL(read)(fd, data, size);
}

#define PREAD(name, off)                                        \
  ssize_t name(int fd, void* data, size_t size, off at) {       \
    if (!is_watched(fd)) return REAL(name)(fd, data, size, at); \
    Call call("read", path_of(fd), false);                      \
    return call.how ? -1 : REAL(name)(fd, data, size, at);      \
  }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

#define SYNC(name)                                \
  int name(int fd) {                              \
    if (!is_watched(fd)) return REAL(name)(fd);   \
    Call call("sync", path_of(fd), true);         \
    return call.how ? -1 : REAL(name)(fd);        \
  }
SYNC(fsync)
SYNC(fdatasync)

int rename(const char* from, const char* to) {
  std::string full = absolute(AT_FDCWD, to);
  if (!below(full)) return REAL(rename)(from, to);
  Call call("rename", full, true);
  return call.how ? -1 : REAL(rename)(from, to);
}

int renameat(int in, const char* from, int out, const char* to) {
  std::string full = absolute(out, to);
  if (!below(full)) return REAL(renameat)(in, from, out, to);
  Call call("rename", full, true);
  return call.how ? -1 : REAL(renameat)(in, from, out, to);
}

int renameat2(int in, const char* from, int out, const char* to, unsigned flags) {
  std::string full = absolute(out, to);
  if (!below(full)) return REAL(renameat2)(in, from, out, to, flags);
  Call call("rename", full, true);
  return call.how ? -1 : REAL(renameat2)(in, from, out, to, flags);
}

int mkdir(const char* path, mode_t mode) {
  std::string full = absolute(AT_FDCWD, path);
  if (!below(full)) return REAL(mkdir)(path, mode);
  Call call("mkdir", full, true);
  return call.how ? -1 : REAL(mkdir)(path, mode);
}

// A full disk lets files be deleted; one that is read-only does not.
#define REMOVE(name, parameters, arguments, path)             \
  int name parameters {                                       \
    std::string full = path;                                  \
    if (!below(full)) return REAL(name) arguments;            \
    Call call("unlink", full, true, plan().error == EROFS);   \
    return call.how ? -1 : REAL(name) arguments;              \
  }
REMOVE(unlink, (const char* path), (path), absolute(AT_FDCWD, path))
REMOVE(unlinkat, (int folder, const char* path, int flags), (folder, path, flags), absolute(folder, path))
REMOVE(rmdir, (const char* path), (path), absolute(AT_FDCWD, path))

}  // extern "C"
