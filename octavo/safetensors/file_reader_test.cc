#include "octavo/safetensors/file_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "octavo/format/named_formats.h"
#include "octavo/safetensors/safetensors_testing_internal.h"

namespace octavo::safetensors {
namespace {

class FileReaderTest : public FolderTest {
 protected:
  // Three tensors: 8 bytes of F32, 4 of F8_E4M3, 3 of F4 with the shape given.
  std::string save_three(std::string_view f4_shape = "[1,6]") const {
    return save(
        "three.safetensors",
        file_text(text(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)",
                       R"("c":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[8,12]},)",
                       R"("p":{"dtype":"F4","shape":)", f4_shape, R"(,"data_offsets":[12,15]}})"),
                  std::string("\0\0\x80\x3f\0\0\0\x40", 8) + "\x38\x40\x44\x48"
                                                             "\x10\x32\x54"));
  }
  static std::string read(const FileReader& file, std::string_view name, std::uint64_t offset,
                          std::size_t bytes) {
    std::string out(bytes, '?');
    file.read(file.at(name), offset, std::as_writable_bytes(std::span(out)));
    return out;
  }
};

TEST_F(FileReaderTest, AnyPieceOfAnyTensor) {
  const FileReader file(save_three());
  EXPECT_EQ(read(file, "c", 0, 4), "\x38\x40\x44\x48");
  EXPECT_EQ(read(file, "c", 1, 2), "\x40\x44");
  EXPECT_EQ(read(file, "c", 3, 1), "\x48");
  EXPECT_EQ(read(file, "c", 4, 0), "");
  EXPECT_EQ(read(file, "p", 2, 1), "\x54");
  for (const auto& [offset, bytes] : std::vector<std::pair<std::uint64_t, std::size_t>>{
           {0, 5}, {4, 1}, {5, 0}, {UINT64_MAX, 1}, {UINT64_MAX - 1, 2}}) {
    EXPECT_NE(message_of([&] { (void)read(file, "c", offset, bytes); }).find("has 4 bytes, but"),
              std::string::npos);
  }
}

TEST_F(FileReaderTest, WholeTensors) {
  const FileReader file(save_three());
  const Tensor w = file.read_tensor(file.at("w"));
  EXPECT_EQ(w.dtype(), DType::f32);
  EXPECT_EQ(w.shape(), Shape({2}));
  EXPECT_EQ(w.span<float>()[0], 1.0F);
  EXPECT_EQ(w.span<float>()[1], 2.0F);
  const Tensor c = file.read_tensor(file.at("c"));
  EXPECT_EQ(c.format(), e4m3fn);
  EXPECT_EQ(c.span<std::uint8_t>()[3], 0x48);
  const Tensor p = file.read_tensor(file.at("p"));
  EXPECT_EQ(p.format(), e2m1fn);
  EXPECT_TRUE(p.view().packed);
  EXPECT_EQ(p.bytes().size(), 3U);
}

TEST_F(FileReaderTest, PackedRowsThatDoNotEndOnAByte) {
  const FileReader file(save_three("[2,3]"));
  EXPECT_NE(message_of([&] { (void)file.read_tensor(file.at("p")); }, ErrorCode::unsupported)
                .find("tensor 'p' packs rows of shape [2, 3] across bytes"),
            std::string::npos);
  EXPECT_EQ(read(file, "p", 0, 3), "\x10\x32\x54");
}

TEST_F(FileReaderTest, TensorsOctavoHasNoArraysOf) {
  const FileReader file(save(
      "odd",
      file_text(R"({"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                R"("deep":{"dtype":"U8","shape":[1],"data_offsets":[8,9]},)"
                R"("rank":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[9,13]},)"
                R"("long":{"dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[13,13]},)"
                R"("wide":{"dtype":"F32","shape":[0,4611686018427387904,4],)"
                R"("data_offsets":[13,13]}})",
                std::string(13, '\0'))));
  const auto message = [&](std::string_view name) {
    return message_of([&] { (void)file.read_tensor(file.at(name)); }, ErrorCode::unsupported);
  };
  EXPECT_NE(message("i").find("holds I64; expected floating point"), std::string::npos);
  EXPECT_NE(message("deep").find("holds U8"), std::string::npos);
  EXPECT_NE(message("rank").find("expected at most 8 sizes"), std::string::npos);
  EXPECT_NE(message("long").find("a product below 2^60"), std::string::npos);
  EXPECT_NE(message("wide").find("a product below 2^60"), std::string::npos);
}

TEST_F(FileReaderTest, WhatCannotBeOpened) {
  const auto message = [](const std::string& path) {
    return message_of([&] { const FileReader file(path); }, ErrorCode::io);
  };
  EXPECT_NE(message(path("nothing")).find("could not open"), std::string::npos);
  EXPECT_NE(message(path("nothing")).find("No such file"), std::string::npos);
  EXPECT_NE(message(folder).find("is a folder; expected a plain file"), std::string::npos);
  EXPECT_NE(message("/dev/zero").find("is a device or pipe"), std::string::npos);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_NE(message(path("pipe")).find("is a device or pipe"), std::string::npos);  // no blocking
}

TEST_F(FileReaderTest, DamagedFilesAreNamed) {
  EXPECT_NE(message_of([&] {
              const FileReader file(save("short", "abc"));
            }).find("short' has 3 bytes; expected at least 8"),
            std::string::npos);
  EXPECT_NE(message_of([&] { const FileReader file(save("empty", "")); }).find("has 0 bytes"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              const FileReader file(save("claims", length_text(99'000'000) + "{}"));
            }).find("but has only 2 after the length"),
            std::string::npos);
  EXPECT_THROW(FileReader(save("space", file_text(" {}")), {.strict = true}), Error);
  // No file descriptor leaks after a failure.
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  for (int i = 0; i < 10; ++i) EXPECT_THROW(FileReader(path("short")), Error);
  EXPECT_EQ(open_files(), before);
}

TEST_F(FileReaderTest, AFileThatShrinksIsAnErrorAndNoSignal) {
  const std::string name = save_three();
  const FileReader file(name);
  ASSERT_EQ(truncate(name.c_str(), static_cast<off_t>(file.header().data_begin + 6)), 0);
  EXPECT_EQ(read(file, "w", 0, 4), std::string("\0\0\x80\x3f", 4));
  std::string out(8, '\0');
  EXPECT_NE(message_of([&] { file.read(file.at("w"), 0, std::as_writable_bytes(std::span(out))); },
                       ErrorCode::io)
                .find("was changed while it was read"),
            std::string::npos);
  EXPECT_THROW((void)file.read_tensor(file.at("c")), Error);
}

TEST_F(FileReaderTest, NamesThatAreNotThere) {
  const FileReader file(save_three());
  EXPECT_EQ(file.find("x"), nullptr);
  EXPECT_NE(message_of([&] { (void)file.at("x"); }).find("has no tensor 'x'"), std::string::npos);
  TensorEntry other = file.at("w");
  other.end = 1000;
  std::byte byte{};
  EXPECT_NE(message_of([&] {
              file.read(other, 900, {&byte, 1});
            }).find("take it from this file"),
            std::string::npos);
}

TEST_F(FileReaderTest, CanBeMoved) {
  FileReader first(save_three());
  FileReader second(std::move(first));
  EXPECT_EQ(read(second, "c", 0, 1), "\x38");
  second = FileReader(save("none", file_text("{}")));
  EXPECT_TRUE(second.header().tensors.empty());
}

}  // namespace
}  // namespace octavo::safetensors
