// Copies tiles of K and V ahead of their use: a warp its own tile, eight neighbouring lanes 128
// bytes of a row, which memory likes best. Bytes go to where the lane reads them that multiplies
// them, so a stage needs no more than the warp's own barrier.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/attention/decode/decode_schedule.cuh"
#include "octavo/backend/cuda/attention/decode/decode_shape.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"

namespace octavo::cuda {

// Sixteen bytes of global to shared memory.
__device__ __forceinline__ void copy_ahead(SharedAddress to, const std::byte* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Zeros where they are not wanted; `any` is memory that could be read then, and is not.
template <int kBytes>
__device__ __forceinline__ void copy_wanted(SharedAddress to, const std::byte* from,
                                            const std::byte* any, bool wanted) {
  const std::byte* const there = wanted ? from : any;
  const int bytes = wanted ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(there), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(there), "n"(kBytes),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void end_of_stage() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most so many of the last stages are on their way.
template <int kLeft>
__device__ __forceinline__ void wait_for_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Where bytes lie in a stage, from the warp's first ones.
template <typename Shape>
struct DecodeStage {
  SharedAddress first;

  // Of row `down` + 8 `half` and the lane `across` of four: 16 bytes.
  static __device__ __forceinline__ int key_offset(int half, int chunk, int down, int across) {
    return ((half * Shape::kChunks + chunk) * Shape::kThreads + down * 4 + across) * 16;
  }
  // Of key 2 `across` + `which` % 2 + 8 (`which` / 2) and the lane `down` of eight: a piece.
  // Neither a row's writes nor a warp's reads meet in a bank.
  static __device__ __forceinline__ int value_offset(int which, int piece, int down, int across) {
    const int slot = Shape::kPieceBytes == 16
                         ? across * 8 + (down ^ 2 * across)
                         : across * 8 + (((down / 2) ^ (across / 2 * 2)) * 2 + down % 2);
    return Shape::kKeyBytes * Shape::kThreads +
           ((which * Shape::kPieces + piece) * Shape::kThreads + slot) * Shape::kPieceBytes;
  }
  // Of a warp from its first float on: 16 of K, 16 of V.
  static __device__ __forceinline__ int scale_offset() {
    return (Shape::kKeyBytes + Shape::kValueBytes) * Shape::kThreads;
  }

  [[nodiscard]] __device__ __forceinline__ SharedAddress key(int half, int chunk) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    return first + key_offset(half, chunk, lane / 4, lane % 4) + warp * 32 * 16;
  }
  [[nodiscard]] __device__ __forceinline__ SharedAddress value(int which, int piece) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    return first + value_offset(which, piece, lane / 4, lane % 4) + warp * 32 * Shape::kPieceBytes;
  }
  // 0: of K, 1: of V; of the lane's key and that eight later.
  [[nodiscard]] __device__ __forceinline__ SharedAddress scale(int of, int half) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    return first + scale_offset() + (warp * 32 + of * 16 + half * 8 + lane / 4) * 4;
  }
};

template <typename Shape, bool kTokenScales>
class DecodeLoader {
 public:
  __device__ __forceinline__ DecodeLoader(const DecodePlan& plan, SharedAddress stages)
      : plan_(plan), stages_(stages) {
    is_full_ = plan.k.row_bytes == Shape::kRowBytes && plan.v.row_bytes == Shape::kRowBytes;
    const int row = lane() / kLanesOfRow, byte = lane() % kLanesOfRow * 16;
    key_from_ = row * static_cast<int>(plan.k.row_pitch) + byte;
    value_from_ = row * static_cast<int>(plan.v.row_pitch) + byte;
    key_to_ = key_to();
    value_to_ = value_to();
  }

  __device__ __forceinline__ void start(const DecodeWalk<Shape::kKeysOfBlock>& walk,
                                        int blocks_left) {
    walk_ = walk;
    left_ = blocks_left;
    find_head();
    find_page();
  }

