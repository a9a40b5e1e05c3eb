#include "client/codec.hpp"

namespace nc::client::codec {

namespace bj = json::bj;

namespace {

std::uint64_t number_at(const bj::array& array, std::size_t at) {
  if (at >= array.size()) return 0;
  return static_cast<std::uint64_t>(json::as_number(array[at]).value_or(0));
}

BucketFamily family_of(const bj::object& o) {
  BucketFamily family;
  family.name = json::text(o, "family");
  family.calls = json::natural(o, "calls");
  family.distinct = json::natural(o, "distinct");
  family.smallest = json::natural(o, "min");
  family.largest = json::natural(o, "max");
  family.waste = json::number(o, "waste");
  const bj::array* ends = json::array(o, "buckets");
  const bj::object* beyond = json::object(o, "beyond");
  if (ends == nullptr || beyond == nullptr) return family;
  BucketFamilyPlan& plan = family.plan.emplace();
  for (std::size_t i = 0; i < ends->size(); ++i) plan.buckets.push_back(number_at(*ends, i));
  plan.tile = json::natural(o, "tile");
  plan.floor = json::natural(o, "floor");
  plan.varies = json::boolean(o, "varies");
  plan.base = json::natural(*beyond, "base");
  plan.max = json::natural(*beyond, "max");
  if (const bj::array* ratio = json::array(*beyond, "ratio")) {
    plan.num = number_at(*ratio, 0);
    plan.den = number_at(*ratio, 1);
  }
  return family;
}

BucketJoint joint_of(const bj::object& o) {
  BucketJoint joint;
  if (const bj::array* names = json::array(o, "families"); names != nullptr && names->size() == 2) {
    const bj::string* first = (*names)[0].if_string();
    const bj::string* second = (*names)[1].if_string();
    if (first != nullptr) joint.first.assign(first->data(), first->size());
    if (second != nullptr) joint.second.assign(second->data(), second->size());
  }
  if (const bj::array* pairs = json::array(o, "buckets")) {
    for (const bj::value& pair : *pairs) {
      if (!pair.is_array()) continue;
      joint.buckets.emplace_back(number_at(pair.get_array(), 0), number_at(pair.get_array(), 1));
    }
  }
  return joint;
}

template <class T, class Read>
std::vector<T> objects(const bj::object& o, std::string_view name, const Read& read) {
  std::vector<T> out;
  if (const bj::array* array = json::array(o, name)) {
    for (const bj::value& one : *array) {
      if (one.is_object()) out.push_back(read(one.get_object()));
    }
  }
  return out;
}

}  // namespace

std::vector<BucketProgram> bucket_programs(const bj::object& o) {
  return objects<BucketProgram>(o, "programs", [](const bj::object& p) {
    BucketProgram program;
    program.program = json::text(p, "program");
    program.label = json::text(p, "label");
    program.seen_ms = json::integer(p, "seen_ms");
    program.compile_ms = json::natural(p, "compile_ms");
    program.call_us = json::natural(p, "call_us");
    program.epoch = json::natural(p, "epoch");
    program.digest = json::text(p, "digest");
    program.jobs = json::natural(p, "jobs");
    program.families = objects<BucketFamily>(p, "families", family_of);
    program.joints = objects<BucketJoint>(p, "joint", joint_of);
    return program;
  });
}

}  // namespace nc::client::codec
