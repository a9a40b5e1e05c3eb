#include "cache/tier/memory_engine.hpp"

#include <algorithm>
#include <numeric>

#include "cache/tier/layout.hpp"

namespace nc::tier {
namespace {

constexpr std::size_t kPiece = 16 << 10;  // of a body that streams

Error not_there(const std::string& name) {
  return {Code::kNotFound, "there is no " + name, ""};
}

Error over(const std::string& name, std::uint64_t limit) {
  return {Code::kTooLarge, name + " is over " + std::to_string(limit) + " bytes", ""};
}

Error failure(Code code) {
  return {code, "the tier failed as a test wants it", ""};
}

Result<std::string> read_whole(Source& source) {
  std::string bytes(source.size(), '\0');
  std::uint64_t at = 0;
  while (at < bytes.size()) {
    NC_ASSIGN(const auto got,
              source.read_at(at, std::as_writable_bytes(std::span(bytes)).subspan(at)));
    if (got == 0) return Error{Code::kCorrupt, "the source is shorter than it said", ""};
    at += got;
  }
  return bytes;
}

}  // namespace

// ---- MemoryObjects ----

void MemoryObjects::forget_expired() {
  const auto now = clock_.monotonic_ms();
  std::erase_if(objects_, [&](const auto& item) {
    return item.second.until_ms > 0 && item.second.until_ms <= now;
  });
}

std::optional<MemoryObjects::Object> MemoryObjects::get(const std::string& name) {
  MutexLock lock(mutex_);
  forget_expired();
  const auto it = objects_.find(name);
  if (it == objects_.end()) return std::nullopt;
  return it->second.object;
}

void MemoryObjects::put(const std::string& name, std::string bytes) {
  MutexLock lock(mutex_);
  objects_[name] = {{std::move(bytes), clock_.wall_ms()}, 0};
}

bool MemoryObjects::create(const std::string& name, std::string bytes, Millis keep_ms) {
  MutexLock lock(mutex_);
  forget_expired();
  const Millis until = keep_ms > 0 ? clock_.monotonic_ms() + keep_ms : 0;
  return objects_.try_emplace(name, Kept{{std::move(bytes), clock_.wall_ms()}, until}).second;
}

void MemoryObjects::remove(const std::string& name) {
  MutexLock lock(mutex_);
  objects_.erase(name);
}

Page MemoryObjects::list(const std::string& prefix, const std::string& after, std::size_t limit) {
  MutexLock lock(mutex_);
  forget_expired();
  Page page;
  auto it = after < prefix ? objects_.lower_bound(prefix) : objects_.upper_bound(after);
  for (; it != objects_.end() && it->first.starts_with(prefix); ++it) {
    if (page.objects.size() == limit) {
      page.next = page.objects.empty() ? std::string() : page.objects.back().name;
      break;
    }
    page.objects.push_back(
        {it->first, it->second.object.bytes.size(), it->second.object.modified_ms});
  }
  return page;
}

std::vector<std::string> MemoryObjects::names() {
  MutexLock lock(mutex_);
  forget_expired();
  std::vector<std::string> all;
  for (const auto& [name, kept] : objects_) all.push_back(name);
  return all;
}

std::uint64_t MemoryObjects::bytes() {
  MutexLock lock(mutex_);
  return std::accumulate(
      objects_.begin(), objects_.end(), std::uint64_t{0},
      [](std::uint64_t sum, const auto& item) { return sum + item.second.object.bytes.size(); });
}

// ---- MemoryEngine ----

MemoryEngine::MemoryEngine(std::shared_ptr<MemoryObjects> objects, Options options)
    : objects_(std::move(objects)), options_(std::move(options)) {}

void MemoryEngine::script(Call call, Fault fault, std::size_t times) {
  MutexLock lock(mutex_);
  auto& queue = script_[static_cast<std::size_t>(call)];
  queue.insert(queue.end(), times, fault);
}

void MemoryEngine::script_all(const Fault& fault, std::size_t times) {
  for (std::size_t call = 0; call < kCalls; ++call) script(static_cast<Call>(call), fault, times);
}

void MemoryEngine::clear_script() {
  MutexLock lock(mutex_);
  for (auto& queue : script_) queue.clear();
}

void MemoryEngine::set_down(std::optional<Code> code) {
  MutexLock lock(mutex_);
  down_ = code;
}

std::uint64_t MemoryEngine::calls() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
}

Result<std::optional<Fault>> MemoryEngine::begin(Call call) {
  ++counts_[static_cast<std::size_t>(call)];
  std::optional<Fault> fault;
  std::optional<Code> down;
  {
    MutexLock lock(mutex_);
    auto& queue = script_[static_cast<std::size_t>(call)];
    if (!queue.empty()) {
      fault = std::move(queue.front());
      queue.pop_front();
    }
    down = down_;
  }
  if (fault && fault->kind == Fault::Kind::kFail) return failure(fault->code);
  if (fault && fault->kind == Fault::Kind::kDelay) {
    if (options_.wait) options_.wait(std::min(fault->delay_ms, options_.timeout_ms));
    if (fault->delay_ms >= options_.timeout_ms) return failure(Code::kTimeout);
    fault.reset();
  }
  if (fault && fault->kind == Fault::Kind::kAbsent) return failure(Code::kNotFound);
  if (down) return failure(*down);
  return fault;
}

