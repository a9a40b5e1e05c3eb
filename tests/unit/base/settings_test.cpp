#include "base/settings.hpp"

#include <unistd.h>

#include <set>

#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"

namespace nc {
namespace {

using Env = std::vector<std::string>;
using Flags = std::map<std::string, std::string>;

class SettingsTest : public ::testing::Test {
 protected:
  void write_file(const std::string& path, std::string_view text) {
    ASSERT_TRUE(fs_.make_dirs(parent_dir(path)).ok());
    ASSERT_TRUE(fs_.write_atomically(path, as_bytes(text)).ok());
  }
  Result<Settings> load(Env env, const Flags& flags = {}) {
    env.emplace_back("HOME=/home/u");
    return Settings::load(fs_, env, flags);
  }
  // The whole text of the error, or "no error".
  std::string complaint(Env env, const Flags& flags = {}) {
    const auto settings = load(std::move(env), flags);
    return settings.ok() ? "no error" : settings.error().text();
  }
  std::string complaint_about_file(std::string_view text) {
    write_file("/c.toml", text);
    return complaint({"NEURONCACHE_CONFIG=/c.toml"});
  }

  FakeFileSystem fs_;
};

TEST_F(SettingsTest, TheTableIsSound) {
  std::set<std::string_view> names;
  for (const SettingSpec& spec : setting_table()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_FALSE(spec.help.empty()) << spec.name;
    EXPECT_TRUE(
        std::set<std::string_view>({"all", "daemon", "shim", "client"}).contains(spec.reader))
        << spec.name;
    const auto checked = check_setting(spec, spec.default_value);
    ASSERT_TRUE(checked.ok()) << spec.name;
    EXPECT_EQ(*checked, spec.default_value) << spec.name;
    const bool has_range = spec.type == SettingType::kInt || spec.type == SettingType::kDuration ||
                           spec.type == SettingType::kChoice;
    EXPECT_EQ(!spec.range.empty(), has_range) << spec.name;
  }
  EXPECT_EQ(find_setting("max_bytes")->name, "max_bytes");
  EXPECT_EQ(find_setting("max-bytes"), nullptr);
}

TEST_F(SettingsTest, AFileThatAnybodyMayHaveWrittenIsRefused) {
  const Env named = {"NEURONCACHE_CONFIG=/c.toml"};
  const auto written = [&](std::string_view text, std::uint32_t mode, std::uint32_t uid) {
    ASSERT_TRUE(fs_.write_atomically("/c.toml", as_bytes(text), mode).ok());
    fs_.set_owner("/c.toml", uid);
  };
  const std::string_view trusting = "trust = \"any\"\n";
  written(trusting, 0602, ::geteuid());
  EXPECT_NE(complaint(named).find("written by everybody (mode 0602)"), std::string::npos);
  EXPECT_NE(complaint(named).find("chmod o-w /c.toml"), std::string::npos);
  written(trusting, 0600, ::geteuid() + 1);
  EXPECT_NE(complaint(named).find("belongs to uid"), std::string::npos);
  written(trusting, 0664, 0);  // the group has been given the right
  EXPECT_EQ(complaint(named), "no error");
  written("", 0666, ::geteuid() + 1);  // nothing is said there
  EXPECT_EQ(complaint(named), "no error");
}

TEST_F(SettingsTest, DefaultsHaveTheirTypes) {
  const auto settings = load({});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->text("namespace"), "default");
  EXPECT_EQ(settings->text("dir"), "");
  EXPECT_EQ(settings->integer("max_entries"), 1'000'000);
  EXPECT_EQ(settings->size("min_free"), 256U << 20);
  EXPECT_EQ(settings->size("max_bytes"), 0U);
  EXPECT_DOUBLE_EQ(settings->seconds("failure_ttl"), 3600);
  EXPECT_TRUE(settings->boolean("compression"));
  EXPECT_FALSE(settings->boolean("read_only"));
  EXPECT_TRUE(settings->quotas("namespace_quota").empty());
  EXPECT_EQ(settings->origin("dir"), Origin::kDefault);
  EXPECT_EQ(settings->origin_detail("dir"), "default");
  EXPECT_EQ(settings->config_path(), "/home/u/.config/neuroncache/config.toml");
}

TEST_F(SettingsTest, EachSourceIsReadAndTheLaterWins) {
  write_file("/home/u/.config/neuroncache/config.toml",
             "# mine\nmax_entries = 5\nio_threads = 6\ndisk_threads = 7\n");
  const auto settings = load({"NEURONCACHE_IO_THREADS=8", "NEURONCACHE_DISK_THREADS=9", "OTHER=1"},
                             {{"disk-threads", "10"}, {"log_level", "debug"}});
  ASSERT_TRUE(settings.ok()) << settings.error().text();
  EXPECT_EQ(settings->integer("max_entries"), 5);
  EXPECT_EQ(settings->origin("max_entries"), Origin::kFile);
  EXPECT_EQ(settings->origin_detail("max_entries"),
            "file /home/u/.config/neuroncache/config.toml line 2");
  EXPECT_EQ(settings->integer("io_threads"), 8);
  EXPECT_EQ(settings->origin("io_threads"), Origin::kEnvironment);
  EXPECT_EQ(settings->origin_detail("io_threads"), "environment NEURONCACHE_IO_THREADS");
  EXPECT_EQ(settings->integer("disk_threads"), 10);
  EXPECT_EQ(settings->origin("disk_threads"), Origin::kFlag);
  EXPECT_EQ(settings->origin_detail("disk_threads"), "flag --disk-threads");
  EXPECT_EQ(settings->text("log_level"), "debug");
}

TEST_F(SettingsTest, WhereTheFileIs) {
  write_file("/xdg/neuroncache/config.toml", "max_entries = 1\n");
  write_file("/named.toml", "max_entries = 2\n");
  write_file("/flag.toml", "max_entries = 3\n");
  EXPECT_EQ(load({"XDG_CONFIG_HOME=/xdg"})->integer("max_entries"), 1);
  EXPECT_EQ(
      load({"XDG_CONFIG_HOME=/xdg", "NEURONCACHE_CONFIG=/named.toml"})->integer("max_entries"), 2);
  EXPECT_EQ(
      load({"NEURONCACHE_CONFIG=/named.toml"}, {{"config", "/flag.toml"}})->integer("max_entries"),
      3);
  EXPECT_EQ(load({"XDG_CONFIG_HOME=relative"})->config_path(),
            "/home/u/.config/neuroncache/config.toml");
  EXPECT_TRUE(load({"XDG_CONFIG_HOME=/elsewhere"}).ok());
  const auto missing = load({"NEURONCACHE_CONFIG=/none.toml"});
  ASSERT_TRUE(missing.is(Code::kNotFound));
  EXPECT_NE(missing.error().message.find("/none.toml"), std::string::npos);
  EXPECT_TRUE(load({"NEURONCACHE_CONFIG=none.toml"}).is(Code::kInvalid));
}

TEST_F(SettingsTest, UnknownNamesAreRefusedWithTheNearest) {
  EXPECT_EQ(complaint_about_file("dir = '/a'\nmax_byte = 5\n"),
            "file /c.toml line 2: there is no setting max_byte (did you mean max_bytes?)");
  EXPECT_EQ(complaint({"NEURONCACHE_MAX_BYTE=5"}),
            "environment: there is no setting NEURONCACHE_MAX_BYTE (did you mean "
            "NEURONCACHE_MAX_BYTES?)");
  EXPECT_EQ(
      complaint({"NEURONCACHE_CONFG=/x"}),
      "environment: there is no setting NEURONCACHE_CONFG (did you mean NEURONCACHE_CONFIG?)");
  EXPECT_EQ(complaint({"NEURONCACHE_dir=/x"}),
            "environment: there is no setting NEURONCACHE_dir (did you mean NEURONCACHE_DIR?)");
  EXPECT_EQ(complaint({}, {{"max-byte", "5"}}),
            "there is no setting --max-byte (did you mean --max-bytes?)");
  EXPECT_NE(complaint({"NEURONCACHE_ZZZZZZ=1"}).find("config show"), std::string::npos);
  EXPECT_NE(complaint({"NEURONCACHE_ZZZZZZ="}).find("NEURONCACHE_ZZZZZZ"), std::string::npos);
}

TEST_F(SettingsTest, BadValuesNameSourceNameValueAndWhatIsAllowed) {
  EXPECT_EQ(complaint({"NEURONCACHE_IO_THREADS=0"}),
            "environment NEURONCACHE_IO_THREADS: io_threads = \"0\" is not allowed (it takes a "
            "whole number from 1 to 64)");
  EXPECT_EQ(complaint({}, {{"io-threads", "65"}}),
            "flag --io-threads: io_threads = \"65\" is not allowed (it takes a whole number from 1 "
            "to 64)");
  EXPECT_EQ(complaint_about_file("\nio_threads = 'two'\n"),
            "file /c.toml line 2: io_threads = \"two\" is not allowed (it takes a whole number "
            "from 1 to 64)");
  EXPECT_EQ(complaint({"NEURONCACHE_LOG_LEVEL=wran"}),
            "environment NEURONCACHE_LOG_LEVEL: log_level = \"wran\" is not allowed (it takes one "
            "of trace, debug, info, "
            "warn, error, off; did you mean warn?)");
  EXPECT_NE(complaint({"NEURONCACHE_MAX_BYTES=10 potatoes"}).find("10GiB"), std::string::npos);
  EXPECT_NE(complaint({"NEURONCACHE_LEASE_TTL=1ms"}).find("from 1s to 10m"), std::string::npos);
  EXPECT_NE(complaint({"NEURONCACHE_STRICT=maybe"}).find("true or false"), std::string::npos);
  EXPECT_NE(complaint({"NEURONCACHE_DIR=relative/path"}).find("an absolute path"),
            std::string::npos);
  EXPECT_NE(complaint({"NEURONCACHE_NAMESPACE=a\nb"}).find("control characters"),
            std::string::npos);
  EXPECT_NE(complaint({"NEURONCACHE_NAMESPACE=a\xff"}).find("UTF-8"), std::string::npos);
  EXPECT_NE(complaint({"NEURONCACHE_NAMESPACE_QUOTA=a"}).find("name=size"), std::string::npos);
  EXPECT_NE(complaint({"NEURONCACHE_NAMESPACE_QUOTA=a=1,a=2"}).find("given twice"),
            std::string::npos);
}

TEST_F(SettingsTest, ValuesInTheirManyForms) {
  const auto settings =
      load({"NEURONCACHE_STRICT=ON", "NEURONCACHE_COMPRESSION=0", "NEURONCACHE_IDLE_EXIT=90",
            "NEURONCACHE_MAX_BYTES= 1.5 GB ", "NEURONCACHE_NAMESPACE_QUOTA=a=1KiB, b=2",
            "NEURONCACHE_NAMESPACE=", "NEURONCACHE_IO_THREADS=04"});
  ASSERT_TRUE(settings.ok()) << settings.error().text();
  EXPECT_TRUE(settings->boolean("strict"));
  EXPECT_EQ(settings->text("strict"), "true");
  EXPECT_FALSE(settings->boolean("compression"));
  EXPECT_DOUBLE_EQ(settings->seconds("idle_exit"), 90);
  EXPECT_EQ(settings->size("max_bytes"), 1'500'000'000U);
  EXPECT_EQ(settings->quotas("namespace_quota"),
            (std::map<std::string, std::uint64_t>{{"a", 1024}, {"b", 2}}));
  EXPECT_EQ(settings->text("namespace"), "default");  // empty: not set
  EXPECT_EQ(settings->text("io_threads"), "4");
}

TEST_F(SettingsTest, FileValuesOfEveryTomlType) {
  write_file("/c.toml",
             "max_bytes = 4096\nmin_free = '1GiB'\nstrict = true\nlease_ttl = 2.5\nidle_exit = 60\n"
             "[namespace_quota]\nteam = '10GiB'\nother = 5\n");
  const auto settings = load({"NEURONCACHE_CONFIG=/c.toml"});
  ASSERT_TRUE(settings.ok()) << settings.error().text();
  EXPECT_EQ(settings->size("max_bytes"), 4096U);
  EXPECT_EQ(settings->size("min_free"), 1U << 30);
  EXPECT_TRUE(settings->boolean("strict"));
  EXPECT_DOUBLE_EQ(settings->seconds("lease_ttl"), 2.5);
  EXPECT_DOUBLE_EQ(settings->seconds("idle_exit"), 60);
  EXPECT_EQ(settings->quotas("namespace_quota"),
            (std::map<std::string, std::uint64_t>{{"team", 10ULL << 30}, {"other", 5}}));
}

TEST_F(SettingsTest, BadFiles) {
  EXPECT_NE(complaint_about_file("dir = '/a'\nio_threads = = 3\n").find("file /c.toml line 2"),
            std::string::npos);
  EXPECT_NE(complaint_about_file("dir = ['/a']\n").find("line 1: dir is a list"),
            std::string::npos);
  EXPECT_NE(complaint_about_file("[namespace_quota.a]\nb = 1\n").find("nested"), std::string::npos);
  EXPECT_NE(complaint_about_file("[daemon]\nio_threads = 1\n").find("no setting daemon"),
            std::string::npos);
  EXPECT_NE(complaint_about_file("dir = '/a'\ndir = '/b'\n").find("line 2"), std::string::npos);
  EXPECT_NE(complaint_about_file(std::string((1 << 20) + 1, '#')).find("/c.toml"),
            std::string::npos);
  EXPECT_NE(complaint_about_file(std::string("strict = true\n[\0x", 17))
                .find("line 2: there is a control"),
            std::string::npos);
  EXPECT_NE(complaint_about_file("strict = true\n\xc3\xa9 = 1\n").find("line 2"),
            std::string::npos);
  EXPECT_NE(complaint_about_file("namespace = '\xff'\n").find("not UTF-8"), std::string::npos);
  EXPECT_EQ(complaint_about_file("\xef\xbb\xbfstrict = true\n"), "no error");
  EXPECT_NE(complaint_about_file("[= x]\n").find("file /c.toml is not TOML"), std::string::npos);
  EXPECT_EQ(complaint_about_file(""), "no error");
  fs_.fail({.call = FakeFileSystem::Call::kRead, .error = {Code::kDenied, "cannot read it", ""}});
  EXPECT_EQ(complaint({}), "reading the settings file: cannot read it");  // a default file that is
                                                                          // there must be readable
}

TEST_F(SettingsTest, TheSwitch) {
  const auto on = [](const char* value) {
    return switched_on(Env{std::string("NEURONCACHE=") + value});
  };
  EXPECT_TRUE(*switched_on({}));
  EXPECT_TRUE(*on(""));
  EXPECT_TRUE(*on("1"));
  EXPECT_FALSE(*on("0"));
  EXPECT_FALSE(*on("off"));
  EXPECT_TRUE(on("banana").is(Code::kInvalid));
  EXPECT_EQ(complaint({"NEURONCACHE=banana"}),
            "environment NEURONCACHE = \"banana\" is not allowed (it takes 0 (off) or 1 (on))");
  EXPECT_TRUE(load({"NEURONCACHE=0"}).ok());
}

TEST_F(SettingsTest, SetIsChecked) {
  auto settings = load({});
  ASSERT_TRUE(settings.ok());
  EXPECT_TRUE(settings->set("max_entries", "7", Origin::kLive, "set by pid 5").ok());
  EXPECT_EQ(settings->integer("max_entries"), 7);
  EXPECT_EQ(settings->origin("max_entries"), Origin::kLive);
  EXPECT_EQ(settings->origin_detail("max_entries"), "set by pid 5");
  EXPECT_TRUE(settings->set("max_entries", "0", Origin::kLive, "").is(Code::kInvalid));
  EXPECT_TRUE(settings->set("max_entry", "1", Origin::kLive, "").is(Code::kInvalid));
  EXPECT_EQ(settings->integer("max_entries"), 7);
  EXPECT_EQ(origin_name(Origin::kLive), "live");
}

TEST_F(SettingsTest, Places) {
  const Env xdg = {"XDG_CACHE_HOME=/c", "XDG_RUNTIME_DIR=/r", "HOME=/h"};
  EXPECT_EQ(default_store_dir(xdg), "/c/neuroncache");
  EXPECT_EQ(default_socket_path(xdg), "/r/neuroncache/daemon.sock");
  const Env home = {"HOME=/h"};
  EXPECT_EQ(default_store_dir(home), "/h/.cache/neuroncache");
  EXPECT_EQ(default_socket_path(home),
            "/tmp/neuroncache-" + std::to_string(::getuid()) + "/daemon.sock");
  EXPECT_TRUE(default_store_dir({}).ends_with("neuroncache"));  // from the password file
  const Env relative = {"XDG_CACHE_HOME=c", "HOME=/h"};
  EXPECT_EQ(default_store_dir(relative), "/h/.cache/neuroncache");
}

TEST_F(SettingsTest, TheProcessEnvironment) {
  ASSERT_EQ(::setenv("NC_TEST_VARIABLE", "x=y", 1), 0);
  const auto env = process_environment();
  EXPECT_NE(std::find(env.begin(), env.end(), "NC_TEST_VARIABLE=x=y"), env.end());
}

}  // namespace
}  // namespace nc
