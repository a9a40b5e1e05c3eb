#include "client/cc/input/mlir_bytecode.hpp"

#include <gtest/gtest.h>

#include "client/cc/input/digest.hpp"
#include "client/cc/input/mlir_tables.hpp"
#include "tests/unit/cc_input/inputs.hpp"

namespace nc::cc {
namespace {

std::optional<Digest> digest(std::string_view bytes) {
  return mlir_bytecode_digest(as_bytes(bytes));
}

class MlirBytecodeSamples : public testing::TestWithParam<const char*> {};

TEST_P(MlirBytecodeSamples, SourceLocationsLeaveNoTraceAndWeightsDo) {
  const std::string kind = GetParam();
  const auto here = digest(sample("here" + kind));
  ASSERT_TRUE(here);
  EXPECT_EQ(digest(sample("there" + kind)), here);
  const auto weight = digest(sample("weight" + kind));
  ASSERT_TRUE(weight);
  EXPECT_NE(weight, here);
}

TEST_P(MlirBytecodeSamples, EveryCutIsRefused) {
  const std::string whole = sample(std::string("here") + GetParam());
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(digest(std::string_view(whole).substr(0, size))) << size;
  EXPECT_FALSE(digest(whole + '\0'));
}

// A byte that is changed makes another program, or none that is understood; but in the text of a
// source location it makes no difference.
TEST_P(MlirBytecodeSamples, EveryByteCountsExceptThoseOfLocations) {
  const std::string whole = sample(std::string("here") + GetParam());
  const auto plain = digest(whole);
  const std::size_t file = whole.find("/home/ann/model.py");
  ASSERT_NE(file, std::string::npos);
  std::string changed = whole;
  changed.replace(file, 5, "/srv/");
  EXPECT_EQ(digest(changed), plain);
  const std::string_view weight("\0\0\x80?\0\0\0@\0\0@@\0\0\x90@", 16);
  const std::size_t at = whole.find(weight);
  ASSERT_NE(at, std::string::npos);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    changed = whole;
    changed[at + i] = static_cast<char>(changed[at + i] ^ 1);
    EXPECT_NE(digest(changed), plain) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MlirBytecodeSamples, testing::Values(".mlirbc", ".vhlo"),
                         [](const auto& kind) { return std::string(kind.param).substr(1); });

TEST(MlirBytecode, TheTextOfAnAttributeCounts) {
  const std::string whole = sample("here.mlirbc");
  for (const auto& [from, to] :
       std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"result[0]", "result[2]"},
           {"mhlo.num_replicas", "mhlo.num_replicaz"},
           {"maximum", "minimum"},
           {"argmax", "argmix"}}) {
    ASSERT_NE(whole.find(from), std::string::npos) << from;
    EXPECT_NE(digest(replaced(whole, from, to)), digest(whole)) << from;
  }
  EXPECT_EQ(digest(replaced(whole, "jit_block", "jit_other")), digest(whole));  // the module's name
}

// With constants in resources, orders of uses and the path that torch-mlir leaves in the module.
TEST(MlirBytecode, WhatTorchMlirWrites) {
  const std::string here = sample("torch_here.mlirbc");
  const auto plain = digest(here);
  ASSERT_TRUE(plain);
  EXPECT_EQ(digest(sample("torch_there.mlirbc")), plain);
  EXPECT_EQ(digest(replaced(here, "/tmp/x0", "/tmp/y7")), plain);
  for (const std::string_view part : {"torch_tensor_4_", "MLIR24"}) {
    const std::size_t at = here.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    std::string changed = here;
    changed[at] = 'q';
    EXPECT_NE(digest(changed), plain) << part;
  }
}

TEST(MlirBytecode, OtherVersionsAreRefused) {
  std::string bytes = sample("here.mlirbc");
  ASSERT_TRUE(digest(bytes));
  for (const unsigned version : {0U, 7U, 100U}) {
    bytes[4] = static_cast<char>(version << 1 | 1);
    EXPECT_FALSE(digest(bytes)) << version;
    EXPECT_EQ(digest_bytes(as_bytes(bytes)).form, "raw");
  }
}

TEST(MlirTables, FormsAreWellFormed) {
  for (const char* name : {"builtin.module", "func.func", "stablehlo.all_gather", "stablehlo.add",
                           "stablehlo.constant", "stablehlo.dot_general", "stablehlo.send",
                           "stablehlo.triangular_solve"}) {
    const PropertyForms* forms = property_forms(name);
    if (std::string_view(name) == "stablehlo.add") {
      EXPECT_EQ(forms, nullptr);
      continue;
    }
    ASSERT_NE(forms, nullptr) << name;
    for (const std::string_view form : forms->forms) {
      EXPECT_EQ(form.size() % 2, 0U) << name;
      for (std::size_t i = 0; i < form.size(); i += 2)
        EXPECT_TRUE(form[i] == 'r' || form[i] == 'o') << name;
    }
  }
  EXPECT_FALSE(attribute_form("builtin", 13));
  EXPECT_FALSE(attribute_form("builtin", 1000));
  EXPECT_FALSE(attribute_form("torch", 0));
}

}  // namespace
}  // namespace nc::cc
