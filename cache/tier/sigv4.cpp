#include "cache/tier/sigv4.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "cache/tier/tier_url.hpp"

namespace nc::tier {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

std::string sha256_hex(std::string_view text) {
  return Sha256::of(as_bytes(text)).hex();
}

// Name in lower case -> value with single blanks; values of one name joined.
std::map<std::string, std::string> canonical_headers(const std::vector<HttpHeader>& headers) {
  std::map<std::string, std::string> out;
  for (const auto& header : headers) {
    std::string name = header.name;
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    std::string value;
    for (const char c : header.value) {
      if (c != ' ' || (!value.empty() && value.back() != ' ')) value += c;
    }
    if (value.ends_with(' ')) value.pop_back();
    const auto [at, fresh] = out.try_emplace(name, value);
    if (!fresh) at->second += "," + value;
  }
  return out;
}

std::string signed_names(const std::map<std::string, std::string>& headers) {
  std::string out;
  for (const auto& [name, value] : headers) out += (out.empty() ? "" : ";") + name;
  return out;
}

}  // namespace

std::string hmac_sha256(std::string_view key, std::string_view text) {
  constexpr std::size_t kBlock = 64;
  std::string padded =
      key.size() > kBlock ? std::string(Sha256::of(as_bytes(key)).view()) : std::string(key);
  padded.resize(kBlock, '\0');
  const auto pass = [&](char mask, std::string_view input) {
    std::string pad = padded;
    for (char& c : pad) c = static_cast<char>(c ^ mask);
    Sha256Hasher hasher;
    hasher.update(as_bytes(pad));
    hasher.update(as_bytes(input));
    return std::string(hasher.finish().view());
  };
  return pass(0x5c, pass(0x36, text));
}

std::string amz_date(Millis wall_ms) {
  using namespace std::chrono;
  const auto time = sys_seconds(duration_cast<seconds>(milliseconds(wall_ms)));
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

std::string canonical_query(QueryFields query) {
  for (auto& [name, value] : query) {
    name = percent_encode(name);
    value = percent_encode(value);
  }
  std::sort(query.begin(), query.end());
  std::string out;
  for (const auto& [name, value] : query) {
    if (!out.empty()) out += '&';
    out += name;
    out += '=';
    out += value;
  }
  return out;
}

std::string canonical_request(const SigningInput& input) {
  const auto headers = canonical_headers(input.headers);
  std::string lines;
  for (const auto& [name, value] : headers) lines += fmt::format("{}:{}\n", name, value);
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", input.method, input.path,
                     canonical_query(input.query), lines, signed_names(headers),
                     input.payload_hash);
}

void sign(SigningInput& input, const AwsKeys& keys, const SigningScope& scope) {
  const auto date = amz_date(scope.wall_ms);
  const auto day = date.substr(0, 8);
  input.headers.push_back({"x-amz-date", date});
  if (!keys.token.empty()) input.headers.push_back({"x-amz-security-token", keys.token});
  const auto where = fmt::format("{}/{}/{}/aws4_request", day, scope.region, scope.service);
  const auto to_sign =
      fmt::format("{}\n{}\n{}\n{}", kAlgorithm, date, where, sha256_hex(canonical_request(input)));
  std::string key = "AWS4" + keys.secret;
  for (const std::string& part : {day, scope.region, scope.service, std::string("aws4_request")}) {
    key = hmac_sha256(key, part);
  }
  input.headers.push_back(
      {"authorization",
       fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm, keys.id,
                   where, signed_names(canonical_headers(input.headers)),
                   to_hex(as_bytes(hmac_sha256(key, to_sign))))});
}

}  // namespace nc::tier
