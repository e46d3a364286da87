// Symbolic links, pipes and sockets in the folder of a model: what is followed, and what is refused
// before anything is read.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include "octavo/base/file_error.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/checkpoint_testing_internal.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

class LinksTest : public CheckpointTest {
 protected:
  void write_model(const std::string& name) const {
    fs::create_directories(root / name);
    write_tensors(path(name + "/model.safetensors"), {random_tensor("a", {4}, 1)});
    save(name + "/config.json", "{}");
    save(name + "/tokenizer.json", "{}");
  }
  // As huggingface_hub lays a model out: every file of the snapshot is a link to a blob.
  [[nodiscard]] std::string write_cache() const {
    const std::string model = "hub/models--a--b/", snapshot = model + "snapshots/0123abcd";
    write_model(snapshot);
    save(snapshot + "/1_Pooling/config.json", R"({"pooling": 1})");
    save(snapshot + "/a/b/vocab.txt", "x");
    fs::create_directories(root / (model + "blobs"));
    int blob = 0;
    for (const char* const name : {"model.safetensors", "config.json", "tokenizer.json",
                                   "1_Pooling/config.json", "a/b/vocab.txt"}) {
      const fs::path file = root / snapshot / name;
      const fs::path target = root / (model + "blobs") / std::to_string(blob++);
      fs::rename(file, target);
      fs::create_symlink(target.lexically_relative(file.parent_path()), file);
    }
    return snapshot;
  }
  void link(const std::string& target, const std::string& name) const {
    fs::create_directories((root / name).parent_path());
    fs::create_symlink(target, root / name);
  }
  [[nodiscard]] CheckpointReader open(const std::string& name,
                                      OtherFiles others = OtherFiles::copied) const {
    return CheckpointReader(path(name), others);
  }
  // The message, and what the error says besides.
  [[nodiscard]] std::string refused(const std::string& name, int number, const std::string& file,
                                    OtherFiles others = OtherFiles::copied) const {
    try {
      (void)open(name, others);
    } catch (const FileError& error) {
      EXPECT_EQ(error.number(), number) << error.what();
      EXPECT_EQ(error.file(), path(file)) << error.what();
      return error.what();
    }
    ADD_FAILURE() << name << " is not refused";
    return "";
  }
  [[nodiscard]] static std::string notes_of(const CheckpointReader& reader) {
    std::string notes;
    for (const std::string& note : reader.notes()) notes += note + "\n";
    return notes;
  }
  using Names = std::vector<std::string>;
};

TEST_F(LinksTest, ASnapshotOfACacheHasAllItsFiles) {
  const std::string snapshot = write_cache();
  const Names all{"tokenizer.json", "1_Pooling/config.json", "a/b/vocab.txt"};
  EXPECT_EQ(open(snapshot).other_files(), all);
  EXPECT_EQ(notes_of(open(snapshot)), "");
  // By a link to the snapshot, and from inside it.
  link(path(snapshot), "short");
  EXPECT_EQ(open("short").other_files(), all);
  const fs::path before = fs::current_path();
  fs::current_path(path(snapshot));
  EXPECT_EQ(CheckpointReader(".", OtherFiles::copied).other_files(), all);
  fs::current_path(before);
  // A part of it, as text_encoder of a diffusion model is.
  write_model("part");
  fs::create_directory(root / snapshot / "text_encoder");
  fs::rename(path("part/model.safetensors"), path("hub/models--a--b/blobs/part"));
  link("../../../blobs/part", snapshot + "/text_encoder/model.safetensors");
  EXPECT_EQ(open(snapshot + "/text_encoder").tensors().size(), 1U);
}

