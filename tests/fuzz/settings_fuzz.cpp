// The settings: a file as it comes, the same text as environment and flags, and saving a value into
// the file.
#include "base/fake_filesystem.hpp"
#include "base/settings.hpp"
#include "tests/fuzz/fuzz_input.hpp"

using nc::Settings;

namespace {

const std::string kFile = "/config.toml";

void try_as_environment(nc::FileSystem& fs, std::string_view text) {
  std::vector<std::string> env;
  std::map<std::string, std::string> flags;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    env.push_back("NEURONCACHE_" + std::string(line));
    const auto equals = line.find('=');
    if (equals != std::string_view::npos) {
      flags[std::string(line.substr(0, equals))] = line.substr(equals + 1);
    }
  }
  env.emplace_back("HOME=/nowhere");
  const auto from_env = Settings::load(fs, env, {});
  FUZZ_REQUIRE(from_env.ok() || !from_env.error().message.empty());
  const std::vector<std::string> no_env = {"HOME=/nowhere"};
  const auto from_flags = Settings::load(fs, no_env, flags);
  FUZZ_REQUIRE(from_flags.ok() || !from_flags.error().message.empty());
}

// Every value that was let in reads back through its typed form.
void use(const Settings& settings) {
  for (const nc::SettingSpec& spec : nc::setting_table()) {
    const auto checked = nc::check_setting(spec, settings.text(spec.name));
    FUZZ_REQUIRE(checked.ok() && *checked == settings.text(spec.name));
    FUZZ_REQUIRE(settings.seconds(spec.name) >= 0);
    static_cast<void>(settings.quotas(spec.name));
    static_cast<void>(settings.size(spec.name));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = nc::as_text(nc::fuzz_bytes(data, size));
  nc::FakeFileSystem fs;
  try_as_environment(fs, text);
  FUZZ_REQUIRE(fs.write_atomically(kFile, nc::as_bytes(text)).ok());
  const std::vector<std::string> env = {"NEURONCACHE_CONFIG=" + kFile};
  const auto settings = Settings::load(fs, env, {});
  if (settings.ok()) use(*settings);
  // Saving changes the one value and leaves the others, or leaves the file.
  const auto saved = Settings::save_to_file(fs, kFile, "drain", "7s");
  if (!saved.ok()) {
    FUZZ_REQUIRE(*fs.read_all(kFile, size) == text);
  } else if (settings.ok()) {
    const auto after = Settings::load(fs, env, {});
    FUZZ_REQUIRE(after.ok() && after->text("drain") == "7s");
    for (const nc::SettingSpec& spec : nc::setting_table()) {
      FUZZ_REQUIRE(spec.name == "drain" || after->text(spec.name) == settings->text(spec.name));
    }
  }
  return 0;
}
