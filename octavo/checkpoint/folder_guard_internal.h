// FolderGuard: which files of a model's folder a caller may read and copy.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/model_folder_internal.h"

namespace octavo {

class FolderGuard {
 public:
  FolderGuard(const std::string& path, OtherFiles others);

  [[nodiscard]] const ModelFolder& folder() const { return folder_; }
  // Call before a file of the folder is read. Throws FileError for a name that is there and cannot
  // be read, and where files are copied for a link out of the folder.
  void check_read(const std::string& name) const;
  // The same for the files that are to be copied. Returns notes: what is no plain file and is left
  // out.
  [[nodiscard]] std::vector<std::string> check_copies(const std::vector<std::string>& names) const;

 private:
  void refuse_outside(const std::string& name, std::string_view use) const;

  std::string path_;
  OtherFiles others_;
  ModelFolder folder_;
};

// True for weights in any file format: they are copied in modules only.
[[nodiscard]] bool is_weights_name(std::string_view name);
// A subfolder with weights and a config is a module: "2_Dense/model.safetensors" beside
// "2_Dense/config.json". Weights without a config are another form of the model.
[[nodiscard]] bool is_module_file(const ModelFolder& folder, std::string_view name);

}  // namespace octavo
