// Clang's thread-safety annotations; empty elsewhere. `./x lint` checks them with Clang 14.
#pragma once

#include <mutex>

#if defined(__clang__)
#define NC_TSA(x) __attribute__((x))
#else
#define NC_TSA(x)
#endif
#define NC_CAPABILITY(name) NC_TSA(capability(name))
#define NC_SCOPED_CAPABILITY NC_TSA(scoped_lockable)
#define NC_GUARDED_BY(x) NC_TSA(guarded_by(x))
#define NC_PT_GUARDED_BY(x) NC_TSA(pt_guarded_by(x))
#define NC_REQUIRES(...) NC_TSA(requires_capability(__VA_ARGS__))
#define NC_EXCLUDES(...) NC_TSA(locks_excluded(__VA_ARGS__))
#define NC_ACQUIRE(...) NC_TSA(acquire_capability(__VA_ARGS__))
#define NC_RELEASE(...) NC_TSA(release_capability(__VA_ARGS__))
#define NC_NO_THREAD_SAFETY_ANALYSIS NC_TSA(no_thread_safety_analysis)

namespace nc {

// std::mutex with annotations; use with MutexLock, and as BasicLockable with
// std::condition_variable_any.
class NC_CAPABILITY("mutex") Mutex {
 public:
  void lock() NC_ACQUIRE() { mutex_.lock(); }
  void unlock() NC_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class NC_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) NC_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() NC_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace nc