  // Copies the warp's tile of the next block of keys; returns whether its page is one of the pool.
  __device__ __forceinline__ bool copy_next(int stage) {
    bool good = true;
    if (left_ > 0) {
      --left_;
      const int key = first_key();
      if (key < walk_.span.end) good = copy_tile({stages_ + stage * kStageStep}, key);
      if (walk_.next(plan_)) find_head();
      find_page();
    }
    end_of_stage();
    return good;
  }

 private:
  static constexpr int kStageStep = Shape::kStageBytes * Shape::kThreads;

  [[nodiscard]] __device__ __forceinline__ int first_key() const {
    return walk_.span.first + walk_.block * Shape::kKeysOfBlock +
           static_cast<int>(threadIdx.x) / 32 * kDecodeTileKeys;
  }
  __device__ __forceinline__ void find_head() {
    const std::int64_t head = walk_.head / plan_.groups;
    keys_ = plan_.k.rows + head * plan_.k.head_pitch;
    values_ = plan_.v.rows + head * plan_.v.head_pitch;
    if constexpr (kTokenScales) {
      key_scales_ = plan_.k.scales + head * plan_.k.scale_head_pitch;
      value_scales_ = plan_.v.scales + head * plan_.v.scale_head_pitch;
    }
  }
  // Ahead of its use: the table is far away, too.
  __device__ __forceinline__ void find_page() {
    if (!plan_.job.pages.exist()) return;
    const int key = first_key();
    if (left_ > 0 && key < walk_.span.end)
      page_ = plan_.job.pages
                  .table[walk_.batch * plan_.job.pages.table_pitch + (key >> plan_.page_shift)];
  }