TEST_F(LinksTest, ALinkThatLeavesTheCacheIsRefused) {
  const std::string snapshot = write_cache();
  save("hub/models--c/blobs/secret", "s");
  for (const std::string name : {"special_tokens.json", "1_Pooling/more.json", ".gitattributes"}) {
    link(path("hub/models--c/blobs/secret"), snapshot + "/" + name);
    const std::string message = refused(snapshot, ELOOP, snapshot + "/" + name);
    EXPECT_TRUE(has(message, "is a link to") && has(message, "option follow_links") &&
                has(message, "models--a--b', and would be copied"))
        << message;
    EXPECT_FALSE(open(snapshot, OtherFiles::unused).other_files().empty());
    const Names followed = open(snapshot, OtherFiles::copied_with_links).other_files();
    EXPECT_NE(std::find(followed.begin(), followed.end(), name), followed.end()) << name;
    fs::remove(path(snapshot + "/" + name));
  }
}

TEST_F(LinksTest, APlainFolderHoldsItsLinks) {
  write_model("model");
  link("tokenizer.json", "model/same.json");
  link("../tokenizer.json", "model/sub/same.json");
  EXPECT_EQ(open("model").other_files(), (Names{"same.json", "tokenizer.json", "sub/same.json"}));
  save("secret", "s");
  // A prefix of the folder's name is not the folder.
  save("model2/secret", "s");
  for (const std::string target : {"../secret", "../model2/secret", "/etc/passwd"}) {
    link(target, "model/vocab.json");
    EXPECT_TRUE(has(refused("model", ELOOP, "model/vocab.json"), "'" + target + "'"));
    fs::remove(path("model/vocab.json"));
  }
  // Through a link that stays inside.
  link("../secret", "model/one.json");
  link("one.json", "model/two.json");
  EXPECT_TRUE(has(refused("model", ELOOP, "model/one.json"), "outside of"));
}

TEST_F(LinksTest, WeightsAndConfigMayNotLeaveEither) {
  for (const std::string name : {"model.safetensors", "config.json"}) {
    write_model("model");
    write_model("other");
    fs::remove(path("model/" + name));
    link("../other/" + name, "model/" + name);
    EXPECT_TRUE(has(refused("model", ELOOP, "model/" + name), "and would be read"));
    EXPECT_EQ(open("model", OtherFiles::copied_with_links).tensors().size(), 1U);
    EXPECT_EQ(open("model", OtherFiles::unused).tensors().size(), 1U);
    fs::remove_all(path("model"));
  }
  // What is never copied may lead anywhere.
  write_model("model");
  link("/etc/passwd", "model/pytorch_model.bin");
  EXPECT_TRUE(has(notes_of(open("model")), "'pytorch_model.bin' holds other weights"));
}

TEST_F(LinksTest, BrokenLinksAndLoopsAreNamed) {
  write_model("model");
  link("../nowhere", "model/vocab.json");
  EXPECT_TRUE(
      has(refused("model", ENOENT, "model/vocab.json"), "'../nowhere', which is not there"));
  EXPECT_TRUE(has(notes_of(open("model", OtherFiles::unused)), "'vocab.json' is a link to"));
  fs::remove(path("model/vocab.json"));
  link("b.json", "model/a.json");
  link("a.json", "model/b.json");
  EXPECT_TRUE(has(refused("model", ELOOP, "model/a.json"), "which leads back to it"));
  fs::remove(path("model/a.json"));
  fs::remove(path("model/b.json"));
  link("gone", "model/.#lock");  // of an editor
  link("gone", "model/x.bin");   // weights that are left out anyway
  EXPECT_TRUE(has(notes_of(open("model")), "'x.bin' is a link to 'gone'"));
  // What the reader itself needs is an error for every caller.
  fs::remove(path("model/config.json"));
  link("gone", "model/config.json");
  EXPECT_TRUE(has(refused("model", ENOENT, "model/config.json", OtherFiles::unused), "'gone'"));
  fs::remove(path("model/config.json"));
  fs::remove(path("model/model.safetensors"));
  link("gone", "model/model.safetensors");
  EXPECT_TRUE(
      has(refused("model", ENOENT, "model/model.safetensors", OtherFiles::unused), "'gone'"));
}

