// Pooling over windows.
#include <fmt/format.h>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

// The number of trailing dimensions that windows slide over.
size_t windows(const std::string& name) {
  for (const char digit : {'1', '2', '3'}) {
    if (name.find(std::string("pool") + digit) != std::string::npos)
      return static_cast<size_t>(digit - '0');
  }
  refuse("a pooling operator that is not known");
}

std::vector<Place> spatial(const Value& x, size_t count) {
  std::vector<Place> places;
  for (const Place& place : x.places()) {
    if (place.dim + count >= x.rank()) places.push_back(place);
  }
  return places;
}

void check(const Value& x, const std::vector<Place>& places) {
  for (const Place& place : places) {
    if (x.dims[place.dim].size() > 1) refuse("pooling over a merged dimension");
  }
}

Layout pooled(const Call& call, const Value& x, size_t result, size_t count, const State& state) {
  Pass& p = call.pass();
  const auto sizes = call.sizes(result);
  Layout dims;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (d + count < x.rank()) {
      dims.push_back(with_states({x.dims[d]}, [&](const State&) { return state; })[0]);
    } else {
      dims.push_back(p.prefix_dim(sizes[d], state));
    }
  }
  return dims;
}

// (x, kernel, stride, padding, ceil, count_include_pad, divisor)
Results average(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  const size_t count = windows(call.name());
  const auto places = spatial(x, count);
  check(x, places);
  if (!places.empty()) {
    bool pads = false;
    for (const int64_t n : call.integers(3)) pads = pads || n != 0;
    if (call.boolean(4, false)) refuse("pooling with ceil_mode over a padded dimension");
    if (pads && !call.boolean(5, true))
      refuse("pooling that leaves its own padding out of the count");
    x = p.need(x, int64_t{0}, places);
  }
  const State state = finite_if(x.any().is_finite());
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()),
                      pooled(call, x, 0, count, state), call.type(),
                      finite_if(x.data.is_finite())));
}

Results average_backward(const Call& call) {
  Pass& p = call.pass();
  Value grad = call.tensor(0);
  const Value x = call.tensor(1);
  const size_t count = windows(call.name());
  const auto places = spatial(x, count);
  check(x, places);
  if (!places.empty() && call.boolean(5, false))
    refuse("pooling with ceil_mode over a padded dimension");
  bool pads = false;
  for (const int64_t n : call.integers(4)) pads = pads || n != 0;
  if (!places.empty() && pads && !call.boolean(6, true))
    refuse("pooling that leaves its own padding out of the count");
  grad = p.need(grad, int64_t{0}, spatial(grad, count));
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(x);
  const State state = finite_if(grad.any().is_finite());
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()),
                      with_states(x.dims, [&](const State&) { return state; }), call.type(),
                      finite_if(grad.data.is_finite())));
}

// Positions of maxima count through the plane: row * width + column.
int64_t other_width(Pass& p, int64_t index, Expr width, bool to_true) {
  const int64_t from = to_true ? p.bucket_size(width) : p.truth(width);
  const int64_t to = to_true ? p.truth(width) : p.bucket_size(width);
  const int64_t row = p.emit("aten.div.Tensor_mode", {Pass::ref(index), Pass::ref(from)},
                             {{"rounding_mode", Arg{std::string("floor")}}});
  return p.binary("aten.add.Tensor", p.binary("aten.mul.Tensor", row, to),
                  p.binary("aten.remainder.Tensor", index, from));
}

// (x, kernel, stride, padding, dilation, ceil) -> values, positions
Results maximum(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  if (x.rank() < 3) refuse("pooling of a line");
  const auto places = spatial(x, 2);
  check(x, places);
  if (!places.empty() && call.boolean(5, false))
    refuse("pooling with ceil_mode over a padded dimension");
  const State before = x.any();
  x = p.need(x, lowest(x.dtype), places);
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  const int64_t first = p.emit_several(call.op(), 2, std::move(args), call.kwargs());
  const size_t last = x.rank() - 1;
  const int64_t where =
      x.padded(last) ? other_width(p, first + 1, p.size(x, last), true) : first + 1;
  Layout values = pooled(call, x, 0, 2, State::anything());
  for (size_t d = 0; d + 2 < x.rank(); ++d) {
    for (Factor& f : values[d])
      f.state = places.empty() ? finite_if(before.is_finite()) : State::anything();
  }
  return {p.result(first, std::move(values), call.type(0), finite_if(x.data.is_finite())),
          p.result(where, pooled(call, x, 1, 2, State::finite()), call.type(1), State::finite())};
}

// (grad, x, kernel, stride, padding, dilation, ceil, positions)
Results maximum_backward(const Call& call) {
  Pass& p = call.pass();
  Value grad = call.tensor(0);
  const Value x = call.tensor(1);
  if (x.rank() < 3) refuse("pooling of a line");
  const auto places = spatial(x, 2);
  check(x, places);
  if (!places.empty() && call.boolean(6, false))
    refuse("pooling with ceil_mode over a padded dimension");
  grad = p.need(grad, int64_t{0});
  const Value where = safe_index(p, call.tensor(7), std::nullopt);
  const size_t last = x.rank() - 1;
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(x);
  args[7] = Pass::ref(x.padded(last) ? other_width(p, where.id, p.size(x, last), false) : where.id);
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()),
                      with_states(x.dims, [](const State&) { return State::finite(); }),
                      call.type(), finite_if(grad.data.is_finite())));
}

// Over dimensions without padding; the windows of others depend on their true size.
Results adaptive(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const size_t count = windows(call.name());
  if (!spatial(x, count).empty()) refuse("adaptive pooling over a padded dimension");
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  const State state = finite_if(x.any().is_finite());
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()),
                      pooled(call, x, 0, count, state), call.type(),
                      finite_if(x.data.is_finite())));
}

Results adaptive_backward(const Call& call) {
  Pass& p = call.pass();
  const Value grad = call.tensor(0);
  const Value x = call.tensor(1);
  if (!spatial(x, windows(call.name())).empty()) refuse("adaptive pooling over a padded dimension");
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(x);
  const State state = finite_if(grad.any().is_finite());
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()),
                      with_states(x.dims, [&](const State&) { return state; }), call.type(),
                      finite_if(grad.data.is_finite())));
}

}  // namespace

void add_pool_rules(RuleTable& table) {
  table.add({"avg_pool1d", "avg_pool2d", "avg_pool3d"}, average,
            "windows at true positions see true elements and zeros");
  table.add({"avg_pool2d_backward", "avg_pool3d_backward"}, average_backward,
            "gradients of windows that do not exist are 0");
  table.add({"max_pool2d_with_indices"}, maximum,
            "padding is the lowest value; positions count in true widths");
  table.add({"max_pool2d_with_indices_backward"}, maximum_backward,
            "gradients of windows that do not exist are 0");
  table.add({"_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d"}, adaptive,
            "planes without padding, one by one");
  table.add({"_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"}, adaptive_backward,
            "planes without padding, one by one");
}

}  // namespace nc::padding
