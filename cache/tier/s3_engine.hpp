// A tier in a bucket of S3, or of a service that speaks like it. What it guarantees and which
// permissions it needs: docs/tiers.md.
#pragma once

#include <memory>

#include "cache/tier/http_client.hpp"
#include "cache/tier/open_engine.hpp"

namespace nc::tier {

inline constexpr std::uint64_t kS3WholeBytes = 32ULL << 20;  // above, an object goes in parts
inline constexpr std::uint64_t kS3PartBytes = 16ULL << 20;   // at least; at most 10,000 parts

// kInvalid for options that do not go together.
Result<std::unique_ptr<Engine>> open_s3(const TierAddress& address, EngineDeps deps,
                                        const std::shared_ptr<HttpClient>& http);

}  // namespace nc::tier