TEST_F(LinksTest, LinksToFoldersAreFollowedAndEndWhereTheyBegan) {
  write_model("model");
  save("model/real/x.txt", "x");
  link("real", "model/again");
  link("..", "model/real/up");
  link(".", "model/real/here");
  save("model/p/x.txt", "x");
  link("../q", "model/p/to_q");
  save("model/q/y.txt", "y");
  link("../p", "model/q/to_p");
  const CheckpointReader reader = open("model");
  EXPECT_EQ(reader.other_files(), (Names{"tokenizer.json", "again/x.txt", "p/to_q/y.txt", "p/x.txt",
                                         "q/to_p/x.txt", "q/y.txt", "real/x.txt"}));
  for (const char* const name : {"real/up", "real/here", "again/here", "p/to_q/to_p"})
    EXPECT_TRUE(has(notes_of(reader), text("'", name, "' is a link to a folder that holds it")))
        << name << notes_of(reader);
  save("elsewhere/z.txt", "z");
  link("../elsewhere", "model/far");
  EXPECT_TRUE(has(refused("model", ELOOP, "model/far"), "would be copied"));
  const Names followed = open("model", OtherFiles::copied_with_links).other_files();
  EXPECT_NE(std::find(followed.begin(), followed.end(), "far/z.txt"), followed.end());
  // A model of its own is left out, wherever it is.
  save("elsewhere/config.json", R"({"model_type": "llama"})");
  EXPECT_TRUE(has(notes_of(open("model")), "'far' is a model of its own"));
}

// Opening a pipe blocks until it has a writer: this test would not end.
TEST_F(LinksTest, PipesAndSocketsAreNamedAndNeverOpened) {
  write_model("model");
  ASSERT_EQ(mkfifo(path("model/vocab.json").c_str(), 0600), 0);
  fs::create_directory(root / "model/sub");
  ASSERT_EQ(mkfifo(path("model/sub/pipe").c_str(), 0600), 0);
  const int socket_number = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const fs::path before = fs::current_path();
  fs::current_path(path("model"));  // a socket's name is short
  std::strcpy(address.sun_path, "here.sock");
  ASSERT_EQ(bind(socket_number, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  fs::current_path(before);
  close(socket_number);
  link("vocab.json", "model/linked.json");
  const CheckpointReader reader = open("model");
  EXPECT_EQ(reader.other_files(), Names{"tokenizer.json"});
  for (const char* const note :
       {"'vocab.json' is a pipe and is left out", "'sub/pipe' is a pipe and is left out",
        "'linked.json' is a pipe and is left out", "'here.sock' is a socket and is left out"})
    EXPECT_TRUE(has(notes_of(reader), note)) << note << notes_of(reader);
  for (const std::string name : {"config.json", "model.safetensors"}) {
    write_model("other");
    fs::remove(path("other/" + name));
    ASSERT_EQ(mkfifo(path("other/" + name).c_str(), 0600), 0);
    EXPECT_TRUE(has(refused("other", EINVAL, "other/" + name, OtherFiles::unused), "is a pipe"));
    fs::remove_all(path("other"));
  }
  link("/dev/zero", "model/zero.json");
  for (const OtherFiles others :
       {OtherFiles::unused, OtherFiles::copied, OtherFiles::copied_with_links})
    EXPECT_TRUE(has(notes_of(open("model", others)), "'zero.json' is a device and is left out"));
}

TEST_F(LinksTest, AFolderThatCannotBeListedIsAnErrorWhereItWouldBeCopied) {
  if (geteuid() == 0) GTEST_SKIP() << "root may list every folder";
  write_model("model");
  save("model/sub/x.txt", "x");
  fs::permissions(path("model/sub"), fs::perms::none);
  EXPECT_TRUE(has(refused("model", EACCES, "model/sub"), "cannot be listed"));
  EXPECT_TRUE(has(notes_of(open("model", OtherFiles::unused)), "cannot be listed"));
  fs::permissions(path("model/sub"), fs::perms::owner_all);
}

}  // namespace
}  // namespace octavo
