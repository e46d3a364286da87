// What is in a model's folder: its plain files, those of its subfolders, and where symbolic links
// lead. A folder is untrusted: a link may lead to a private file, to nothing or to a folder that
// holds it, and a name may be a pipe, which blocks its opener. Nothing is opened here but
// folders, and the config.json of a subfolder.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace octavo {

struct ModelFolder {
  // A link out of the folder.
  struct OutsideLink {
    std::string target;  // as the link has it
    bool folder = false;
  };
  // A name that cannot be read.
  struct Unreadable {
    int number = 0;   // errno
    std::string why;  // "is a link to '../x', which is not there"
  };

  std::string inside;              // the folder that links may not leave
  std::vector<std::string> files;  // plain files at the top, links followed; sorted
  std::vector<std::string> below;  // those of subfolders: "1_Pooling/config.json"; sorted
  std::map<std::string, OutsideLink> outside;    // of files and folders; by name, as above
  std::map<std::string, Unreadable> unreadable;  // broken links, folders without permission
  std::map<std::string, std::string> special;    // name to what it is: "a pipe"
  std::vector<std::string> notes;                // what of subfolders is left out, and why
};

// `leave`: look into folders that links lead to outside of this one. Hidden subfolders and what is
// hidden in subfolders are left out without a word. Throws FileError where the folder cannot be
// listed.
//
// For a snapshot in a Hugging Face cache (models--X/snapshots/REVISION, whose files are links to
// models--X/blobs), links may lead anywhere in models--X.
[[nodiscard]] ModelFolder list_model_folder(const std::string& folder, bool leave);

}  // namespace octavo
