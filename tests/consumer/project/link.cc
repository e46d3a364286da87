// Parts of the interface that a program reaches through the shared library alone: what one of them
// needs and the library does not export fails to link.
#include <octavo/octavo.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace {

// Of an Error's message; "" where nothing is thrown.
template <typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const octavo::Error& error) {
    return error.what();
  }
  return "";
}

bool attends_to_a_cache() {
  const octavo::KernelClock clock;
  octavo::KvCache cache(1, 2, 64, 64);
  const octavo::Tensor tokens = octavo::Tensor::values({1, 2, 3, 64}, octavo::DType::f32);
  for (float& value : tokens.span<float>()) value = 0.25F;
  cache.append(tokens.view(), tokens.view());
  const octavo::Tensor out = cache.attend(tokens);
  return cache.lengths()[0] == 3 && out.shape() == tokens.shape() && clock.calls() > 0;
}

// A file is written, and the checkpoint that it is inspected, verified and planned.
bool works_on_a_checkpoint(const std::string& path) {
  namespace safetensors = octavo::safetensors;
  {
    safetensors::FileWriter file(path,
                                 {{"m.up_proj.weight", safetensors::StoredType::bf16, {128, 128}}});
    const safetensors::TensorEntry& weight = file.at("m.up_proj.weight");
    file.write(weight, 0, std::vector<std::byte>(weight.nbytes()));
    file.finish();
  }
  const octavo::CheckpointReader checkpoint(path);
  const octavo::Inspection seen = octavo::inspect_checkpoint(path, {.statistics = true});
  const octavo::QuantizePlan plan = octavo::plan_quantize(checkpoint, {.recipe = "mxfp8"});
  const octavo::Verification verified = octavo::verify_all(checkpoint);
  const octavo::CheckpointReport same = octavo::compare_checkpoints(path, path);
  std::remove(path.c_str());
  return seen.tensors.size() == 1 && seen.tensors[0].statistics->mean() == 0.0 &&
         plan.actions.size() == 1 && verified.good() == (verified.errors() == 0) &&
         same.worst(1).size() == 1 && octavo::is_equal(same.tensors[0]) &&
         octavo::json_of(seen).starts_with("{") && octavo::json_of(same).starts_with("{") &&
         octavo::json_of(checkpoint, plan).starts_with("{") && checkpoint.config_text() == "null";
}

bool refuses_what_it_cannot_hold() {
  const std::vector<std::int64_t> nine(9, 1);
  std::array<std::uint16_t, 2> wide{};
  return message_of([&] { octavo::Shape{std::span(nine)}; }) ==
             "[shape] got 9 dimensions; expected at most 8; collapse leading dimensions" &&
         !message_of([&] { octavo::view_of(std::span(wide), octavo::e4m3fn); }).empty();
}

}  // namespace

// The number of parts that do not work.
int broken_parts() {
  int broken = 0;
  const auto part = [&](const char* name, bool good) {
    std::printf("%s: %s\n", name, good ? "good" : "WRONG");
    broken += good ? 0 : 1;
  };
  part("KV cache", attends_to_a_cache());
  part("checkpoint", works_on_a_checkpoint("consumer.safetensors"));
  part("refusals", refuses_what_it_cannot_hold());
  return broken;
}
