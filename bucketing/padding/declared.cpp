#include "bucketing/padding/declared.hpp"

#include <array>
#include <charconv>
#include <string_view>

#include <boost/json.hpp>
#include <fmt/format.h>

namespace nc::padding {
namespace json = boost::json;
namespace {

// More than any operator has.
constexpr size_t kMaxArguments = 256;

Error invalid(std::string_view op, std::string_view what) {
  return {Code::kInvalid, fmt::format("the declared rule of {}: {}", op, what),
          "write it as docs/padding.md describes it"};
}

template <class E, size_t n>
std::optional<E> word(const json::value* v,
                      const std::array<std::pair<std::string_view, E>, n>& words) {
  if (v == nullptr || !v->is_string()) return std::nullopt;
  for (const auto& [text, value] : words) {
    if (std::string_view(v->get_string()) == text) return value;
  }
  return std::nullopt;
}

std::optional<Gives> gives(const json::object& o) {
  static constexpr std::array<std::pair<std::string_view, Gives>, 5> kWords = {
      {{"any", Gives::kAny},
       {"finite", Gives::kFinite},
       {"nonnegative", Gives::kNonNegative},
       {"positive", Gives::kPositive},
       {"zero", Gives::kZero}}};
  return word(o.if_contains("gives"), kWords);
}

std::optional<Declared::Axis> axis(const json::value& v) {
  const auto* pair = v.if_array();
  if (pair == nullptr || pair->size() != 2) return std::nullopt;
  const auto* input = (*pair)[0].if_int64();
  const auto* dim = (*pair)[1].if_int64();
  if (input == nullptr || dim == nullptr || *input < 0 ||
      static_cast<size_t>(*input) >= kMaxArguments) {
    return std::nullopt;
  }
  return Declared::Axis{static_cast<size_t>(*input), *dim};
}

std::optional<std::vector<Declared::Axis>> axes(const json::value& v) {
  const auto* list = v.if_array();
  if (list == nullptr) return std::nullopt;
  std::vector<Declared::Axis> all;
  for (const auto& item : *list) {
    const auto one = axis(item);
    if (!one) return std::nullopt;
    all.push_back(*one);
  }
  return all;
}

Result<std::optional<Declared::Output>> output(std::string_view op, const json::value& v) {
  if (v.is_null()) return std::optional<Declared::Output>();
  const auto* o = v.if_object();
  const auto* follows = o == nullptr ? nullptr : o->if_contains("follows");
  if (follows == nullptr || !follows->is_array()) return invalid(op, "an output follows nothing");
  Declared::Output out;
  for (const auto& item : follows->get_array()) {
    const auto list = item.is_null() ? std::vector<Declared::Axis>() : axes(item);
    if (!list) return invalid(op, "what a dimension follows is no list of [input, dim]");
    out.follows.push_back(*list);
  }
  const auto holds = gives(*o);
  if (!holds) return invalid(op, "an output does not say what it gives");
  out.gives = *holds;
  return std::optional<Declared::Output>(std::move(out));
}

Result<void> needs(std::string_view op, const json::value& v, Declared& rule) {
  static constexpr std::array<std::pair<std::string_view, Needs>, 3> kWords = {
      {{"any", Needs::kAny}, {"finite", Needs::kFinite}, {"zero", Needs::kZero}}};
  const auto* o = v.if_object();
  if (o == nullptr) return invalid(op, "needs are no object");
  for (const auto& [name, value] : *o) {
    const std::string_view text = name;
    size_t input = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), input);
    const auto need = word(&value, kWords);
    if (error != std::errc() || end != text.data() + text.size() || input >= kMaxArguments || !need)
      return invalid(op, "what an argument needs is not understood");
    rule.needs[input] = *need;
  }
  return {};
}

Result<Declared> rule(std::string_view op, const json::value& v) {
  const auto* o = v.if_object();
  const auto* kind = o == nullptr ? nullptr : o->if_contains("kind");
  Declared rule;
  if (kind == nullptr || !kind->is_string()) return invalid(op, "it has no kind");
  if (kind->get_string() == "pointwise") {
    const auto holds = gives(*o);
    if (!holds) return invalid(op, "it does not say what it gives");
    rule.pointwise = true;
    rule.gives = *holds;
    return rule;
  }
  if (kind->get_string() != "along") return invalid(op, "its kind is not known");
  const auto* outputs = o->if_contains("outputs");
  if (outputs == nullptr || !outputs->is_array() || outputs->get_array().size() > kMaxArguments)
    return invalid(op, "it has no outputs");
  for (const auto& item : outputs->get_array()) {
    auto one = output(op, item);
    if (!one) return std::move(one).error();
    rule.outputs.push_back(*std::move(one));
  }
  if (const auto* list = o->if_contains("needs"); list != nullptr && !list->is_null()) {
    if (auto r = needs(op, *list, rule); !r) return r.error();
  }
  if (const auto* list = o->if_contains("sums"); list != nullptr && !list->is_null()) {
    auto all = axes(*list);
    if (!all) return invalid(op, "sums are no list of [input, dim]");
    rule.sums = *std::move(all);
  }
  for (const auto& [input, dim] : rule.sums) {
    const auto it = rule.needs.find(input);
    if (it == rule.needs.end() || it->second != Needs::kZero)
      return invalid(op, "an argument that is summed up has to need zero");
  }
  return rule;
}

}  // namespace

Result<DeclaredRules> read_declared(const json::value& v) {
  const auto* o = v.if_object();
  if (o == nullptr) return invalid("the request", "the rules are no object");
  DeclaredRules all;
  for (const auto& [name, value] : *o) {
    const std::string op(name);
    if (op.starts_with("aten.") || op.starts_with("prims."))
      return invalid(op, "operators of torch have rules of the engine only");
    auto one = rule(op, value);
    if (!one) return std::move(one).error();
    all.emplace(op, *std::move(one));
  }
  return all;
}

}  // namespace nc::padding
