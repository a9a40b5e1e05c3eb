// Pooling over windows.
#include <fmt/format.h>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

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
  const size_t count = pooled_dims(call.name());
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
  const size_t count = pooled_dims(call.name());
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

// The plane that positions of maxima count through: its dimensions, outermost first.
Dim plane(const Value& x, size_t count) {
  Dim dim;
  for (size_t d = x.rank() - count; d < x.rank(); ++d) {
    if (x.dims[d].empty()) continue;
    dim.push_back(x.dims[d][0]);
  }
  return dim;
}

bool counts_differ(const Value& x, size_t count) {
  for (size_t d = x.rank() - count + 1; d < x.rank(); ++d) {
    if (x.padded(d)) return true;
  }
  return false;
}

int64_t true_positions(Pass& p, int64_t index, const Value& x, size_t count) {
  return counts_differ(x, count) ? to_true(p, index, plane(x, count)) : index;
}
int64_t padded_positions(Pass& p, int64_t index, const Value& x, size_t count) {
  return counts_differ(x, count) ? p.to_padded(index, plane(x, count), true) : index;
}

void check_maximum(const Value& x, size_t count, const std::vector<Place>& places, bool ceil) {
  if (x.rank() <= count) refuse("pooling of other ranks");
  check(x, places);
  if (!places.empty() && ceil) refuse("pooling with ceil_mode over a padded dimension");
}

Layout maxima(const Call& call, const Value& x, const State& before, size_t count,
              const std::vector<Place>& places) {
  Layout values = pooled(call, x, 0, count, State::anything());
  for (size_t d = 0; d + count < x.rank(); ++d) {
    for (Factor& f : values[d])
      f.state = places.empty() ? finite_if(before.is_finite()) : State::anything();
  }
  return values;
}

// (x, kernel, stride, padding, dilation, ceil) -> values, positions
Results maximum(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  // Offsets inside of windows, or positions in the plane.
  const bool offsets = call.name() == "_low_memory_max_pool_with_offsets";
  const size_t count = offsets ? call.integers(1).size() : pooled_dims(call.name());
  const auto places = spatial(x, count);
  check_maximum(x, count, places, call.boolean(5, false));
  const State before = x.any();
  x = p.need(x, lowest(x.dtype), places);
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  const int64_t first = p.emit_several(call.op(), 2, std::move(args), call.kwargs());
  const int64_t where = offsets ? first + 1 : true_positions(p, first + 1, x, count);
  return {
      p.result(first, maxima(call, x, before, count, places), call.type(0),
               finite_if(x.data.is_finite())),
      p.result(where, pooled(call, x, 1, count, State::finite()), call.type(1), State::finite())};
}

// (offsets, kernel, sizes of the plane, stride, padding, dilation)
Results offsets_to_positions(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const auto sizes = call.exprs(2);
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  int64_t id = p.emit(call.op(), std::move(args), call.kwargs());
  Dim dim;
  bool differ = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    dim.push_back({sizes[d], p.is_padded(sizes[d]), State::finite()});
    differ = differ || (d > 0 && p.is_padded(sizes[d]));
  }
  if (differ) id = to_true(p, id, dim);
  return one(p.result(id, with_states(x.dims, [](const State&) { return State::finite(); }),
                      call.type(), State::finite()));
}

// (grad, x, kernel, stride, padding, dilation, ceil, positions)
Results maximum_backward(const Call& call) {
  Pass& p = call.pass();
  Value grad = call.tensor(0);
  const Value x = call.tensor(1);
  const size_t count = pooled_dims(call.name());
  check_maximum(x, count, spatial(x, count), call.boolean(6, false));
  grad = p.need(grad, int64_t{0});
  const Value where = safe_index(p, call.tensor(7), std::nullopt);
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(x);
  args[7] = Pass::ref(padded_positions(p, where.id, x, count));
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()),
                      with_states(x.dims, [](const State&) { return State::finite(); }),
                      call.type(), finite_if(grad.data.is_finite())));
}

// (x, sizes) -> values, positions. A window over all of a padded dimension is one over its true
// part, as padding is the lowest value; smaller windows would begin elsewhere.
Results adaptive_maximum(const Call& call) {
  Pass& p = call.pass();
  Value x = call.tensor(0);
  const size_t count = pooled_dims(call.name());
  const auto places = spatial(x, count);
  const auto sizes = call.sizes();
  check_maximum(x, count, places, false);
  if (sizes.size() != x.rank()) refuse("adaptive pooling of other ranks");
  for (size_t d = x.rank() - count; d < x.rank(); ++d) {
    if (p.is_padded(sizes[d])) refuse("adaptive pooling to a size that varies");
    if (x.padded(d) && !p.pool().is_constant(sizes[d], 1))
      refuse("adaptive maxima of several windows over a padded dimension");
  }
  const State before = x.any();
  x = p.need(x, lowest(x.dtype), places);
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  const int64_t first = p.emit_several(call.op(), 2, std::move(args), call.kwargs());
  Layout values;
  Layout positions;
  const State padding = places.empty() ? finite_if(before.is_finite()) : State::anything();
  for (size_t d = 0; d < x.rank(); ++d) {
    const Layout own = {d + count < x.rank() ? x.dims[d] : p.prefix_dim(sizes[d], State::finite())};
    values.push_back(with_states(own, [&](const State&) { return padding; })[0]);
    positions.push_back(with_states(own, [](const State&) { return State::finite(); })[0]);
  }
  return {p.result(first, std::move(values), call.type(0), finite_if(x.data.is_finite())),
          p.result(true_positions(p, first + 1, x, count), std::move(positions), call.type(1),
                   State::finite())};
}

// (grad, x, positions)
Results adaptive_maximum_backward(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(1);
  const size_t count = pooled_dims(call.name());
  check_maximum(x, count, spatial(x, count), false);
  const Value grad = p.need(call.tensor(0), int64_t{0});
  const Value where = safe_index(p, call.tensor(2), std::nullopt);
  ArgList args = call.args();
  args[0] = Pass::ref(grad);
  args[1] = Pass::ref(x);
  args[2] = Pass::ref(padded_positions(p, where.id, x, count));
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()),
                      with_states(x.dims, [](const State&) { return State::finite(); }),
                      call.type(), finite_if(grad.data.is_finite())));
}

}  // namespace

void add_pool_rules(RuleTable& table) {
  table.add({"avg_pool1d", "avg_pool2d", "avg_pool3d"}, average,
            "windows at true positions see true elements and zeros");
  table.add({"avg_pool2d_backward", "avg_pool3d_backward"}, average_backward,
            "gradients of windows that do not exist are 0");
  table.add({"max_pool2d_with_indices", "max_pool3d_with_indices"}, maximum,
            "padding is the lowest value; positions count in true sizes");
  table.add({"_low_memory_max_pool_with_offsets"}, maximum,
            "padding is the lowest value; offsets count inside of a window");
  table.add({"_low_memory_max_pool_offsets_to_indices"}, offsets_to_positions,
            "positions count in true sizes");
  table.add({"max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"},
            maximum_backward, "gradients of windows that do not exist are 0");
  table.add({"adaptive_max_pool2d", "adaptive_max_pool3d"}, adaptive_maximum,
            "padding is the lowest value; positions count in true sizes");
  table.add({"adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"},
            adaptive_maximum_backward, "gradients go to true positions");
}

}  // namespace nc::padding
