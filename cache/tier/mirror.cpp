#include "cache/tier/mirror.hpp"

#include <algorithm>
#include <limits>

#include "base/filesystem.hpp"
#include "cache/tier/open_engine.hpp"

namespace nc::tier {
namespace {

constexpr std::size_t kPage = 1'000;

Status copy(Engine& engine, const ObjectInfo& object, const std::string& path, Mirrored& sums) {
  FileSystem& files = real_filesystem();
  NC_TRY(files.make_dirs(parent_dir(path)));
  NC_ASSIGN(const auto file, files.open(path, FileSystem::Open::kCreateNew));
  NC_ASSIGN(const auto size, engine.fetch(object.name, 0, std::numeric_limits<std::int64_t>::max(),
                                          [&](Bytes bytes) { return file->write(bytes); }));
  ++sums.objects;
  sums.bytes += size;
  return {};
}

}  // namespace

bool is_path(std::string_view name) {
  constexpr std::size_t kLongest = 1'024;
  constexpr std::size_t kLongestPart = 255;
  if (name.empty() || name.size() > kLongest || name.find('\0') != std::string_view::npos)
    return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > kLongestPart) return false;
    begin = end + 1;
  }
  return true;
}

Result<Mirrored> mirror(Engine& engine, const std::string& directory) {
  Mirrored sums;
  std::string after;
  while (true) {
    NC_ASSIGN(const Page page, engine.list("", after, kPage));
    for (const ObjectInfo& object : page.objects) {
      if (!is_path(object.name)) {
        ++sums.left_out;
        continue;
      }
      const Status copied = copy(engine, object, join(directory, object.name), sums);
      // Somebody removed it meanwhile; of a name and another one below it only one can be a file.
      if (copied.is(Code::kNotFound) || copied.is(Code::kConflict)) {
        ++sums.left_out;
      } else if (!copied.ok()) {
        return copied.error();
      }
    }
    if (page.next.empty()) return sums;
    after = page.next;
  }
}

Result<Mirrored> mirror_bucket(const std::string& url, const std::string& directory) {
  NC_ASSIGN(TierAddress address, parse_tier_url(url));
  if (address.scheme != TierAddress::Scheme::kS3)
    return Error{Code::kInvalid, address.shown + " is no bucket", "give s3://BUCKET/PREFIX"};
  address.any_names = true;
  NC_ASSIGN(const auto engine, open_engine(address));
  return mirror(*engine, directory);
}

}  // namespace nc::tier
