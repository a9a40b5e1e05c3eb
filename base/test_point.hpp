// Named points in publish, evict, prune and open where a test can kill the process or fail. The
// product never sets the hook: a pass then costs one relaxed load.
#pragma once

#include <atomic>

namespace nc {

using TestPointHook = void (*)(const char* name);
inline std::atomic<TestPointHook> g_test_point_hook{nullptr};

inline void test_point(const char* name) {
  if (auto* hook = g_test_point_hook.load(std::memory_order_relaxed)) hook(name);
}

}  // namespace nc
