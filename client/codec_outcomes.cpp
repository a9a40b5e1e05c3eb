// Outcomes of a recording as JSON.
#include "client/codec.hpp"

namespace nc::client::codec {
namespace {

namespace bj = json::bj;

MissReason reason_of(const bj::object& o) {
  MissReason reason;
  reason.cause = json::text(o, "cause");
  const bj::object* nearest = json::object(o, "nearest");
  if (nearest == nullptr) return reason;
  NearestEntry near;
  near.key = json::text(*nearest, "key");
  if (const bj::array* differs = json::array(*nearest, "differs")) {
    for (const bj::value& item : *differs) {
      const bj::array* three = item.if_array();
      if (three == nullptr || three->size() != 3) continue;
      const auto word = [&](std::size_t i) {
        const auto* s = (*three)[i].if_string();
        return s == nullptr ? std::string() : std::string(*s);
      };
      near.differs.push_back({word(0), word(1), word(2)});
    }
  }
  reason.nearest = std::move(near);
  return reason;
}

}  // namespace

OutcomePage outcome_page(const bj::object& o) {
  OutcomePage page;
  if (const bj::array* list = json::array(o, "outcomes")) {
    for (const bj::value& item : *list) {
      const bj::object* one = item.if_object();
      if (one == nullptr) continue;
      ActionOutcome out;
      out.key = json::text(*one, "key");
      out.outcome = json::text(*one, "outcome");
      out.kind = json::text(*one, "kind");
      out.label = json::text(*one, "label");
      out.program = json::text(*one, "program");
      out.compiler = json::text(*one, "compiler");
      out.build_ms = json::natural(*one, "build_ms");
      out.failure_class = json::text(*one, "class");
      out.message = json::text(*one, "message");
      out.log_line = json::text(*one, "log_line");
      out.miss = reason_of(*one);
      out.first_ms = json::integer(*one, "first_ms");
      out.last_ms = json::integer(*one, "last_ms");
      page.outcomes.push_back(std::move(out));
    }
  }
  if (std::string next = json::text(o, "next"); !next.empty()) page.next = std::move(next);
  return page;
}

}  // namespace nc::client::codec
