#include "cache/tier/write_aside.hpp"

#include <gtest/gtest.h>

#include "tests/unit/cache/store_box.hpp"

namespace nc::tier {
namespace {

class Collected final : public Upload {
 public:
  explicit Collected(std::size_t room = SIZE_MAX) : room_(room) {}
  Status write(Bytes piece) override {
    if (bytes.size() + piece.size() > room_) return Error{Code::kNoSpace, "full", ""};
    bytes += as_text(piece);
    ++calls;
    return {};
  }
  Status finish() override { return {}; }

  std::string bytes;
  int calls = 0;

 private:
  const std::size_t room_;
};

TEST(WriteAsideTest, AllBytesComeInOrder) {
  const std::string sent = noise(9'000'001, 1);
  for (const std::size_t step : {std::size_t{16} << 10, std::size_t{1'000'003}, sent.size()}) {
    Collected upload;
    WriteAside writer(upload, sent.size());
    for (std::size_t at = 0; at < sent.size(); at += step) {
      ASSERT_TRUE(writer.write(as_bytes(std::string_view(sent).substr(at, step))).ok());
    }
    ASSERT_TRUE(writer.drain().ok());
    EXPECT_TRUE(upload.bytes == sent) << step;
  }
}

TEST(WriteAsideTest, SmallOnesAreWrittenAtOnce) {
  Collected upload;
  WriteAside writer(upload, WriteAside::kLeast - 1);
  ASSERT_TRUE(writer.write(as_bytes("ab")).ok());
  EXPECT_EQ(upload.bytes, "ab");
  ASSERT_TRUE(writer.write(as_bytes("c")).ok());
  ASSERT_TRUE(writer.drain().ok());
  EXPECT_EQ(upload.calls, 2);
}

TEST(WriteAsideTest, AFailureIsToldAndNothingIsWrittenAfterIt) {
  const std::string sent = noise(1 << 20, 2);
  Collected upload(3 << 20);
  WriteAside writer(upload, 64 << 20);
  Status last;
  int given = 0;
  while (last.ok() && ++given < 64) last = writer.write(as_bytes(sent));
  EXPECT_TRUE(last.is(Code::kNoSpace)) << given;
  EXPECT_TRUE(writer.drain().is(Code::kNoSpace));
  EXPECT_TRUE(writer.write(as_bytes(sent)).is(Code::kNoSpace));
  EXPECT_EQ(upload.bytes.size(), std::size_t{3} << 20);
}

TEST(WriteAsideTest, OneThatIsGivenUpEnds) {
  Collected upload;
  WriteAside writer(upload, 64 << 20);
  ASSERT_TRUE(writer.write(as_bytes(noise(5 << 20, 3))).ok());
}

}  // namespace
}  // namespace nc::tier
