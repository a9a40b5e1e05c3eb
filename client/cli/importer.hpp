// Puts the entries of an export file into the store, skipping what is there.
#pragma once

#include <functional>
#include <unordered_set>

#include "base/bundle.hpp"
#include "client/client.hpp"

namespace nc::cli {

struct ImportTotals {
  std::uint64_t entries = 0;  // seen in the file
  std::uint64_t imported = 0;
  std::uint64_t present = 0;  // were in the store already
  std::uint64_t blobs = 0;    // uploaded
  std::uint64_t bytes = 0;    // uploaded
};

class Importer {
 public:
  // `moved` is called with the position in the file.
  Importer(client::Client& client, BundleReader& reader, std::function<void(std::uint64_t)> moved)
      : client_(client), reader_(reader), moved_(std::move(moved)) {}

  // Until the end of the file or an error; totals() tell what was done in both cases. Every entry
  // that was whole before damage in the file is imported.
  Status run();
  const ImportTotals& totals() const { return totals_; }

 private:
  class ChunkBody;
  Status begin_entry(BundleReader::Entry entry);
  Status take_blob(BundleReader::Chunk first);
  Status finish_entry();

  client::Client& client_;
  BundleReader& reader_;
  std::function<void(std::uint64_t)> moved_;
  ImportTotals totals_;
  std::unordered_set<Digest, Sha256Hash> brought_;  // blobs that the file has given so far
  BundleReader::Entry entry_;                       // under way
  std::size_t missing_ = 0;                         // of its blobs, still to come
};

}  // namespace nc::cli
