#include "base/result.hpp"

#include <cerrno>
#include <memory>

#include <gtest/gtest.h>

namespace nc {
namespace {

constexpr int kCodes = static_cast<int>(Code::kInternal) + 1;

TEST(Code, EveryNameLeadsBack) {
  for (int i = 0; i < kCodes; ++i) {
    const auto code = static_cast<Code>(i);
    EXPECT_EQ(code_from_name(code_name(code)), code) << code_name(code);
  }
  EXPECT_EQ(code_from_name("no_such_code"), std::nullopt);
}

TEST(Code, NamesOfTheProtocol) {
  EXPECT_EQ(code_name(Code::kUnsupported), "unsupported_protocol");
  EXPECT_EQ(code_name(Code::kLeaseLost), "lease_lost");
  EXPECT_EQ(code_name(Code::kDigestMismatch), "digest_mismatch");
  EXPECT_EQ(code_name(Code::kLengthRequired), "length_required");
}

TEST(Error, TextAndContext) {
  Error error{Code::kIo, "cannot read /x", ""};
  EXPECT_EQ(error.text(), "cannot read /x");
  error.action = "look at the disk";
  EXPECT_EQ(error.text(), "cannot read /x (look at the disk)");
  const Error outer = std::move(error).context("publishing 12");
  EXPECT_EQ(outer.text(), "publishing 12: cannot read /x (look at the disk)");
  EXPECT_EQ(outer.code, Code::kIo);
}

TEST(Error, FromErrno) {
  const struct {
    int err;
    Code code;
  } cases[] = {
      {ENOENT, Code::kNotFound},
      {EACCES, Code::kDenied},
      {EPERM, Code::kDenied},
      {EROFS, Code::kReadOnly},
      {ENOSPC, Code::kNoSpace},
      {EDQUOT, Code::kNoSpace},
      {EEXIST, Code::kConflict},
      {ENOTDIR, Code::kInvalid},
      {EIO, Code::kIo},
      {EMFILE, Code::kIo},
      {ECONNREFUSED, Code::kUnavailable},
      {EFBIG, Code::kTooLarge},
      {ENOSYS, Code::kUnsupported},
      {ESRCH, Code::kNotFound},
      {ETIMEDOUT, Code::kTimeout},
  };
  for (const auto& c : cases)
    EXPECT_EQ(errno_error(c.err, "cannot use", "/x").code, c.code) << c.err;
  EXPECT_FALSE(errno_error(EISDIR, "cannot read", "/x").action.empty());
  const Error full = errno_error(ENOSPC, "cannot write", "/x/y");
  EXPECT_EQ(full.message, "cannot write /x/y: No space left on device");
  EXPECT_NE(full.action, "");
}

Result<int> half(int n) {
  if (n % 2 != 0) return Error{Code::kInvalid, "odd", ""};
  return n / 2;
}
Result<std::unique_ptr<int>> quarter(int n) {
  NC_ASSIGN(const int h, half(n));
  NC_ASSIGN(const int q, half(h));
  return std::make_unique<int>(q);
}
Status check_quarter(int n) {
  NC_TRY(quarter(n));
  return {};
}

TEST(Result, ValuesAndErrorsTravel) {
  auto q = quarter(12);
  ASSERT_TRUE(q.ok());
  EXPECT_EQ(**q, 3);
  EXPECT_TRUE(quarter(6).is(Code::kInvalid));
  EXPECT_FALSE(quarter(12).is(Code::kInvalid));
  EXPECT_TRUE(check_quarter(12).ok());
  EXPECT_TRUE(check_quarter(6).is(Code::kInvalid));
  std::unique_ptr<int> moved = *std::move(q);
  EXPECT_EQ(*moved, 3);
}

}  // namespace
}  // namespace nc
