#include "client/cc/real_compiler.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "base/unique_fd.hpp"

namespace nc::cc {
namespace {

constexpr std::string_view kProgram = "neuronx-cc";

struct Found {
  RealCompiler compiler;
  bool regular = false;
};

std::optional<Found> look(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return std::nullopt;
  Found found;
  found.regular = S_ISREG(s.st_mode) && ::access(path.c_str(), X_OK) == 0;
  found.compiler.path = path;
  std::array<char, PATH_MAX> buffer;
  const char* resolved = ::realpath(path.c_str(), buffer.data());
  found.compiler.resolved = resolved != nullptr ? resolved : path;
  found.compiler.id = {s.st_dev, s.st_ino};
  found.compiler.size = static_cast<std::uint64_t>(s.st_size);
  found.compiler.mtime_ns =
      static_cast<std::int64_t>(s.st_mtim.tv_sec) * 1'000'000'000 + s.st_mtim.tv_nsec;
  return found;
}

bool same_bytes(const std::string& a, const std::string& b) {
  const UniqueFd left(::open(a.c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd right(::open(b.c_str(), O_RDONLY | O_CLOEXEC));
  if (!left.valid() || !right.valid()) return false;
  std::array<char, 65536> x;
  std::array<char, 65536> y;
  for (off_t offset = 0;;) {
    const ssize_t n = ::pread(left.get(), x.data(), x.size(), offset);
    const ssize_t m = ::pread(right.get(), y.data(), y.size(), offset);
    if (n != m || n < 0 || std::memcmp(x.data(), y.data(), static_cast<std::size_t>(n)) != 0)
      return false;
    if (n == 0) return true;
    offset += n;
  }
}

// The wrapper itself: the running file, or a copy of it.
bool is_self(const RealCompiler& candidate, const RealCompiler& self) {
  return candidate.id == self.id ||
         (candidate.size == self.size && same_bytes(candidate.resolved, self.resolved));
}

}  // namespace

Chain Chain::parse(std::string_view text) {
  Chain chain;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](auto& out) {
    const auto [next, error] = std::from_chars(at, end, out);
    const bool good = error == std::errc{};
    at = next;
    return good;
  };
  if (!number(chain.depth)) return chain;
  chain.depth = std::clamp(chain.depth, 0, kMaxChain);
  while (at < end && *at == ',') {
    FileId id;
    ++at;
    if (!number(id.device) || at >= end || *at != '.') break;
    ++at;
    if (!number(id.inode)) break;
    chain.tried.push_back(id);
  }
  return chain;
}

std::string Chain::format() const {
  std::string out = std::to_string(depth);
  for (const FileId& id : tried) out += fmt::format(",{}.{}", id.device, id.inode);
  return out;
}

bool Chain::contains(const FileId& id) const {
  return std::ranges::find(tried, id) != tried.end();
}

Result<RealCompiler> compiler_at(const std::string& path, const std::string& self,
                                 const std::string& what) {
  const auto me = look(self);
  const auto found = look(path);
  std::string trouble;
  if (!found) {
    trouble = "does not exist";
  } else if (!found->regular) {
    trouble = "is not a program that may be run";
  } else if (is_self(found->compiler, me ? me->compiler : RealCompiler{})) {
    trouble = "is the wrapper of neuroncache itself";
  } else {
    return found->compiler;
  }
  return Error{Code::kInvalid, fmt::format("{} {} {}", what, path, trouble),
               "give the path of the neuronx-cc that came with the Neuron SDK"};
}

Result<RealCompiler> find_real_compiler(const std::string& setting, const std::string& path_list,
                                        const std::string& self, const Chain& chain) {
  if (chain.depth >= kMaxChain)
    return Error{Code::kConflict,
                 fmt::format("neuronx-cc leads back to itself ({} starts in a row)", chain.depth),
                 "a program named neuronx-cc on PATH runs the wrapper again; take it off PATH or "
                 "set NEURONCACHE_REAL_CC to the neuronx-cc of the Neuron SDK"};
  if (!setting.empty())
    return compiler_at(setting, self, "the real compiler NEURONCACHE_REAL_CC =");
  const auto me = look(self);
  const RealCompiler mine = me ? me->compiler : RealCompiler{};

  std::optional<RealCompiler> again;  // tried before: a compiler that runs neuronx-cc itself
  std::size_t begin = 0;
  while (begin <= path_list.size()) {
    const std::size_t end = std::min(path_list.find(':', begin), path_list.size());
    std::string directory = path_list.substr(begin, end - begin);
    begin = end + 1;
    if (directory.empty()) directory = ".";
    const auto found = look(fmt::format("{}/{}", directory, kProgram));
    if (!found || !found->regular || is_self(found->compiler, mine)) continue;
    if (!chain.contains(found->compiler.id)) return found->compiler;
    if (found->compiler.id == chain.tried.back()) again = found->compiler;
  }
  if (again) return *again;
  if (!chain.tried.empty())
    return Error{Code::kConflict, "neuronx-cc leads back to itself, and PATH has no other",
                 "set NEURONCACHE_REAL_CC to the neuronx-cc of the Neuron SDK"};
  return Error{Code::kNotFound, "there is no neuronx-cc on PATH but the wrapper of neuroncache",
               "install the Neuron compiler, or set NEURONCACHE_REAL_CC to its path"};
}

Chain extend(Chain chain, const std::string& self, const RealCompiler& compiler) {
  const auto add = [&](const FileId& id) {
    std::erase(chain.tried, id);
    chain.tried.push_back(id);
  };
  if (const auto me = look(self)) add(me->compiler.id);
  add(compiler.id);
  ++chain.depth;
  return chain;
}

}  // namespace nc::cc
