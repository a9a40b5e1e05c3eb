#include "cache/tier/tier_url.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/credentials.hpp"
#include "base/number.hpp"

namespace nc::tier {
namespace {

using Scheme = TierAddress::Scheme;

constexpr std::size_t kMaxUrlBytes = 4096;
constexpr int kMaxPriority = 1000;
constexpr double kMinTimeoutS = 0.1;
constexpr double kMaxTimeoutS = 600;

enum class Kind { kFlag, kText, kPath, kChoice };

struct Option {
  std::string_view name;
  Kind kind = Kind::kText;
  std::string_view choices = {};  // "a|b"
};

constexpr std::array kCommon = {"read_only", "write_only", "compression",
                                "priority",  "timeout",    "max_bytes"};
constexpr std::array kS3Options = {
    Option{"region"},
    Option{"endpoint"},
    Option{"style", Kind::kChoice, "path|virtual"},
    Option{"profile"},
    Option{"anonymous", Kind::kFlag},
    Option{"insecure", Kind::kFlag},
    Option{"ca_file", Kind::kPath},
};
constexpr std::array kHttpOptions = {
    Option{"layout", Kind::kChoice, "plain|bazel|neuroncached"},
    Option{"conditional", Kind::kFlag},
    Option{"token_file", Kind::kPath},
    Option{"token_env"},
    Option{"insecure", Kind::kFlag},
    Option{"ca_file", Kind::kPath},
    Option{"cert_file", Kind::kPath},
    Option{"key_file", Kind::kPath},
};
constexpr std::array kRedisOptions = {
    Option{"prefix"},
    Option{"insecure", Kind::kFlag},
    Option{"ca_file", Kind::kPath},
    Option{"cert_file", Kind::kPath},
    Option{"key_file", Kind::kPath},
};

std::span<const Option> options_of(Scheme scheme) {
  switch (scheme) {
    case Scheme::kS3:
      return kS3Options;
    case Scheme::kHttp:
      return kHttpOptions;
    case Scheme::kRedis:
      return kRedisOptions;
    case Scheme::kFile:
      break;
  }
  return {};
}

Error invalid(std::string message, std::string action) {
  return {Code::kInvalid, std::move(message), std::move(action)};
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

template <class T>
std::optional<T> number(std::string_view text, T low, T high) {
  const auto value = whole_number<T>(text);
  return value && *value >= low && *value <= high ? value : std::nullopt;
}

Result<bool> flag_value(std::string_view name, std::string_view value) {
  if (value == "true" || value == "1" || value.empty()) return true;
  if (value == "false" || value == "0") return false;
  return invalid(fmt::format("the option {} is '{}'", name, value), "write true or false");
}

// Parses what stands between "scheme://" and the path.
Status parse_authority(std::string_view text, TierAddress& out) {
  if (const auto at = text.rfind('@'); at != std::string_view::npos) {
    if (out.scheme == Scheme::kS3 || out.scheme == Scheme::kFile) {
      return invalid("credentials stand in an address that takes none",
                     "leave them out; s3 finds its own in the environment, a profile or a role");
    }
    const auto credentials = text.substr(0, at);
    const auto colon = credentials.find(':');
    NC_ASSIGN(out.user, percent_decode(credentials.substr(0, colon)));
    if (colon != std::string_view::npos) {
      NC_ASSIGN(out.password, percent_decode(credentials.substr(colon + 1)));
    }
    if (has_control(out.user) || has_control(out.password)) {
      return invalid("there are control characters in the credentials", "");
    }
    text.remove_prefix(at + 1);
  }
  std::string_view port;
  if (text.starts_with('[')) {  // IPv6
    const auto end = text.find(']');
    if (end == std::string_view::npos) return invalid("the '[' of the host is not closed", "");
    out.host = lower(text.substr(1, end - 1));
    const bool valid = std::all_of(out.host.begin(), out.host.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == ':' || c == '.';
    });
    if (!valid || out.host.empty()) return invalid("the host is no IPv6 address", "");
    text.remove_prefix(end + 1);
    if (!text.empty() && !text.starts_with(':')) return invalid("the host is not valid", "");
    if (!text.empty()) port = text.substr(1);
    if (!text.empty() && port.empty()) return invalid("the port is empty", "");
  } else {
    const auto colon = text.find(':');
    out.host = lower(text.substr(0, colon));
    if (!std::all_of(out.host.begin(), out.host.end(), is_host_character)) {
      return invalid("the name of the host or bucket is not valid",
                     "write %XX for other than letters and digits in user and password");
    }
    if (colon != std::string_view::npos) {
      port = text.substr(colon + 1);
      if (port.empty()) return invalid("the port is empty", "");
    }
  }
  if (!port.empty()) {
    const auto value = number<std::uint16_t>(port, 1, 65535);
    if (!value) {
      return invalid("the port is not valid",
                     "use 1 to 65535; write %XX for other than letters and digits in user and "
                     "password");
    }
    out.port = *value;
  }
  return {};
}

Status check_place(TierAddress& out) {
  if (has_control(out.path)) return invalid("there are control characters in the path", "");
  for (std::size_t from = 0; from <= out.path.size();) {
    const auto end = std::min(out.path.find('/', from), out.path.size());
    const auto part = std::string_view(out.path).substr(from, end - from);
    if (part == "." || part == "..") return invalid("there is a '.' or '..' in the path", "");
    from = end + 1;
  }
  while (out.path.ends_with('/')) out.path.pop_back();
  switch (out.scheme) {
    case Scheme::kFile:
      if (!out.host.empty() && out.host != "localhost") {
        return invalid("a file address names a host", "write file:///directory");
      }
      out.host.clear();
      if (out.path.empty()) return invalid("the directory is missing", "write file:///directory");
      break;
    case Scheme::kS3:
      if (out.port != 0)
        return invalid("an s3 address has a port", "use endpoint=http://host:port");
      if (out.host.size() < 3 || out.host.size() > 63) {
        return invalid("the bucket's name is missing or not valid", "write s3://bucket/prefix");
      }
      if (out.path.starts_with('/')) out.path.erase(0, 1);
      if (out.path.size() > 400) return invalid("the prefix is longer than 400 bytes", "");
      if (out.path.find("//") != std::string::npos || out.path.starts_with('/')) {
        return invalid("the prefix has an empty part", "");
      }
      break;
    case Scheme::kRedis:
      if (out.path.starts_with('/')) out.path.erase(0, 1);
      if (!out.path.empty() && !number<unsigned>(out.path, 0, 1'000'000)) {
        return invalid("the path is no number of a database", "write redis://host:port/0");
      }
      [[fallthrough]];
    case Scheme::kHttp:
      if (out.host.empty()) return invalid("the host is missing", "");
      break;
  }
  return {};
}

Status set_common(std::string_view name, std::string_view value, TierAddress& out) {
  if (name == "read_only") {
    NC_ASSIGN(out.read_only, flag_value(name, value));
  } else if (name == "write_only") {
    NC_ASSIGN(out.write_only, flag_value(name, value));
  } else if (name == "compression") {
    if (value != "zstd" && value != "none") {
      return invalid(fmt::format("the option compression is '{}'", value), "write zstd or none");
    }
    out.compress = value == "zstd";
  } else if (name == "priority") {
    const auto priority = number<int>(value, 0, kMaxPriority);
    if (!priority) {
      return invalid(fmt::format("the option priority is '{}'", value), "write 0 to 1000");
    }
    out.priority = *priority;
  } else if (name == "timeout") {
    const auto seconds = parse_duration_s(value);
    if (!seconds.ok() || *seconds < kMinTimeoutS || *seconds > kMaxTimeoutS) {
      return invalid(fmt::format("the option timeout is '{}'", value),
                     "write a time from 100ms to 10m");
    }
    out.timeout_ms = static_cast<Millis>(*seconds * 1000);
  } else {  // max_bytes
    const auto bytes = parse_size(value);
    if (!bytes.ok()) {
      return invalid(fmt::format("the option max_bytes is '{}'", value), "write a size as 200GiB");
    }
    out.max_bytes = *bytes;
  }
  return {};
}

Status set_own(const Option& option, std::string value, TierAddress& out) {
  const auto name = std::string(option.name);
  if (option.kind == Kind::kFlag) {
    NC_ASSIGN(const bool on, flag_value(name, value));
    value = on ? "true" : "false";
  } else if (value.empty()) {
    return invalid(fmt::format("the option {} is empty", name), "give it a value or leave it out");
  } else if (option.kind == Kind::kPath && !value.starts_with('/')) {
    return invalid(fmt::format("the option {} is '{}'", name, value), "write an absolute path");
  } else if (option.kind == Kind::kChoice) {
    const auto all = fmt::format("|{}|", option.choices);
    if (value.find('|') != std::string::npos ||
        all.find(fmt::format("|{}|", value)) == std::string::npos) {
      return invalid(fmt::format("the option {} is '{}'", name, value),
                     fmt::format("write one of {}", option.choices));
    }
  }
  out.options[name] = std::move(value);
  return {};
}

Status set_option(std::string_view text, std::vector<std::string>& seen, TierAddress& out) {
  const auto equals = text.find('=');
  NC_ASSIGN(const auto name, percent_decode(text.substr(0, equals)));
  std::string value;
  if (equals != std::string_view::npos) {
    NC_ASSIGN(value, percent_decode(text.substr(equals + 1)));
  }
  if (has_control(value)) return invalid("there are control characters in an option", "");
  if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
    return invalid(fmt::format("the option {} is given twice", name), "give it once");
  }
  seen.push_back(name);
  if (std::find(kCommon.begin(), kCommon.end(), name) != kCommon.end()) {
    return set_common(name, value, out);
  }
  std::vector<std::string> known(kCommon.begin(), kCommon.end());
  for (const auto& option : options_of(out.scheme)) {
    if (option.name == name) return set_own(option, std::move(value), out);
    known.emplace_back(option.name);
  }
  // Text of any other shape may be the rest of a password with a '?' in it.
  const bool harmless = name.size() <= 32 && std::all_of(name.begin(), name.end(), [](char c) {
                          return (c >= 'a' && c <= 'z') || c == '_' || c == '-';
                        });
  const auto near = nearest_name(name, known);
  std::sort(known.begin(), known.end());
  return invalid(harmless ? fmt::format("there is no option '{}' of such a tier", name)
                          : std::string("there is no such option of such a tier"),
                 near ? fmt::format("did you mean {}?", *near)
                      : fmt::format("options are {}", fmt::join(known, ", ")));
}

Status check_options(const TierAddress& out) {
  if (out.read_only && out.write_only) {
    return invalid("the tier is read_only and write_only", "leave one of them out");
  }
  if (out.options.contains("cert_file") != out.options.contains("key_file")) {
    return invalid("cert_file and key_file belong together", "give both, or none");
  }
  if (out.options.contains("token_file") + out.options.contains("token_env") +
          (out.scheme == Scheme::kHttp && !(out.user + out.password).empty()) >
      1) {
    return invalid("there is more than one credential",
                   "give one of user:password, token_file and token_env");
  }
  const std::string layout = out.option("layout");
  if ((layout == "bazel" || layout == "neuroncached") && out.compress) {
    return invalid(
        "layout=" + layout + " stores blobs as they are, under the digest of their bytes",
        "add compression=none");
  }
  return {};
}

std::string shown(std::string_view scheme, const TierAddress& address) {
  std::string out = fmt::format("{}://", scheme);
  out += address.host.find(':') == std::string::npos ? address.host
                                                     : fmt::format("[{}]", address.host);
  if (address.port != 0) out += fmt::format(":{}", address.port);
  if (!address.path.empty() && !address.path.starts_with('/')) out += '/';
  return out + percent_encode(address.path, "/");
}

Result<TierAddress> parse(std::string_view text) {
  if (text.size() > kMaxUrlBytes) return invalid("the address is longer than 4096 bytes", "");
  const auto slashes = text.find("://");
  if (slashes == std::string_view::npos) {
    return invalid("the scheme is missing",
                   "write s3://, file:///, redis://, rediss:// or https://");
  }
  TierAddress out;
  const auto scheme = lower(text.substr(0, slashes));
  out.tls = scheme == "https" || scheme == "rediss";
  if (scheme == "s3") {
    out.scheme = Scheme::kS3;
  } else if (scheme == "file") {
    out.scheme = Scheme::kFile;
  } else if (scheme == "redis" || scheme == "rediss") {
    out.scheme = Scheme::kRedis;
  } else if (scheme == "http" || scheme == "https") {
    out.scheme = Scheme::kHttp;
  } else {
    return invalid("the scheme is not known", "use s3, file, redis, rediss, http or https");
  }
  text.remove_prefix(slashes + 3);
  if (text.find('#') != std::string_view::npos) {
    return invalid("there is a '#' in it", "write %23 where it is meant");
  }
  const auto query = text.find('?');
  const auto place = text.substr(0, query);
  const auto slash = std::min(place.find('/'), place.size());
  NC_TRY(parse_authority(place.substr(0, slash), out));
  NC_ASSIGN(out.path, percent_decode(place.substr(slash)));
  NC_TRY(check_place(out));
  if (query != std::string_view::npos) {
    std::vector<std::string> seen;
    auto rest = text.substr(query + 1);
    while (!rest.empty()) {
      const auto end = std::min(rest.find('&'), rest.size());
      if (end != 0) NC_TRY(set_option(rest.substr(0, end), seen, out));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  NC_TRY(check_options(out));
  out.shown = shown(scheme, out);
  return out;
}

}  // namespace

std::string TierAddress::option(const std::string& name, std::string_view otherwise) const {
  const auto found = options.find(name);
  return found == options.end() ? std::string(otherwise) : found->second;
}

bool TierAddress::flag(const std::string& name, bool otherwise) const {
  const auto found = options.find(name);
  return found == options.end() ? otherwise : found->second == "true";
}

Result<TierAddress> parse_tier_url(std::string_view text) {
  auto parsed = parse(text);
  if (parsed.ok()) return parsed;
  const auto seen = shown_address(text).substr(0, 200);
  const bool plain = !has_control(seen) && is_utf8(seen);
  return std::move(parsed).error().context(fmt::format("tier '{}'", plain ? seen : "?"));
}

Result<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\0') return invalid("there is a zero byte in it", "");
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto raw = from_hex(lower(text.substr(i + 1, 2)));
    if (!raw || raw->size() != 1 || raw->front() == '\0') {
      return invalid("a '%' is not followed by two hexadecimal digits",
                     "write %25 where it is meant");
    }
    out += *raw;
    i += 2;
  }
  return out;
}

std::string percent_encode(std::string_view text, std::string_view keep) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (is_unreserved(c) || keep.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace nc::tier
