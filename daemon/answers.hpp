// JSON texts that several handlers send. Brings in Boost.JSON: include it from .cpp files of
// daemon/ only.
#pragma once

#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "cache/store.hpp"
#include "daemon/http.hpp"
#include "daemon/leases.hpp"

namespace nc::daemon {

// The answer to a look-up that hits, written by hand because every warm look-up makes one: all but
// its beginning, which the memo keeps, and the whole.
std::string hit_tail(const Hit& hit);
HttpResponse hit_answer(std::string_view tail, bool waited);
boost::json::object miss_json(const Miss& miss);
boost::json::object builder_json(const Lease& lease);
// As its builder is told of it.
boost::json::object lease_json(const Lease& lease, Millis ttl_ms);
boost::json::object failure_json(const Failure& failure);
boost::json::object entry_json(const EntryInfo& entry);
boost::json::value optional_number(const std::optional<double>& number);
HttpResponse answer(const boost::json::object& object, int status = 200);
// What became of actions that were to be queued.
struct Enqueued {
  std::size_t queued = 0, already = 0, built = 0, lost = 0;
};
HttpResponse enqueued_answer(const Enqueued& sums);

// Appends `text` as a JSON string.
void append_json(std::string& out, std::string_view text);

}  // namespace nc::daemon
