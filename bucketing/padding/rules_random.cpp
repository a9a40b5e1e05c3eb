// Random numbers: the stream depends on the shape, so a padded draw is another draw.
//
// `strict` refuses. `statistical` lets draws pass whose elements are independent and alike: each
// true element gets a number of the same distribution, only not the same number.
#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

void allow(const Call& call) {
  if (!call.pass().options().statistical_random) {
    refuse(
        "random numbers for a shape that varies: the stream would differ from the unpadded run's "
        "(setting `padded_random`)");
  }
}

Results draw(const Call& call) {
  allow(call);
  Pass& p = call.pass();
  ArgList args = call.args();
  Layout dims;
  if (call.is_tensor(0)) {
    const Value x = call.tensor(0);
    args[0] = Pass::ref(x);
    dims = x.dims;
    if (call.name() == "bernoulli" && call.count() == 1 && !x.any().is_non_negative()) {
      refuse("probabilities that may be anything in the padding");
    }
  } else {
    dims = p.fresh(call.sizes(), State::finite());
  }
  const bool normal = call.name().find("randn") != std::string::npos;
  const State state = normal ? State::finite() : State::non_negative();
  dims = with_states(std::move(dims), [&](const State&) { return state; });
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()), std::move(dims),
                      call.type(), state));
}

Results dropout(const Call& call) {
  allow(call);
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  const int64_t first = p.emit_several(call.op(), 2, std::move(args), call.kwargs());
  const State data = finite_if(x.data.is_finite());
  Results out;
  out.emplace_back(p.result(
      first,
      with_states(x.dims,
                  [](const State& s) { return s.is_zero() ? s : finite_if(s.is_finite()); }),
      call.type(0), data));
  out.emplace_back(p.result(first + 1,
                            with_states(x.dims, [](const State&) { return State::non_negative(); }),
                            call.type(1), State::non_negative()));
  return out;
}

Results forbidden(const Call&) {
  refuse("random numbers that depend on each other");
}

}  // namespace

void add_random_rules(RuleTable& table) {
  static constexpr std::string_view kWhy =
      "elements are independent draws (only with padded_random = statistical)";
  table.add({"rand", "randn", "rand_like", "randn_like", "bernoulli"}, draw, kWhy);
  table.add({"native_dropout"}, dropout, kWhy);
  table.add(
      {"randperm", "multinomial", "randint", "randint_like", "normal", "uniform", "exponential"},
      forbidden, "refused");
}

}  // namespace nc::padding
