#include "daemon/hit_memo.hpp"

#include <utility>

namespace nc::daemon {

void HitMemo::put(const ActionKey& key, Answer answer) {
  if (answer.text.size() > kMaxAnswer) return;
  auto kept = std::make_shared<const Answer>(std::move(answer));
  MutexLock lock(mutex_);
  const Millis now = clock_.monotonic_ms();
  if (auto it = by_key_.find(key); it != by_key_.end()) drop(it->second);
  bytes_ += kept->text.size();
  by_key_[key] = order_.insert(order_.end(), {key, std::move(kept), now + kFreshMs});
  while (!order_.empty() && (bytes_ > kMaxTotal || order_.front().fresh_until <= now)) {
    drop(order_.begin());
  }
}

std::shared_ptr<const HitMemo::Answer> HitMemo::get(const ActionKey& key) {
  MutexLock lock(mutex_);
  auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  if (it->second->fresh_until <= clock_.monotonic_ms()) {
    drop(it->second);
    return nullptr;
  }
  return it->second->answer;
}

std::size_t HitMemo::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

void HitMemo::drop(Order::iterator kept) {
  bytes_ -= kept->answer->text.size();
  by_key_.erase(kept->key);
  order_.erase(kept);
}

}  // namespace nc::daemon
