#include <array>
#include <span>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/base/json/json.h"
#include "octavo/model/model_fingerprint_internal.h"
#include "octavo/model/statistics/statistics_file.h"
#include "octavo/model/statistics/statistics_names_internal.h"
#include "octavo/safetensors/file_writer.h"

namespace octavo {
namespace {

using namespace eval;
using safetensors::StoredType;

// Tensors of the file: first all are declared, then all are written.
class Tensors {
 public:
  void add(std::string name, std::span<const float> values, std::vector<std::uint64_t> shape) {
    if (!values.empty())
      add(std::move(name), StoredType::f32, std::as_bytes(values), std::move(shape));
  }
  void add(std::string name, std::span<const std::int64_t> values) {
    if (!values.empty())
      add(std::move(name), StoredType::i64, std::as_bytes(values), {values.size()});
  }
  void write(const std::string& path, const safetensors::Metadata& metadata) const {
    safetensors::FileWriter file(path, plans_, {.metadata = metadata});
    for (std::size_t i = 0; i < plans_.size(); ++i)
      file.write(file.at(plans_[i].name), 0, bytes_[i]);
    file.finish();
  }

 private:
  void add(std::string name, StoredType type, std::span<const std::byte> bytes,
           std::vector<std::uint64_t> shape) {
    plans_.push_back({.name = std::move(name), .type = type, .shape = std::move(shape)});
    bytes_.push_back(bytes);
  }
  std::vector<safetensors::TensorPlan> plans_;
  std::vector<std::span<const std::byte>> bytes_;
};

}  // namespace

void write_statistics(const std::string& path, const ModelStatistics& statistics) {
  Tensors tensors;
  for (const ModuleStatistics& one : statistics.modules) {
    const std::uint64_t width = one.mean_square.size(), block = kHessianBlock;
    tensors.add(text(one.module, kAmax), one.amax, {width});
    tensors.add(text(one.module, kMeanSquare), one.mean_square, {width});
    tensors.add(text(one.module, kBlockHessians), one.block_hessians,
                {(width + block - 1) / block, block, block});
    tensors.add(text(one.module, kHessian), one.hessian, {width, width});
    tensors.add(text(one.module, kRows), std::span(&one.rows, 1));
  }
  for (const CacheStatistics& one : statistics.caches) {
    tensors.add(text(one.module, kKeys), one.k_amax, {one.k_amax.size()});
    tensors.add(text(one.module, kValues), one.v_amax, {one.v_amax.size()});
  }
  for (const RoutingStatistics& one : statistics.routings)
    tensors.add(text(one.module, kExpertTokens), one.tokens);
  Json texts = Json::array();
  for (const std::string& one : statistics.origin.texts) texts.push(one);
  tensors.write(path, {{"format", std::string(kStatisticsFormat)},
                       {"version", std::string(kStatisticsVersion)},
                       {"model", statistics.origin.model},
                       {"model_fingerprint", hex_of(statistics.origin.fingerprint)},
                       {std::string(kFingerprintVersionKey), std::to_string(kFingerprintVersion)},
                       {"tokens", std::to_string(statistics.origin.tokens)},
                       {"texts", texts.dump(0)},
                       {"made_by", statistics.origin.made_by}});
}

}  // namespace octavo