Status MemoryEngine::may_write(std::uint64_t size) {
  if (read_only_) return failure(Code::kReadOnly);
  if (options_.max_bytes > 0 && objects_->bytes() + size > options_.max_bytes) {
    return failure(Code::kNoSpace);
  }
  return {};
}

Result<std::string> MemoryEngine::body(Call call, const std::string& name, std::uint64_t limit,
                                       bool* broken) {
  NC_TRY(check_name(name));
  NC_ASSIGN(const auto fault, begin(call));
  const bool other = fault && fault->kind == Fault::Kind::kOther;
  auto object = objects_->get(other ? fault->other : name);
  if (!object) return not_there(name);
  std::string bytes = std::move(object->bytes);
  if (fault) {
    switch (fault->kind) {
      case Fault::Kind::kShort:
        *broken = true;
        [[fallthrough]];
      case Fault::Kind::kTruncated:
        bytes.resize(bytes.size() / 2);
        break;
      case Fault::Kind::kGarbage:
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          bytes[i] =
              static_cast<char>(i * 31 + 7) != bytes[i] ? static_cast<char>(i * 31 + 7) : '!';
        }
        break;
      case Fault::Kind::kLonger:
        bytes.append(1000, 'x');
        break;
      case Fault::Kind::kLost:
        return failure(fault->code);
      default:
        break;
    }
  }
  if (bytes.size() > limit) return over(name, limit);
  return bytes;
}

Result<std::string> MemoryEngine::get(const std::string& name, std::uint64_t limit) {
  bool broken = false;
  auto bytes = body(Call::kGet, name, limit, &broken);
  if (bytes.ok() && broken) return failure(Code::kCorrupt);
  return bytes;
}

Result<std::uint64_t> MemoryEngine::fetch(const std::string& name, std::uint64_t offset,
                                          std::uint64_t limit, const Sink& sink) {
  bool broken = false;
  NC_ASSIGN(const auto bytes, body(Call::kFetch, name, limit, &broken));
  if (offset > bytes.size()) return failure(Code::kCorrupt);
  for (std::uint64_t at = offset; at < bytes.size(); at += kPiece) {
    NC_TRY(sink(as_bytes(std::string_view(bytes).substr(at, kPiece))));
  }
  if (broken) return failure(Code::kCorrupt);
  return std::uint64_t{bytes.size()};
}

Result<ObjectInfo> MemoryEngine::head(const std::string& name) {
  NC_TRY(check_name(name));
  NC_TRY(begin(Call::kHead));
  const auto object = objects_->get(name);
  if (!object) return not_there(name);
  return ObjectInfo{name, object->bytes.size(), object->modified_ms};
}

Status MemoryEngine::put(const std::string& name, Bytes bytes) {
  NC_TRY(check_name(name));
  NC_ASSIGN(const auto fault, begin(Call::kPut));
  NC_TRY(may_write(bytes.size()));
  objects_->put(name, std::string(as_text(bytes)));
  return fault && fault->kind == Fault::Kind::kLost ? Status(failure(fault->code)) : Status();
}

Status MemoryEngine::store(const std::string& name, Source& source) {
  NC_TRY(check_name(name));
  NC_ASSIGN(const auto fault, begin(Call::kStore));
  NC_TRY(may_write(source.size()));
  NC_ASSIGN(auto bytes, read_whole(source));
  objects_->put(name, std::move(bytes));
  return fault && fault->kind == Fault::Kind::kLost ? Status(failure(fault->code)) : Status();
}

Result<bool> MemoryEngine::create(const std::string& name, Bytes bytes, Millis keep_ms) {
  NC_TRY(check_name(name));
  NC_ASSIGN(const auto fault, begin(Call::kCreate));
  if (!options_.capabilities.exclusive_create) return failure(Code::kUnsupported);
  NC_TRY(may_write(bytes.size()));
  const bool made = objects_->create(name, std::string(as_text(bytes)), keep_ms);
  if (fault && fault->kind == Fault::Kind::kLost) return failure(fault->code);
  return made;
}

Status MemoryEngine::remove(const std::string& name) {
  NC_TRY(check_name(name));
  NC_ASSIGN(const auto fault, begin(Call::kRemove));
  if (!options_.capabilities.remove) return failure(Code::kUnsupported);
  if (read_only_) return failure(Code::kReadOnly);
  objects_->remove(name);
  return fault && fault->kind == Fault::Kind::kLost ? Status(failure(fault->code)) : Status();
}

Result<Page> MemoryEngine::list(const std::string& prefix, const std::string& after,
                                std::size_t limit) {
  NC_TRY(check_prefix(prefix));
  NC_TRY(begin(Call::kList));
  if (!options_.capabilities.list) return failure(Code::kUnsupported);
  return objects_->list(prefix, after, limit);
}

}  // namespace nc::tier
