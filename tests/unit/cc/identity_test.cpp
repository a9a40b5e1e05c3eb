#include "client/cc/identity.hpp"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/cc/scratch.hpp"

namespace nc::cc {
namespace {

class Identity : public testing::Test {
 protected:
  static std::string script(const std::string& version) {
    return "#!/bin/sh\necho run >> \"$0.runs\"\necho 'NeuronX Compiler version " + version + "'\n";
  }
  CompilerIdentity identify_now() const {
    const std::string path = scratch_.path("venv/bin/neuronx-cc");
    auto compiler = find_real_compiler(path, "", scratch_.path("self"), {});
    EXPECT_TRUE(compiler.ok());
    auto identity = identify(*compiler, {}, scratch_.path("kept"));
    EXPECT_TRUE(identity.ok());
    return identity.ok() ? *identity : CompilerIdentity{};
  }
  std::size_t runs() const {
    return Scratch::read(scratch_.path("venv/bin/neuronx-cc.runs")).size() / 4;
  }
  std::string record(const std::string& version) const {
    return "venv/lib/python3.10/site-packages/neuronx_cc-" + version + ".dist-info/RECORD";
  }

  Scratch scratch_;
  std::string program_ = scratch_.program("venv/bin/neuronx-cc", script("2.20.1.0+abc"));
};

TEST_F(Identity, IsAskedOnce) {
  const CompilerIdentity first = identify_now();
  EXPECT_EQ(first.version(), "2.20.1.0+abc");
  EXPECT_TRUE(first.package.starts_with("program sha256:"));
  const CompilerIdentity second = identify_now();
  EXPECT_EQ(second.version_text, first.version_text);
  EXPECT_EQ(second.package, first.package);
  EXPECT_EQ(runs(), 1U);
}

TEST_F(Identity, AnotherProgramIsAskedAgain) {
  identify_now();
  scratch_.program("venv/bin/neuronx-cc", script("2.21.0.0+def") + "# another\n");
  EXPECT_EQ(identify_now().version(), "2.21.0.0+def");
  EXPECT_EQ(runs(), 2U);
}

TEST_F(Identity, APackageThatChangesUnderTheProgram) {
  scratch_.write(record("2.20.1.0+abc"), "neuronxcc/a.so,sha256=1,5\n");
  const CompilerIdentity first = identify_now();
  EXPECT_TRUE(first.package.starts_with("package sha256:"));
  scratch_.write(record("2.20.1.0+abc"), "neuronxcc/a.so,sha256=2,55\n");
  const CompilerIdentity second = identify_now();
  EXPECT_NE(second.package, first.package);
  std::filesystem::remove_all(
      std::filesystem::path(scratch_.path(record("2.20.1.0+abc"))).parent_path());
  EXPECT_TRUE(identify_now().package.starts_with("program sha256:"));
}

TEST_F(Identity, ADamagedNoteIsNotBelieved) {
  identify_now();
  for (const auto& file : std::filesystem::directory_iterator(scratch_.path("kept"))) {
    if (file.path().extension() != ".lock")
      scratch_.write("kept/" + file.path().filename().string(), "neuroncache-compiler-1 'x");
  }
  EXPECT_EQ(identify_now().version(), "2.20.1.0+abc");
  EXPECT_EQ(runs(), 2U);
}

TEST_F(Identity, ACompilerThatDoesNotSay) {
  scratch_.program("venv/bin/neuronx-cc", "#!/bin/sh\nexit 3\n");
  auto compiler = find_real_compiler(program_, "", scratch_.path("self"), {});
  EXPECT_TRUE(identify(*compiler, {}, scratch_.path("kept")).is(Code::kUnsupported));
}

TEST(RecordDigest, LeavesOutWhatDiffersBetweenInstallations) {
  const std::string base = record_digest("a.so,sha256=1,5\nb.py,sha256=2,6\n");
  EXPECT_EQ(record_digest("b.py,sha256=2,6\r\n../../../bin/neuronx-cc,sha256=9,9\n"
                          "__pycache__/b.pyc,,\nneuronx_cc-1.dist-info/INSTALLER,sha256=3,4\n"
                          "a.so,sha256=1,5\n"),
            base);
  EXPECT_NE(record_digest("a.so,sha256=1,5\nb.py,sha256=3,6\n"), base);
  EXPECT_NE(record_digest("a.so,sha256=1,5\nb.py,sha256=2,6\n"
                          "neuronx_cc-1.dist-info/METADATA,sha256=3,4\n"),
            base);
}

}  // namespace
}  // namespace nc::cc
