// An array that owns its memory. Large ones are aligned to 2 MiB and ask for huge pages; memory may
// also be external (DLPack); the tensor then keeps its owner alive.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "octavo/base/macros.h"
#include "octavo/tensor/view.h"

namespace octavo {

class OCTAVO_API Tensor {
 public:
  Tensor() = default;

  // Dense, uninitialised memory on the CPU (on a device: exec/device_tensor.h). Throws when the
  // shape is impossible or memory runs out.
  [[nodiscard]] static Tensor values(const Shape& shape, DType dtype);
  [[nodiscard]] static Tensor codes(const Shape& shape, const Format& format, bool packed = false);
  // Memory that `owner` keeps alive.
  [[nodiscard]] static Tensor adopt(const View& view, std::shared_ptr<void> owner);

  [[nodiscard]] const View& view() const { return view_; }
  [[nodiscard]] const Shape& shape() const { return view_.shape; }
  [[nodiscard]] DType dtype() const { return view_.dtype; }
  [[nodiscard]] const Format& format() const { return view_.format; }
  [[nodiscard]] std::int64_t nbytes() const;
  [[nodiscard]] const std::shared_ptr<void>& owner() const { return owner_; }

  // Elements as T; throws unless the tensor is dense, on the CPU, and T has the element's size.
  template <typename T>
  [[nodiscard]] std::span<T> span() const {
    return {static_cast<T*>(checked_data(sizeof(T))),
            static_cast<std::size_t>(element_count(view_.shape))};
  }
  // All bytes of a dense tensor on the CPU, packed ones included.
  [[nodiscard]] std::span<std::byte> bytes() const;

 private:
  [[nodiscard]] void* checked_data(std::size_t element_size) const;

  View view_;
  std::shared_ptr<void> owner_;
};

}  // namespace octavo
