// A bare RocksDB with the index's own options, for benches alone: what a durable write and a read
// cost at least on this machine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace nc {

class BenchFloor {
 public:
  static Result<BenchFloor> open(const std::string& dir);  // created; the caller removes it
  BenchFloor(BenchFloor&&) noexcept;
  BenchFloor& operator=(BenchFloor&&) noexcept;
  ~BenchFloor();
  Status put(std::string_view key, std::string_view value, bool sync);
  Result<std::optional<std::string>> get(std::string_view key);

 private:
  struct Impl;
  explicit BenchFloor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nc
