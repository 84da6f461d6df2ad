// Pages of a mapped file that a gather is about to touch, asked for all at once.
//
// A row that is not in memory is read when its page is touched, one page after the other. Asked for before, all of them
// wait for the disk together.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace jhgnn {

// Pages from `first` to below `last`, by their addresses over the size of a page.
struct PageRun {
  uintptr_t first, last;
};

inline PageRun pages_of(const char* begin, int64_t bytes, uintptr_t page) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  return {address / page, (address + static_cast<uintptr_t>(bytes) + page - 1) / page};
}

// Whether all pages are in memory. True also where the system does not say.
inline bool resident(const PageRun& run, uintptr_t page) {
  std::vector<unsigned char> found(run.last - run.first);
#ifdef __APPLE__
  auto* told = reinterpret_cast<char*>(found.data());
#else
  auto* told = found.data();
#endif
  if (mincore(reinterpret_cast<void*>(run.first * page), (run.last - run.first) * page, told) != 0) return true;
  return std::all_of(found.begin(), found.end(), [](unsigned char each) { return each & 1; });
}

// Asks for the pages of rows `ids` of `row_bytes` each, unless those of a few of them are in memory; an id below 0 is no
// row. Returns how many reads were asked for.
inline int64_t expect_rows(const char* table, int64_t row_bytes, const int32_t* ids, int64_t count, bool ask_always) {
  constexpr int64_t kSample = 64;
  if (count == 0 || row_bytes == 0) return 0;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const int64_t stride = std::max<int64_t>(1, count / kSample);
  bool absent = ask_always;
  for (int64_t i = 0; i < count && !absent; i += stride) {
    absent = ids[i] >= 0 && !resident(pages_of(table + ids[i] * row_bytes, row_bytes, page), page);
  }
  if (!absent) return 0;
  std::vector<int32_t> sorted(ids, ids + count);
  std::sort(sorted.begin(), sorted.end());
  int64_t asked = 0;
  PageRun run{0, 0};
  const auto ask = [&] {
    if (run.first == run.last) return;
    // What cannot be read ahead is read when it is touched.
    (void)madvise(reinterpret_cast<void*>(run.first * page), (run.last - run.first) * page, MADV_WILLNEED);
    ++asked;
  };
  for (const int32_t id : sorted) {
    if (id < 0) continue;
    const PageRun own = pages_of(table + id * row_bytes, row_bytes, page);
    if (own.first <= run.last && run.first != run.last) {
      run.last = std::max(run.last, own.last);
    } else {
      ask();
      run = own;
    }
  }
  ask();
  return asked;
}

}  // namespace jhgnn
