#include "client/cc/input/mlir_tables.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace nc::cc {
namespace {

constexpr std::string_view kUnknown = "?";
constexpr std::string_view kNothing;

// Place in the list: the code in the file.
constexpr std::array kBuiltinAttributes = {
    EntryForm{"a"},             // array
    EntryForm{"p"},             // dictionary
    EntryForm{"S"},             // string
    EntryForm{"ST"},            // string with a type
    EntryForm{"A"},             // flat symbol reference
    EntryForm{"Aa"},            // symbol reference
    EntryForm{"T"},             // type
    EntryForm{kNothing},        // unit
    EntryForm{"Tr"},            // integer
    EntryForm{"Tr"},            // float
    EntryForm{"AA", true},      // location: call site
    EntryForm{"AVV", true},     // file, line, column
    EntryForm{"a", true},       // fused
    EntryForm{kUnknown},        // fused with metadata: an attribute of any meaning
    EntryForm{"AA", true},      // named
    EntryForm{kNothing, true},  // unknown
    EntryForm{"TR"},            // elements in a resource
    EntryForm{"Tr"},            // dense array
    EntryForm{"Tr"},            // dense elements
    EntryForm{"TVs"},           // dense strings
    EntryForm{"TAA"},           // sparse elements
    EntryForm{kUnknown},        // distinct: equal only to itself
    EntryForm{"Av", true},      // location: file and range
};
constexpr std::array kBuiltinTypes = {
    EntryForm{"V"},       // integer
    EntryForm{kNothing},  // index
    EntryForm{"tt"},      // function
    EntryForm{kNothing}, EntryForm{kNothing}, EntryForm{kNothing},
    EntryForm{kNothing}, EntryForm{kNothing}, EntryForm{kNothing},  // bf16 f16 f32 f64 f80 f128
    EntryForm{"T"},                                                 // complex
    EntryForm{"vTA"},                                               // memref
    EntryForm{"AvTA"},                                              // memref with a memory space
    EntryForm{kNothing},                                            // none
    EntryForm{"vT"},                                                // tensor
    EntryForm{"AvT"},                                               // tensor with an encoding
    EntryForm{"t"},                                                 // tuple
    EntryForm{"T"},                                                 // unranked memref
    EntryForm{"AT"},  // unranked memref with a memory space
    EntryForm{"T"},   // unranked tensor
    EntryForm{"vT"},  // vector
};
constexpr std::array kStablehloAttributes = {
    EntryForm{kUnknown}, EntryForm{"r"}, EntryForm{"r"}, EntryForm{"r"},
    EntryForm{"r"},      EntryForm{"r"}, EntryForm{"r"}, EntryForm{"r"},
    EntryForm{"r"},      EntryForm{"r"}, EntryForm{"r"}, EntryForm{"r"},
    EntryForm{"r"},      EntryForm{"r"}, EntryForm{"r"},  // numbers only, up to 14
    EntryForm{"TTTr"},                                    // dot algorithm
    EntryForm{"r"},                                       // mode of accuracy
    EntryForm{"VVVA"},                                    // accuracy
};
constexpr std::array kStablehloTypes = {EntryForm{kNothing}};  // token
constexpr std::array kChloAttributes = {EntryForm{"r"}, EntryForm{"r"}};
constexpr std::array kVhloAttributes = {
    EntryForm{kUnknown}, EntryForm{"a"},  // array
    EntryForm{"r"},      EntryForm{"r"},  EntryForm{"r"},
    EntryForm{"r"},      EntryForm{"p"},                    // dictionary
    EntryForm{"r"},      EntryForm{"Tr"}, EntryForm{"Tr"},  // float, integer
    EntryForm{"r"},      EntryForm{"r"},  EntryForm{"r"},
    EntryForm{"r"},      EntryForm{"S"},  // string
    EntryForm{"Tr"},                      // tensor
    EntryForm{"r"},      EntryForm{"T"},  // type
    EntryForm{"r"},      EntryForm{"r"},  // mode of accuracy
    EntryForm{"VVVA"},                    // accuracy
};
// All types of vhlo but these have nothing in them.
constexpr std::array kVhloTypes = {
    std::pair<std::uint64_t, std::string_view>{1, "T"},     // complex
    std::pair<std::uint64_t, std::string_view>{8, "tt"},    // function
    std::pair<std::uint64_t, std::string_view>{20, "vT"},   // tensor
    std::pair<std::uint64_t, std::string_view>{21, "AvT"},  // tensor with an encoding
    std::pair<std::uint64_t, std::string_view>{23, "t"},    // tuple
    std::pair<std::uint64_t, std::string_view>{24, kUnknown},
    std::pair<std::uint64_t, std::string_view>{25, "T"},  // unranked tensor
    std::pair<std::uint64_t, std::string_view>{30, kUnknown},
};
constexpr std::uint64_t kLastVhloType = 40;

std::optional<EntryForm> at(std::span<const EntryForm> forms, std::uint64_t code) {
  if (code >= forms.size() || forms[code].holds == kUnknown) return std::nullopt;
  return forms[code];
}

using Row = std::pair<std::string_view, PropertyForms>;
constexpr PropertyForms kAccuracy = {{"oH"}};
constexpr PropertyForms kDimension = {{"rI"}};
constexpr PropertyForms kDimensions = {{"rN"}};
constexpr PropertyForms kBatchNorm = {{"rFrI"}};
constexpr PropertyForms kTransfer = {{"rHoIoE", "rHoI"}};

// Sorted by name.
constexpr std::array kOperations = {
    Row{"arith.constant", {{"rE", "rI", "rF"}}},
    Row{"builtin.module", {{"oSoS"}}},
    Row{"func.call", {{"oArYoUoA", "rYoU", "rY"}}},
    Row{"func.func", {{"oArToUoArSoS", "oArToArSoS"}}},
    Row{"stablehlo.all_gather", {{"rIoHr*oU"}}},
    Row{"stablehlo.all_reduce", {{"oHr*oU"}}},
    Row{"stablehlo.all_to_all", {{"oHrIr*rIrI"}}},
    Row{"stablehlo.batch_norm_grad", kBatchNorm},
    Row{"stablehlo.batch_norm_inference", kBatchNorm},
    Row{"stablehlo.batch_norm_training", kBatchNorm},
    Row{"stablehlo.broadcast", kDimensions},
    Row{"stablehlo.broadcast_in_dim", kDimensions},
    Row{"stablehlo.cbrt", kAccuracy},
    Row{"stablehlo.cholesky", {{"oI"}}},
    Row{"stablehlo.collective_broadcast", {{"oHoUr*", "oHr*"}}},
    Row{"stablehlo.collective_permute", {{"oHrE"}}},
    Row{"stablehlo.compare", {{"oHrH"}}},
    Row{"stablehlo.composite", {{"oDrYrSoI"}}},
    Row{"stablehlo.concatenate", kDimension},
    Row{"stablehlo.constant", {{"rE"}}},
    Row{"stablehlo.convolution", {{"rIrHrIoNoEoAoNoNoN"}}},
    Row{"stablehlo.cosine", kAccuracy},
    Row{"stablehlo.custom_call", {{"oIo*rSoAoIoAoAoA", "oIo*rSoAoIoAoAoAoA"}}},
    Row{"stablehlo.dot", {{"oA"}}},
    Row{"stablehlo.dot_general", {{"oHrHoA", "rHoA"}}},
    Row{"stablehlo.dynamic_broadcast_in_dim", {{"rNoNoN"}}},
    Row{"stablehlo.dynamic_gather", {{"rHoI"}}},
    Row{"stablehlo.dynamic_iota", kDimension},
    Row{"stablehlo.dynamic_slice", kDimensions},
    Row{"stablehlo.exponential", kAccuracy},
    Row{"stablehlo.exponential_minus_one", kAccuracy},
    Row{"stablehlo.fft", {{"rNrH"}}},
    Row{"stablehlo.gather", {{"rHoIrN"}}},
    Row{"stablehlo.get_dimension_size", kDimension},
    Row{"stablehlo.get_tuple_element", kDimension},
    Row{"stablehlo.iota", kDimension},
    Row{"stablehlo.log", kAccuracy},
    Row{"stablehlo.log_plus_one", kAccuracy},
    Row{"stablehlo.logistic", kAccuracy},
    Row{"stablehlo.map", kDimensions},
    Row{"stablehlo.pad", {{"rNrNrN"}}},
    Row{"stablehlo.recv", kTransfer},
    Row{"stablehlo.reduce", kDimensions},
    Row{"stablehlo.reduce_precision", {{"rIrI"}}},
    Row{"stablehlo.reduce_scatter", {{"oHr*rIoU"}}},
    Row{"stablehlo.reduce_window", {{"oNoEoNrNoN"}}},
    Row{"stablehlo.reverse", kDimensions},
    Row{"stablehlo.rng", {{"rH"}}},
    Row{"stablehlo.rng_bit_generator", {{"rH"}}},
    Row{"stablehlo.rsqrt", kAccuracy},
    Row{"stablehlo.scatter", {{"oIrHoI"}}},
    Row{"stablehlo.select_and_scatter", {{"oEoNoN"}}},
    Row{"stablehlo.send", kTransfer},
    Row{"stablehlo.set_dimension_size", kDimension},
    Row{"stablehlo.sine", kAccuracy},
    Row{"stablehlo.slice", {{"rNrNrN"}}},
    Row{"stablehlo.sort", {{"oIoI"}}},
    Row{"stablehlo.sqrt", kAccuracy},
    Row{"stablehlo.tan", kAccuracy},
    Row{"stablehlo.tanh", kAccuracy},
    Row{"stablehlo.torch_index_select", {{"rIrI"}}},
    Row{"stablehlo.transpose", kDimensions},
    Row{"stablehlo.triangular_solve", {{"rIrIrHrI"}}},
};

}  // namespace

