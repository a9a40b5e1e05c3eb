// Names of the protocol, version 1, shared by every C++ client and the daemon (docs/protocol.md is
// the reference).
#pragma once

#include <string>
#include <string_view>

#include "base/hash.hpp"

namespace nc::protocol {

inline constexpr int kVersion = 1;
inline constexpr int kMinVersion = 1;
inline constexpr std::string_view kVersionHeader = "X-Neuroncache-Protocol";
inline constexpr std::string_view kJsonType = "application/json";
inline constexpr std::string_view kBytesType = "application/octet-stream";

// Targets. Those that end in '/' take a key, digest or lease id.
inline constexpr std::string_view kHello = "/v1/hello";
inline constexpr std::string_view kActions = "/v1/actions/";
inline constexpr std::string_view kBlobs = "/v1/blobs/";
inline constexpr std::string_view kLeases = "/v1/leases";
inline constexpr std::string_view kAdmission = "/v1/admission";
inline constexpr std::string_view kBuilds = "/v1/builds";
inline constexpr std::string_view kRecordings = "/v1/recordings";
inline constexpr std::string_view kQueue = "/v1/queue";
inline constexpr std::string_view kTakeJob = "/v1/queue/take";
inline constexpr std::string_view kClusterQueue = "/v1/queue/cluster";
inline constexpr std::string_view kBypass = "/v1/bypass";
inline constexpr std::string_view kStats = "/v1/stats";
inline constexpr std::string_view kEntries = "/v1/entries";
inline constexpr std::string_view kPrune = "/v1/prune";
inline constexpr std::string_view kVerify = "/v1/verify";
inline constexpr std::string_view kTiers = "/v1/tiers";
inline constexpr std::string_view kPins = "/v1/pins";
inline constexpr std::string_view kBuckets = "/v1/buckets";
inline constexpr std::string_view kMisses = "/v1/misses";
inline constexpr std::string_view kConfig = "/v1/config";
inline constexpr std::string_view kShutdown = "/v1/shutdown";

// `state` of an answer to acquire.
namespace state {
inline constexpr std::string_view kHit = "hit";
inline constexpr std::string_view kMiss = "miss";
inline constexpr std::string_view kLease = "lease";
inline constexpr std::string_view kBuilding = "building";
inline constexpr std::string_view kFailed = "failed";
// Of an answer to a request for admission.
inline constexpr std::string_view kAdmitted = "admitted";
inline constexpr std::string_view kWaiting = "waiting";
// Of an answer to a worker.
inline constexpr std::string_view kJob = "job";
}  // namespace state

// `intent` of a request to acquire.
namespace intent {
inline constexpr std::string_view kBuild = "build";
inline constexpr std::string_view kLookup = "lookup";
}  // namespace intent

}  // namespace nc::protocol
