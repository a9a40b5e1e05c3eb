// Putting stored bytes where the compiler would have put its output.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace nc::cc {

struct Placement {
  std::string path;        // of a file to copy, or
  std::string_view bytes;  // when path is empty
};

// What the bytes must be. With neither of the two only the size is looked at; with both the cheap
// one counts.
struct Expected {
  Expected(std::uint64_t s) : size(s) {}  // NOLINT(google-explicit-constructor)
  std::uint64_t size;
  std::optional<Xxh128> quick;
  std::optional<Digest> digest;
};
std::string quick_text(const Xxh128& sum);  // 32 hex digits
std::optional<Xxh128> quick_from(std::string_view text);
// Of a whole file, in pieces.
Result<Xxh128> quick_of(const std::string& path);

// Writes aside in the same directory and renames, so that nobody sees a part. Symbolic links are
// followed, an existing file keeps its permissions, a new one gets the usual ones, and devices and
// pipes are written to. Always a copy (shared by the file system where it can): what is written to
// the output later cannot reach the store. kNotFound: the source is gone. kDigestMismatch: it is
// not what it should be, and nothing of it is delivered. Other errors are those of the destination.
Status place(const Placement& from, const Expected& expected, const std::string& destination);

// The right to write to an output, among wrappers of one store: what one of them stores must not be
// what another has put there meanwhile. Held as long as the descriptor. `waiting` is called once
// when somebody else has it. Invalid where `locks` cannot be locked, and for devices and the like.
UniqueFd output_turn(const std::string& locks, const std::string& output,
                     const std::function<void()>& waiting = {});

// Whether two names are of one file, or would be.
bool same_file(const std::string& one, const std::string& other);

// The log: appended to what is there, or in its place. Errors are those of the destination.
Status place_log(std::string_view bytes, const std::string& destination, bool append);

}  // namespace nc::cc
