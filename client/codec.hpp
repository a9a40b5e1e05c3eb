// The protocol's JSON <-> client/types.hpp. Internal to client/.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "client/bucket_types.hpp"
#include "client/build_types.hpp"
#include "client/json.hpp"
#include "client/outcome_types.hpp"
#include "client/types.hpp"
#include "client/work_types.hpp"

namespace nc::client::codec {

// Requests.
std::string acquire_body(const AcquireRequest& request);
std::string heartbeat_body(const Lease& lease, const BuildStatus& status);
std::string admission_body(const Lease& lease, const AdmissionRequest& request);
std::string fail_body(const Lease& lease, const FailReport& report);
std::string bypass_body(std::string_view name_space, std::string_view reason,
                        std::string_view ticket, std::uint64_t count);
std::string prune_body(const PruneRequest& request);
std::string filter_query(const EntryFilter& filter);  // "namespace=a&older_than_s=3600", escaped
std::string manifest_text(const EntryManifest& manifest);

// Answers. kInvalid when what must be there is not.
Result<Acquired> acquired(const json::bj::object& o, const ActionKey& key);
Result<Admission> admission(const json::bj::object& o);
Result<EntryManifest> manifest(const json::bj::object& o);
std::string record_body(const RecordedAction& record);
Result<RecordedAction> recorded_action(const json::bj::object& o);
std::vector<RecordingInfo> recordings(const json::bj::object& o);
RecordedPage recorded_page(const json::bj::object& o);
Enqueued enqueued(const json::bj::object& o);
QueuePage queue_page(const json::bj::object& o);
ClusterQueuePage cluster_queue_page(const json::bj::object& o);
Result<Taken> taken(const json::bj::object& o);
OutcomePage outcome_page(const json::bj::object& o);
BuildsInfo builds(const json::bj::object& o);
Hello hello(const json::bj::object& o);
FailureInfo failure(const json::bj::object& o);
Stats stats(const json::bj::object& o);
EntrySummary entry(const json::bj::object& o);
EntryPage entry_page(const json::bj::object& o);
Result<EntryDetails> entry_details(const json::bj::object& o);
PruneAnswer prune_answer(const json::bj::object& o);
VerifyPage verify_page(const json::bj::object& o);
std::vector<MissRecord> misses(const json::bj::object& o);
std::vector<BucketProgram> bucket_programs(const json::bj::object& o);
std::vector<LeaseInfo> leases(const json::bj::object& o);
std::vector<ConfigValue> config(const json::bj::object& o);
Error error(int status, std::string_view body, std::string_view target);

// Percent-encodes everything but unreserved characters.
std::string escape(std::string_view text);

}  // namespace nc::client::codec
