#include "cache/tier/loopback.hpp"

#include <arpa/inet.h>

#include <fmt/format.h>

namespace nc::tier {

bool is_loopback(std::string_view host) {
  if (host == "localhost") return true;
  const std::string text(host);
  in_addr four{};
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  return ::inet_pton(AF_INET6, text.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

std::string host_of_url(std::string_view url) {
  const auto address = parse_tier_url(url.substr(0, url.find('?')));
  return address.ok() ? address->host : "";
}

Status check_clear(const TierAddress& address, std::string_view host, bool tls,
                   std::string_view what) {
  if (tls || is_loopback(host) || address.flag("insecure", false)) return {};
  return Error{Code::kInvalid,
               fmt::format("{}: {} would go over the network in the clear", address.shown, what),
               "use TLS, or add insecure=true to the address where the network is trusted"};
}

}  // namespace nc::tier
