#include "daemon/bucket_request.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cache/json_fields.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;
using buckets::Size;

constexpr std::size_t kMaxSizes = 16'384;  // of a family, in one request
constexpr std::size_t kMaxName = 128;
constexpr std::int64_t kMaxCount = 1LL << 38;
constexpr std::int64_t kMaxTime = (1LL << 40) - 1;
constexpr std::int64_t kMaxCompile = 7LL * 24 * 3'600'000;
constexpr double kMillion = 1e6;

bool is_job(std::string_view s) {
  return buckets::is_family_name(s);  // the same rules
}

// Rows of `columns` whole numbers each within its bounds; an empty vector when one is not.
struct Column {
  std::int64_t least, most;
};
using Row = std::array<std::int64_t, 3>;
std::vector<Row> rows(JsonFields& fields, std::string_view name, std::span<const Column> columns,
                      std::size_t most) {
  std::vector<Row> out;
  const js::value* value = fields.member(name);
  if (value == nullptr) return out;
  const js::array* array = value->if_array();
  if (array == nullptr) {
    fields.fail(Code::kInvalid, name, "is not an array");
    return out;
  }
  if (array->size() > most) {
    fields.fail(Code::kTooLarge, name, fmt::format("has more than {} rows", most));
    return out;
  }
  out.reserve(array->size());
  for (const js::value& item : *array) {
    const js::array* row = item.if_array();
    bool good = row != nullptr && row->size() == columns.size();
    Row numbers{};
    for (std::size_t i = 0; good && i < columns.size(); ++i) {
      const std::int64_t* number = (*row)[i].if_int64();
      good = number != nullptr && *number >= columns[i].least && *number <= columns[i].most;
      if (good) numbers[i] = *number;
    }
    if (!good) {
      fields.fail(Code::kInvalid, name,
                  fmt::format("[{}] is not a row of {} whole numbers in range", out.size(),
                              columns.size()));
      return {};
    }
    out.push_back(numbers);
  }
  return out;
}

constexpr Column kSizeColumn{0, buckets::kMaxSize};
constexpr Column kCountColumn{0, kMaxCount};

buckets::SizeCounts sizes(JsonFields& fields, std::string_view name) {
  constexpr Column kColumns[] = {kSizeColumn, kCountColumn};
  buckets::SizeCounts out;
  for (const Row& row : rows(fields, name, kColumns, kMaxSizes)) {
    out.push_back({static_cast<Size>(row[0]), static_cast<std::uint64_t>(row[1])});
  }
  buckets::normalise(out);
  return out;
}

// Two names of families, in the order of their bytes; `swapped` when they came the other way round.
std::optional<std::pair<std::string, std::string>> name_pair(const js::value& value,
                                                             bool& swapped) {
  const js::array* array = value.if_array();
  if (array == nullptr || array->size() != 2) return std::nullopt;
  std::string names[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const js::string* text = (*array)[i].if_string();
    if (text == nullptr) return std::nullopt;
    names[i].assign(text->data(), text->size());
    if (!buckets::is_family_name(names[i])) return std::nullopt;
  }
  if (names[0] == names[1]) return std::nullopt;
  swapped = names[1] < names[0];
  if (swapped) std::swap(names[0], names[1]);
  return std::pair(names[0], names[1]);
}

// Calls `read` for every object of the array `name`, until something is wrong.
template <class Read>
void each(JsonFields& fields, std::string_view name, std::size_t most, const Read& read) {
  const js::value* value = fields.member(name);
  if (value == nullptr) return;
  const js::array* array = value->if_array();
  if (array == nullptr) return fields.fail(Code::kInvalid, name, "is not an array");
  if (array->size() > most) {
    return fields.fail(Code::kTooLarge, name, fmt::format("has more than {} members", most));
  }
  for (std::size_t i = 0; i < array->size() && fields.done().ok(); ++i) {
    const js::object* object = (*array)[i].if_object();
    if (object == nullptr) {
      return fields.fail(Code::kInvalid, name, fmt::format("[{}] is not an object", i));
    }
    JsonFields inner(*object, fmt::format("{}[{}]", name, i));
    read(*object, inner);
    if (Status ok = inner.done(); !ok.ok()) {
      fields.fail(ok.error().code, name, fmt::format("is wrong: {}", ok.error().message));
    }
  }
}

void read_pairs(const js::object& object, JsonFields& fields, SeenPairs& out) {
  constexpr Column kColumns[] = {kSizeColumn, kSizeColumn, kCountColumn};
  fields.require("families").require("sizes");
  bool swapped = false;
  const js::value* names = object.if_contains("families");
  const auto pair = names == nullptr ? std::nullopt : name_pair(*names, swapped);
  if (!pair) return fields.fail(Code::kInvalid, "families", "is not a pair of two families' names");
  std::tie(out.first, out.second) = *pair;
  for (const Row& row : rows(fields, "sizes", kColumns, kMaxSizes)) {
    const auto a = static_cast<Size>(row[swapped ? 1 : 0]);
    const auto b = static_cast<Size>(row[swapped ? 0 : 1]);
    out.cells.push_back({{a, b}, static_cast<std::uint64_t>(row[2])});
  }
}

