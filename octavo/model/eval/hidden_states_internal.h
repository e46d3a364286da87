// HiddenStates: of every token, the vector that passes from layer to layer; in memory, or in a
// temporary file where that would be too much.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {
class Descriptor;
}

namespace octavo::eval {

class HiddenStates {
 public:
  // `folder` empty: in memory. Else in a file there that has no name, so that it is gone when this
  // is, or the process, however that ends. Throws Error(io) where the disk has no room for it.
  HiddenStates(std::string op, std::int64_t rows, std::int64_t hidden, const std::string& folder);
  ~HiddenStates();
  HiddenStates(HiddenStates&&) noexcept;
  HiddenStates& operator=(HiddenStates&&) noexcept;

  // Rows [first, first + count), [count, hidden] of f32: in place where they are in memory, else
  // read into `buffer`, which grows as needed and is what the view shows.
  [[nodiscard]] View fetch(std::int64_t first, std::int64_t count, Tensor& buffer) const;
  // What became of rows that were fetched.
  void keep(std::int64_t first, const View& rows);

  // For a later process: the whole content as a file, and its hash; and back. load() is false where
  // the file has another size or hash.
  [[nodiscard]] std::uint64_t save(const std::string& path) const;
  [[nodiscard]] bool load(const std::string& path, std::uint64_t hash);

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t hidden() const { return hidden_; }
  [[nodiscard]] bool is_in_memory() const { return descriptor_ == nullptr; }

 private:
  [[nodiscard]] std::int64_t row_bytes() const;

  std::string op_, folder_;
  std::int64_t rows_ = 0, hidden_ = 0;
  Tensor memory_{};
  std::unique_ptr<const Descriptor> descriptor_;
};

}  // namespace octavo::eval