  __device__ __forceinline__ bool copy_tile(const DecodeStage<Shape>& to, int key) {
    std::int64_t page = walk_.batch;
    int row = key;
    if (plan_.job.pages.exist()) {
      page = page_;
      row = key & ((1 << plan_.page_shift) - 1);
      if (page < 0 || page >= plan_.job.pages.page_count) return false;
    }
    const std::byte* const k = keys_ + page * plan_.k.page_pitch + row * plan_.k.row_pitch;
    const std::byte* const v = values_ + page * plan_.v.page_pitch + row * plan_.v.row_pitch;
    const SharedAddress k_to = to.first + key_to_, v_to = to.first + value_to_;
    if (is_full_ && key >= walk_.span.begin && key + kDecodeTileKeys <= walk_.span.end) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        copy_ahead(k_to + key_step(i), k + key_from_ + from_of(i, plan_.k.row_pitch));
        copy_ahead((v_to ^ value_turn(i)) + value_step(i),
                   v + value_from_ + from_of(i, plan_.v.row_pitch));
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kCopies; ++i) {
        const int seen = key + row_of(i), byte = byte_of(i);
        const bool is_seen = seen >= walk_.span.begin && seen < walk_.span.end;
        copy_wanted<16>(k_to + key_step(i), k + key_from_ + from_of(i, plan_.k.row_pitch),
                        plan_.k.rows, is_seen && byte < plan_.k.row_bytes);
        copy_wanted<16>((v_to ^ value_turn(i)) + value_step(i),
                        v + value_from_ + from_of(i, plan_.v.row_pitch), plan_.v.rows,
                        is_seen && byte < plan_.v.row_bytes);
      }
    }
    if constexpr (kTokenScales) {
      // Half of the warp has those of K.
      const bool of_k = lane() < kDecodeTileKeys;
      const DecodeTokens& tokens = of_k ? plan_.k : plan_.v;
      const int at = lane() % kDecodeTileKeys;
      const bool is_seen = key + at >= walk_.span.begin && key + at < walk_.span.end;
      if (tokens.scales != nullptr)
        copy_wanted<4>(
            to.first + DecodeStage<Shape>::scale_offset() + static_cast<int>(threadIdx.x) * 4,
            (of_k ? key_scales_ : value_scales_) + page * tokens.scale_page_pitch +
                ((row + at) >> tokens.token_shift) * tokens.scale_step,
            tokens.scales, is_seen);
    }
    return true;
  }

  // 16 bytes a lane: a row takes so many lanes, or several copies.
  static constexpr int kOfRow = Shape::kRowBytes / 16, kLanesOfRow = kOfRow < 32 ? kOfRow : 32,
                       kCopies = kDecodeTileKeys * kOfRow / 32;
  static_assert(kOfRow >= 4 && (kOfRow & (kOfRow - 1)) == 0);
  static constexpr int kRowsOfCopy = 32 / kLanesOfRow, kCopiesOfRow = kOfRow / kLanesOfRow;

  [[nodiscard]] static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  // Copy i's row and byte of this lane, beyond those of its first copy; and of the tile.
  [[nodiscard]] static __device__ __forceinline__ std::int64_t from_of(int i, std::int64_t pitch) {
    return i / kCopiesOfRow * kRowsOfCopy * pitch + i % kCopiesOfRow * kLanesOfRow * 16;
  }
  [[nodiscard]] static __device__ __forceinline__ int row_of(int i) {
    return i / kCopiesOfRow * kRowsOfCopy + lane() / kLanesOfRow;
  }
  [[nodiscard]] static __device__ __forceinline__ int byte_of(int i) {
    return (i % kCopiesOfRow * kLanesOfRow + lane() % kLanesOfRow) * 16;
  }
  // Where the lane's first copy goes, and how far from there the others are: rows of later copies
  // share no bits with those of lanes, so that neither sums nor exclusive ors carry.
  static __device__ __forceinline__ int key_to() {
    const int row = lane() / kLanesOfRow, chunk = lane() % kLanesOfRow,
              warp = static_cast<int>(threadIdx.x) / 32;
    return DecodeStage<Shape>::key_offset(0, chunk / 4, row, chunk % 4) + warp * 32 * 16;
  }
  static constexpr int key_step(int i) {
    const int row = i / kCopiesOfRow * kRowsOfCopy, chunk = i % kCopiesOfRow * kLanesOfRow;
    return ((row / 8 * Shape::kChunks + chunk / 4) * Shape::kThreads + row % 8 * 4) * 16;
  }
  static constexpr int kPiecesOfCopy = 16 / Shape::kPieceBytes;
  static __device__ __forceinline__ int value_to() {
    const int row = lane() / kLanesOfRow, piece = lane() % kLanesOfRow * kPiecesOfCopy,
              warp = static_cast<int>(threadIdx.x) / 32;
    return DecodeStage<Shape>::value_offset(row % 2, piece / 8, piece % 8, row / 2) +
           warp * 32 * Shape::kPieceBytes;
  }
  static constexpr int value_step(int i) {
    const int row = i / kCopiesOfRow * kRowsOfCopy,
              piece = i % kCopiesOfRow * kLanesOfRow * kPiecesOfCopy;
    return (((row % 2 + row / 8 * 2) * Shape::kPieces + piece / 8) * Shape::kThreads +
            row % 8 / 2 * 8) *
           Shape::kPieceBytes;
  }
  static constexpr int value_turn(int i) {
    return Shape::kPieceBytes == 16 ? i / kCopiesOfRow * kRowsOfCopy % 8 / 2 * 2 * 16 : 0;
  }
  // Stages begin at multiples of the bytes that a turn exchanges.
  static_assert(Shape::kStageBytes * Shape::kThreads % 128 == 0);
  static_assert(Shape::kPieceBytes == 16 || kRowsOfCopy == 8);

  const DecodePlan& plan_;
  SharedAddress stages_;
  bool is_full_;               // rows fill the kernel's
  int key_from_, value_from_;  // where the lane's first copy of a tile is from
  int key_to_, value_to_;      // and goes
  DecodeWalk<Shape::kKeysOfBlock> walk_;
  int left_ = 0;
  const std::byte *keys_ = nullptr, *values_ = nullptr, *key_scales_ = nullptr,
                  *value_scales_ = nullptr;
  std::int64_t page_ = 0;
};

}  // namespace octavo::cuda
