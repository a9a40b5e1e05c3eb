#include "base/credentials.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/settings.hpp"

namespace nc {
namespace {

TEST(Credentials, AreLeftOutOfAddresses) {
  const std::pair<const char*, const char*> cases[] = {
      {"redis://me:secret@host/0", "redis://***@host/0"},
      {"https://u@[::1]:8443/a", "https://***@[::1]:8443/a"},
      {"https://host:8443/a?layout=bazel&priority=1",
       "https://host:8443/a?layout=bazel&priority=1"},
      {"https://host/a?token=secret&region=x", "https://host/a?token=***&region=x"},
      {"https://host/a?secret", "https://host/a?***"},
      {"https://host/a?read_only", "https://host/a?read_only"},
      {"https://host/a?x=#secret", "https://host/a?x=#***"},
      {"s3://bucket/a@b?region=r", "s3://bucket/a@b?region=r"},
      {"file:///mnt/a@b", "file:///mnt/a@b"},
      // Written down wrongly, with the secret where none belongs.
      {"s3://AKIA:sec/ret@bucket/p", "s3://***@bucket/p"},
      {"redis://me:sec/ret@host/0", "redis://***@host/0"},
      {"redis://me:sec?ret@host/0", "redis://***@host/0"},
      {"redis://me:sec@ret@host/0?secret=y", "redis://***@host/0?secret=***"},
      {"redis:/me:secret@host", "***@host"},
      {"me:secret@redis://host", "***@redis://host"},
      {"", ""},
  };
  for (const auto& [address, shown] : cases) EXPECT_EQ(shown_address(address), shown);
}

TEST(Credentials, AreHiddenInArguments) {
  std::vector<std::string> words = {"neuroncached",
                                    "--tiers",
                                    "redis://me:secret@host/0 https://u@[::1]:8443/ab s3://x/y@z",
                                    "--tier=https://a:b%40c@h?x=1",
                                    "a@b",
                                    "://@",
                                    ""};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  hide_credentials(argv);
  EXPECT_EQ(words[2], "redis://*********@host/0 https://*@[::1]:8443/ab s3://x/y@z");
  EXPECT_EQ(words[3], "--tier=https://*******@h?x=*");
  EXPECT_EQ(words[4], "a@b");
  EXPECT_EQ(words[5], "://@");
}

TEST(Credentials, AreInNoErrorOfASetting) {
  const SettingSpec& spec = *find_setting("tiers");
  for (const char* value : {"redis:/me:secret@host", "secret", "redis://me:sec ret@host/0",
                            "me:secret@host redis://host", "redis://me:secret@host/0 x"}) {
    const auto checked = check_setting(spec, value);
    ASSERT_FALSE(checked.ok()) << value;
    EXPECT_EQ(checked.error().text().find("sec"), std::string::npos) << checked.error().text();
    EXPECT_EQ(checked.error().text().find("ret@"), std::string::npos) << checked.error().text();
  }
}

}  // namespace
}  // namespace nc
