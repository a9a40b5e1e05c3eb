// Running sums and the like, and counting.
#include <algorithm>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

// Padding lies behind the true part, so what runs forward has not seen it yet. In a merged
// dimension it lies between true parts and must be neutral. A product of as many factors as there
// is padding need not be of ordinary size, unless none of them is larger than 1.
Results cumulative(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  if (x.rank() == 0) return unchanged(call);
  const size_t d = wrap(call.integer(1, 0, "dim"), x.rank());
  const bool is_sum = call.name() == "cumsum";
  const bool is_product = call.name() == "cumprod";
  const bool pair = call.node().several;
  if (x.dims[d].size() > 1 && x.padded(d)) {
    if (pair || call.name() == "logcumsumexp") refuse("running along a merged dimension");
    x = p.need(x, int64_t{is_sum ? 0 : 1}, x.places(d));
  }
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  Layout dims = x.dims;
  const auto places = x.places();
  const bool grows = is_product && !std::ranges::all_of(places, [&](const Place& place) {
                       return within_one(x.at(place));
                     });
  for (const Place& place : places) {
    State& s = dims[place.dim][place.factor].state;
    s = grows                   ? State::anything()
        : place.dim == d        ? finite_if(x.any().is_finite())
        : s.is_zero() && is_sum ? State::zero()
                                : finite_if(x.at(place).is_finite());
  }
  const State data = finite_if(data_of(x).is_finite());
  if (!pair)
    return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()), std::move(dims),
                        call.type(), data));
  const int64_t first = p.emit_several(call.op(), 2, std::move(args), call.kwargs());
  Layout where = with_states(x.dims, [](const State&) { return State::non_negative(); });
  return {p.result(first, std::move(dims), call.type(0), data),
          p.result(first + 1, std::move(where), call.type(1), State::non_negative())};
}

// Elements outside of the range are not counted.
Results histogram(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const auto low = call.scalar(2);
  const auto high = call.scalar(3);
  if (!low || !high || to_double(*low) >= to_double(*high))
    refuse("a histogram over a range that depends on the data");
  const Value y =
      p.need(x, x.dtype.is_inexact() ? Scalar{to_double(*high) + 1}
                                     : Scalar{static_cast<int64_t>(to_double(*high)) + 1});
  ArgList args = call.args();
  args[0] = Pass::ref(y);
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()),
                      p.fresh(call.sizes(), State::finite()), call.type(), State::non_negative()));
}

}  // namespace

void add_scan_rules(RuleTable& table) {
  static constexpr std::string_view kWhy = "padding lies behind, or is neutral";
  table.add({"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"}, cumulative, kWhy);
  table.add({"histc"}, histogram, "padding is put outside of the range");
}

}  // namespace nc::padding
