// The distinct vertices of one node type that a batch has met, in segments: the seeds, then what each hop added.
//
// A segment keeps a bitmap over the type's vertices with a running count per word, so that "which slot does vertex v
// have" is one load from 2 bits a vertex: a whole type of a million vertices stays in the L2 cache, where a hash table
// or a dense map of positions would not. It also yields each hop's new vertices ascending, without a sort.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace jhgnn::sampling {

constexpr int64_t kWordsPerBlock = 2048;

struct Word {
  uint64_t present = 0;
  int64_t before = 0;  // vertices in earlier words; beside the bits, so that a look-up is one cache line
};

struct Segment {
  std::vector<Word> words;
  std::vector<int32_t> ids;        // slot order
  std::vector<int32_t> slot_of_rank;  // seeds only: they stand in the order given, not ascending; first appearance
  std::vector<uint32_t> block_counts;

  bool holds(int32_t id) const { return words[id >> 6].present >> (id & 63) & 1u; }

  int32_t slot(int32_t id) const {
    const Word word = words[id >> 6];
    const uint64_t below = word.present & ((uint64_t{1} << (id & 63)) - 1);
    const int32_t rank = static_cast<int32_t>(word.before) + __builtin_popcountll(below);
    return slot_of_rank.empty() ? rank : slot_of_rank[rank];
  }
};

class Frontier {
 public:
  Frontier(int64_t num_nodes, int num_hops, int threads) : words_((num_nodes + 63) / 64), segments_(num_hops + 1) {
    drawn_.resize(threads);
  }

  int64_t words() const { return words_; }
  int64_t num_blocks() const { return (words_ + kWordsPerBlock - 1) / kWordsPerBlock; }
  const Segment& segment(int hop) const { return segments_[hop]; }
  int64_t size(int hop) const { return static_cast<int64_t>(segments_[hop].ids.size()); }

  // Bits of the vertices that `thread` has drawn in this hop; cleared by `merge`.
  uint64_t* drawn(int thread) {
    if (drawn_[thread].empty()) drawn_[thread].assign(words_, 0);
    return drawn_[thread].data();
  }

  void start(const int32_t* seeds, int64_t count) {
    Segment& segment = segments_[0];
    segment.ids.assign(seeds, seeds + count);
    segment.words.assign(words_, Word{});
    for (int64_t i = 0; i < count; ++i) {
      if (seeds[i] >= 0) segment.words[seeds[i] >> 6].present |= uint64_t{1} << (seeds[i] & 63);
    }
    uint32_t total = 0;
    for (Word& word : segment.words) {
      word.before = total;
      total += static_cast<uint32_t>(__builtin_popcountll(word.present));
    }
    segment.slot_of_rank.clear();
    std::vector<int32_t> slots(total);
    for (int64_t i = count - 1; i >= 0; --i) {
      if (seeds[i] >= 0) slots[segment.slot(seeds[i])] = static_cast<int32_t>(i);
    }
    segment.slot_of_rank = std::move(slots);
    for (size_t hop = 1; hop < segments_.size(); ++hop) segments_[hop].ids.clear();
  }

  // The vertices drawn in hop `hop - 1` and not met before become segment `hop`: `merge` every block, then `total`,
  // then `collect` every block.
  void merge(int hop, int64_t block) {
    Segment& segment = segments_[hop];
    const int64_t begin = block * kWordsPerBlock, end = std::min(words_, begin + kWordsPerBlock);
    uint32_t count = 0;
    for (int64_t word = begin; word < end; ++word) {
      uint64_t bits = 0;
      for (std::vector<uint64_t>& drawn : drawn_) {
        if (drawn.empty()) continue;
        bits |= drawn[word];
        drawn[word] = 0;
      }
      for (int earlier = 0; earlier < hop; ++earlier) bits &= ~segments_[earlier].words[word].present;
      segment.words[word] = {bits, count};
      count += static_cast<uint32_t>(__builtin_popcountll(bits));
    }
    segment.block_counts[block] = count;
  }

  void reserve(int hop) {
    segments_[hop].words.resize(words_);
    segments_[hop].block_counts.resize(num_blocks());
  }

  void total(int hop) {
    Segment& segment = segments_[hop];
    uint32_t sum = 0;
    for (uint32_t& count : segment.block_counts) {
      const uint32_t own = count;
      count = sum;
      sum += own;
    }
    segment.ids.resize(sum);
  }

  void collect(int hop, int64_t block) {
    Segment& segment = segments_[hop];
    const int64_t begin = block * kWordsPerBlock, end = std::min(words_, begin + kWordsPerBlock);
    const uint32_t offset = segment.block_counts[block];
    for (int64_t word = begin; word < end; ++word) {
      int64_t slot = segment.words[word].before += offset;
      for (uint64_t bits = segment.words[word].present; bits != 0; bits &= bits - 1) {
        segment.ids[slot++] = static_cast<int32_t>(word * 64 + __builtin_ctzll(bits));
      }
    }
  }

 private:
  int64_t words_;
  std::vector<Segment> segments_;
  std::vector<std::vector<uint64_t>> drawn_;
};

}  // namespace jhgnn::sampling