std::optional<EntryForm> attribute_form(std::string_view dialect, std::uint64_t code) {
  if (dialect == "builtin") return at(kBuiltinAttributes, code);
  if (dialect == "stablehlo") return at(kStablehloAttributes, code);
  if (dialect == "vhlo") return at(kVhloAttributes, code);
  if (dialect == "chlo") return at(kChloAttributes, code);
  return std::nullopt;
}

std::optional<EntryForm> type_form(std::string_view dialect, std::uint64_t code) {
  if (dialect == "builtin") return at(kBuiltinTypes, code);
  if (dialect == "stablehlo") return at(kStablehloTypes, code);
  if (dialect != "vhlo" || code > kLastVhloType) return std::nullopt;
  const auto* const row = std::find_if(kVhloTypes.begin(), kVhloTypes.end(),
                                       [&](const auto& type) { return type.first == code; });
  if (row == kVhloTypes.end()) return EntryForm{kNothing};
  if (row->second == kUnknown) return std::nullopt;
  return EntryForm{row->second};
}

const PropertyForms* property_forms(std::string_view operation) {
  const auto* const row =
      std::lower_bound(kOperations.begin(), kOperations.end(), operation,
                       [](const Row& a, std::string_view name) { return a.first < name; });
  return row != kOperations.end() && row->first == operation ? &row->second : nullptr;
}

bool is_of_kind(char kind, std::string_view dialect, std::uint64_t code,
                std::string_view operation) {
  if (kind == '*') return true;
  if (kind == 'H') return dialect == operation.substr(0, operation.find('.'));
  if (dialect != "builtin") return false;
  switch (kind) {
    case 'A':
      return code == 0;
    case 'D':
      return code == kDictionaryCode;
    case 'S':
      return code == kStringCode;
    case 'Y':
      return code == 4 || code == 5;
    case 'T':
      return code == 6;
    case 'U':
      return code == 7;
    case 'I':
      return code == 8;
    case 'F':
      return code == 9;
    case 'N':
      return code == 17;
    case 'E':
      return code == 16 || (code >= 18 && code <= 20);
    default:
      return false;
  }
}

}  // namespace nc::cc
