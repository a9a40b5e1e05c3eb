// docs/settings.md, made from the table.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/settings.hpp"

namespace nc {
namespace {

constexpr std::string_view kHead = R"(# Settings

Every setting can be given in the settings file, in the environment and, to programs, as a flag; the later wins:
default, file, environment, flag. `max_bytes` is `max_bytes = "20GiB"` in the file, `NEURONCACHE_MAX_BYTES=20GiB` in the
environment and `--max-bytes 20GiB` as a flag. A name that does not exist is refused. An empty variable counts as not set.

The settings file is TOML: `$NEURONCACHE_CONFIG`, else `$XDG_CONFIG_HOME/neuroncache/config.toml`, else
`~/.config/neuroncache/config.toml`. `neuroncache config show` prints every value and where it comes from.

Sizes: `4096`, `1.5 MB` (decimal), `10GiB` or `10G` (binary). Durations: `250ms`, `90s`, `2h30m`, `7d`; a bare number is
seconds. Paths are absolute. "Live" settings may be changed while the daemon runs (`neuroncache config set`); the others
need a restart.

`NEURONCACHE=0` in the environment switches everything off.

| setting | kind | default | allowed | live | read by | what it does |
|---|---|---|---|---|---|---|
)";

std::string_view kind_name(SettingType type) {
  switch (type) {
    case SettingType::kString:
      return "text";
    case SettingType::kPath:
      return "path";
    case SettingType::kBool:
      return "true/false";
    case SettingType::kInt:
      return "number";
    case SettingType::kSize:
      return "size";
    case SettingType::kDuration:
      return "duration";
    case SettingType::kChoice:
      return "choice";
    case SettingType::kQuotas:
      return "sizes by name";
    case SettingType::kAddresses:
      return "addresses";
  }
  return "";
}

std::string code(std::string_view text) {
  return text.empty() ? "" : fmt::format("`{}`", text);
}

// "a|b" would end a cell of the table.
std::string choices(std::string_view range) {
  std::string out = code(range);
  for (std::size_t at = 0; (at = out.find('|', at)) != std::string::npos; at += 4) {
    out.replace(at, 1, "`, `");
  }
  return out;
}

}  // namespace

std::string settings_markdown() {
  std::string out(kHead);
  for (const SettingSpec& spec : setting_table()) {
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", spec.name, kind_name(spec.type),
                       code(spec.default_value), choices(spec.range), spec.live ? "yes" : "no",
                       spec.reader, spec.help);
  }
  return out;
}

}  // namespace nc
