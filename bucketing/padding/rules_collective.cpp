// Functional collectives. Ranks may pad to different sizes: each plans from its own batches. Unless
// all of them run at the same sizes an exchange of padded tensors would hang or mix up elements,
// and nothing here knows the other ranks. Tensors without padding (gradients of parameters) pass.
#include "bucketing/padding/rule.hpp"

namespace nc::padding {
namespace {

Results exchange(const Call&) {
  refuse(
      "a collective on a padded tensor: every rank would have to use the same bucket, which a plan "
      "of one rank cannot promise");
}

}  // namespace

void add_collective_rules(RuleTable& table) {
  for (const char* name :
       {"_c10d_functional.all_reduce", "_c10d_functional.all_reduce_coalesced",
        "_c10d_functional.all_gather_into_tensor",
        "_c10d_functional.all_gather_into_tensor_coalesced",
        "_c10d_functional.reduce_scatter_tensor",
        "_c10d_functional.reduce_scatter_tensor_coalesced", "_c10d_functional.all_to_all_single",
        "_c10d_functional.broadcast", "_c10d_functional.wait_tensor"}) {
    table.add({name}, exchange, "refused");
  }
}

}  // namespace nc::padding
