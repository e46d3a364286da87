// What a plan and the folder it makes know their source by.
#pragma once

#include <string>
#include <vector>

#include "octavo/checkpoint/checkpoint_reader.h"

namespace octavo {

// Of the headers: names and places of all tensors, the names of the files, and config.json. No
// times, which copies of a model on several machines have of their own.
[[nodiscard]] std::string source_fingerprint(const CheckpointReader& source);

// Of the same, and of the bytes at some places of every tensor, as its file has them: the same
// model after more training has the same headers. A complete folder records it, and processes that
// share a plan compare it.
//   A place is 1 KiB. A tensor has 3 to 16, at even distances from its first bytes to its last, so
// that one of 3 to 16 KiB is seen whole; a file has 2048, or 3 for each of its tensors, but never
// more than 16384 (16 MiB), so that with over 5461 tensors some have fewer, and with over 16384
// some none.
//   What it sees: other values nearly everywhere (another training step, another cast), a tensor
// that was replaced, swapped, cleared or cut short. What it cannot see: a change between the places
// alone, such as one row of a large matrix; other files, such as a tokenizer. `source_hash` of a
// complete folder is of all values.
[[nodiscard]] std::string source_sample(const CheckpointReader& source, int threads = 0);

// Its parts: of each file of the source, and put together with source_fingerprint(). Empty of a
// shard that was deleted (checkpoint/deleted_shards_internal.h).
[[nodiscard]] std::vector<std::string> shard_samples(const CheckpointReader& source,
                                                     int threads = 0);
[[nodiscard]] std::string source_sample_of(const std::string& fingerprint,
                                           const std::vector<std::string>& shards);

}  // namespace octavo
