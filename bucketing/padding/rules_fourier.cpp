// Fourier transforms of dimensions without padding; the others are transformed one by one.
#include <algorithm>

#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

// (x, dims, normalization, forward | one-sided | last size)
Results transform(const Call& call) {
  Pass& p = call.pass();
  const Value x = call.tensor(0);
  const auto over = wrap(call.integers(1), x.rank());
  call.integer(3, 0);  // a last size that varies is refused here
  const auto sizes = call.sizes();
  Layout dims;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (std::find(over.begin(), over.end(), d) == over.end()) {
      Dim dim = x.dims[d];
      for (size_t k = 0; k < dim.size(); ++k) {
        if (dim[k].padded) dim[k].state = finite_if(x.at({d, k}).is_finite());
      }
      dims.push_back(std::move(dim));
    } else {
      if (x.padded(d) || p.is_padded(sizes[d])) refuse("a Fourier transform of a padded dimension");
      dims.push_back(p.fresh(sizes[d], State::finite()));
    }
  }
  ArgList args = call.args();
  args[0] = Pass::ref(x);
  const State data = x.uniform ? State::constant(*x.uniform) : x.data;
  return one(p.result(p.emit(call.op(), std::move(args), call.kwargs()), std::move(dims),
                      call.type(), finite_if(data.is_finite())));
}

}  // namespace

void add_fourier_rules(RuleTable& table) {
  table.add({"_fft_r2c", "_fft_c2r", "_fft_c2c"}, transform,
            "lines along dimensions without padding are transformed one by one");
}

}  // namespace nc::padding
