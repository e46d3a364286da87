// StagedCall: one call through the kernel table, moved to a device: everything it reads or writes
// in host memory is copied over, and what it wrote is copied back. So every test of host memory is
// also a test of a device, and a stricter one: outputs are poisoned first, and a byte that changed
// without being part of an output fails the test, in gaps between rows and around each buffer too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/device.h"

namespace octavo::support {

class StagedCall {
 public:
  StagedCall(const DeviceApi& api, const Exec& exec);
  ~StagedCall();
  StagedCall(const StagedCall&) = delete;
  StagedCall& operator=(const StagedCall&) = delete;

  // First: what the call reads, writes whole, or reads and writes. Null and empty are allowed; no
  // kernel may touch those, so they keep their address.
  void reads(const Matrix& matrix) { add(matrix, /*written=*/false); }
  void writes(const Matrix& matrix) { add(matrix, /*written=*/true); }
  void reads(const float* number) { add(number, sizeof(float), false); }
  void writes(const float* number) { add(number, sizeof(float), true); }
  void reads(const QuantizedMatrix& matrix);
  void reads(const QuantizeSource& source);
  void reads(const Producer& producer, std::int64_t rows);  // and writes what is kept of rows
  void updates(const float* number);
  void updates(const Counts* counts);
  void updates(const std::int64_t* number);
  // Arrays without gaps, and operands of all batches and heads: one buffer, whatever lies between.
  template <typename T>
  void reads(const T* first, std::int64_t count) {
    add(first, static_cast<std::size_t>(count) * sizeof(T), false);
  }
  template <typename T>
  void writes(const T* first, std::int64_t count) {
    add(first, static_cast<std::size_t>(count) * sizeof(T), true);
  }
  void reads(const AttentionOperand& operand, std::int64_t batches, std::int64_t heads);
  void writes(const AttentionOperand& operand, std::int64_t batches, std::int64_t heads);

  // Second: copies it over. From here on the device's copies can be asked for.
  void start();
  [[nodiscard]] const Exec& exec() const { return exec_; }
  [[nodiscard]] Matrix there(Matrix matrix) const;
  [[nodiscard]] QuantizedMatrix there(QuantizedMatrix matrix) const;
  [[nodiscard]] QuantizeSource there(QuantizeSource source);
  [[nodiscard]] Producer there(Producer producer) const;
  [[nodiscard]] AttentionOperand there(AttentionOperand operand) const;
  template <typename T>
  [[nodiscard]] T* there(T* single) const {
    return static_cast<T*>(moved(single));
  }

  // Third: waits, checks every byte, and copies back.
  void finish();

 private:
  using Address = std::uintptr_t;
  // Host bytes [begin, end) and their place on the device, with guard bytes around it.
  struct Buffer {
    Address begin = 0, end = 0;
    bool read = false, written = false;
    std::byte* memory = nullptr;
    std::size_t lead = 0;  // bytes of `memory` before the first of the host's
    std::vector<std::byte> before{};
    std::vector<std::uint8_t> may_change{};
  };

  void add(const Matrix& matrix, bool written);
  void add_all(const AttentionOperand& operand, std::int64_t batches, std::int64_t heads,
               bool written);
  void add(const void* memory, std::size_t bytes, bool written);
  void join(Address begin, Address end, bool read, bool written);
  void fill(Buffer& buffer) const;
  void allow(const Matrix& matrix);
  void compare(const Buffer& buffer, const std::vector<std::byte>& after) const;
  [[nodiscard]] std::size_t buffer_of(Address address) const;
  [[nodiscard]] void* moved(const void* host) const;

  const DeviceApi& api_;
  Exec exec_;
  std::vector<Buffer> buffers_;
  std::vector<Matrix> outputs_;
  Producer producer_{};  // of a source: the device's copy is pointed to
};

}  // namespace octavo::support