void read_cost(JsonFields& fields, buckets::CostModel& out) {
  const js::value* value = fields.member("cost");
  if (value == nullptr) return;
  const js::object* object = value->if_object();
  const bool linear = value->is_string() && value->get_string() == "linear";
  if (linear || (value->is_string() && value->get_string() == "quadratic")) {
    out = linear ? buckets::CostModel::linear() : buckets::CostModel::quadratic();
    return;
  }
  if (object == nullptr || (!object->contains("quadratic") && !object->contains("table"))) {
    return fields.fail(Code::kInvalid, "cost", "is none of \"linear\", \"quadratic\", an object");
  }
  JsonFields inner(*object, "cost");
  if (object->contains("table")) {
    constexpr Column kColumns[] = {{1, buckets::kMaxSize}, {0, kMaxTime}};
    std::vector<std::pair<Size, std::uint64_t>> points;
    for (const Row& row : rows(inner, "table", kColumns, buckets::CostModel::kMaxPoints)) {
      points.emplace_back(static_cast<Size>(row[0]), static_cast<std::uint64_t>(row[1]));
    }
    auto model = buckets::CostModel::measured(std::move(points));
    if (inner.done().ok() && !model.ok())
      inner.fail(Code::kInvalid, "table", model.error().message);
    if (model.ok()) out = *std::move(model);
  } else {
    Size at = 1;
    inner.integer("quadratic", at, 1, buckets::kMaxSize);
    out = buckets::CostModel::mixed(at);
  }
  if (Status ok = inner.done(); !ok.ok()) {
    fields.fail(ok.error().code, "cost", fmt::format("is wrong: {}", ok.error().message));
  }
}

void read_waste(JsonFields& fields, buckets::Limits& limits) {
  const js::value* value = fields.member("max_waste");
  if (value == nullptr || value->is_null()) return;
  js::error_code error;
  const double waste = value->to_number<double>(error);
  if (error || !(waste >= 0) || waste * kMillion > buckets::kMaxWastePpm) {
    return fields.fail(Code::kInvalid, "max_waste", "is not a share from 0 to 10");
  }
  limits.max_waste_ppm = static_cast<std::uint32_t>(std::lround(waste * kMillion));
}

void read_family(JsonFields& fields, PlanRequest::Family& out) {
  fields.require("family");
  fields.text("family", out.name, kMaxName, buckets::is_family_name)
      .integer("tile", out.axis.tile, 1, buckets::kMaxSize);
  out.axis.floor = out.axis.tile;
  fields.integer("floor", out.axis.floor, 1, buckets::kMaxSize);
  if (const js::value* max = fields.member("max"); max != nullptr && !max->is_null()) {
    fields.integer("max", out.axis.max, 1, buckets::kMaxSize);
  }
  out.seen = sizes(fields, "seen");
}

void read_joints(JsonFields& fields, PlanRequest& out) {
  const js::value* value = fields.member("joint");
  if (value == nullptr || value->is_null()) return;
  const js::array* array = value->if_array();
  std::vector<std::string> taken;
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    bool swapped = false;
    auto pair = name_pair((*array)[i], swapped);
    if (!pair || std::find(taken.begin(), taken.end(), pair->first) != taken.end() ||
        std::find(taken.begin(), taken.end(), pair->second) != taken.end()) {
      array = nullptr;
      break;
    }
    taken.push_back(pair->first);
    taken.push_back(pair->second);
    out.joints.push_back(*std::move(pair));
  }
  if (array == nullptr) {
    fields.fail(Code::kInvalid, "joint", "is not a list of pairs of names, each name in one pair");
  }
}

}  // namespace

Result<Observation> read_observation(std::string_view body) {
  NC_ASSIGN(const auto object, parse_json_object(body, body.size(), "the body"));
  Observation out;
  JsonFields fields(object, "the body");
  fields.require("program").require("job").require("families");
  fields.digest("program", out.program)
      .text("job", out.job, kMaxName, is_job)
      .text("label", out.label, kMaxName);
  each(fields, "families", BucketBook::kMaxFamilies, [&](const js::object&, JsonFields& inner) {
    auto& [name, seen] = out.families.emplace_back();
    inner.require("family").require("sizes");
    inner.text("family", name, kMaxName, buckets::is_family_name);
    seen = sizes(inner, "sizes");
  });
  each(fields, "joint", BucketBook::kMaxPairs, [&](const js::object& joint, JsonFields& inner) {
    read_pairs(joint, inner, out.pairs.emplace_back());
  });
  if (fields.member("compile_ms") != nullptr) {
    std::uint64_t compile_ms = 0;
    fields.integer("compile_ms", compile_ms, 0, kMaxCompile);
    out.compile_ms = compile_ms;
  }
  fields.integer("calls", out.calls, 0, kMaxCount).integer("calls_us", out.calls_us, 0, kMaxTime);
  NC_TRY(fields.done());
  return out;
}

Result<PlanRequest> read_plan_request(std::string_view body) {
  NC_ASSIGN(const auto object, parse_json_object(body, body.size(), "the body"));
  PlanRequest out;
  JsonFields fields(object, "the body");
  fields.require("program").require("job").require("families");
  fields.digest("program", out.program)
      .text("job", out.job, kMaxName, is_job)
      .integer("max_buckets", out.limits.max_buckets, 1, buckets::kMaxBuckets)
      .integer("max_artifacts", out.max_artifacts, 1, JsonFields::kMaxInteger)
      .integer("after", out.after, 0, JsonFields::kMaxInteger);
  each(fields, "families", BucketBook::kMaxFamilies, [&](const js::object&, JsonFields& inner) {
    read_family(inner, out.families.emplace_back());
  });
  read_waste(fields, out.limits);
  read_cost(fields, out.cost);
  read_joints(fields, out);
  std::sort(out.families.begin(), out.families.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto same =
      std::adjacent_find(out.families.begin(), out.families.end(),
                         [](const auto& a, const auto& b) { return a.name == b.name; });
  if (same != out.families.end()) fields.fail(Code::kInvalid, "families", "names a family twice");
  NC_TRY(fields.done());
  return out;
}

}  // namespace nc::daemon
