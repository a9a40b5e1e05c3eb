#include "cache/tier/write_aside.hpp"

#include <algorithm>
#include <utility>

namespace nc::tier {

WriteAside::WriteAside(Upload& upload, std::uint64_t size) : upload_(upload) {
  if (size >= kLeast) thread_ = std::thread([this] { run(); });
}

WriteAside::~WriteAside() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status WriteAside::write(Bytes bytes) {
  if (!thread_.joinable()) return upload_.write(bytes);
  while (!bytes.empty()) {
    if (filling_.capacity() < kPiece) filling_.reserve(kPiece);
    const auto now = bytes.first(std::min(bytes.size(), kPiece - filling_.size()));
    filling_ += as_text(now);
    bytes = bytes.subspan(now.size());
    if (filling_.size() == kPiece) NC_TRY(hand_over());
  }
  return {};
}

Status WriteAside::drain() {
  if (!thread_.joinable()) return {};
  if (!filling_.empty()) NC_TRY(hand_over());
  MutexLock lock(mutex_);
  while (failed_.ok() && (writing_ || !pieces_.empty())) changed_.wait(mutex_);
  return failed_;
}

Status WriteAside::hand_over() {
  {
    MutexLock lock(mutex_);
    while (failed_.ok() && pieces_.size() >= kPieces) changed_.wait(mutex_);
    if (!failed_.ok()) return failed_;
    pieces_.push_back(std::exchange(filling_, {}));
    if (!spare_.empty()) {
      filling_ = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  changed_.notify_all();
  return {};
}

void WriteAside::run() {
  for (;;) {
    std::string piece;
    {
      MutexLock lock(mutex_);
      while (pieces_.empty() && !ending_) changed_.wait(mutex_);
      if (ending_) return;
      piece = std::move(pieces_.front());
      pieces_.pop_front();
      writing_ = true;
    }
    Status written = upload_.write(as_bytes(piece));
    piece.clear();
    {
      MutexLock lock(mutex_);
      spare_.push_back(std::move(piece));
      writing_ = false;
      if (!written.ok()) {
        failed_ = std::move(written);
        ending_ = true;
      }
    }
    changed_.notify_all();
  }
}

}  // namespace nc::tier
