#include "cache/tier/tls_layer.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include <array>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace nc::tier {
namespace {

// Where distributions keep the certificates that they believe, besides OpenSSL's own place.
constexpr std::array kBundles = {"/etc/ssl/certs/ca-certificates.crt",
                                 "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                 "/etc/ssl/cert.pem"};

Error tls_error(std::string what) {
  const auto code = ::ERR_get_error();
  if (code != 0) {
    char text[256] = "";
    ::ERR_error_string_n(code, text, sizeof text);
    what += std::string(": ") + text;
  }
  ::ERR_clear_error();
  return {Code::kIo, std::move(what),
          "check the server's certificate; ca_file=/path in the tier's address names other "
          "authorities to believe"};
}

bool is_address(const std::string& host) {
  unsigned char buffer[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), buffer) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

}  // namespace

struct TlsLayer::Impl {
  std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)> context{nullptr, &::SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&::SSL_free)> ssl{nullptr, &::SSL_free};
  BIO* in = nullptr;  // both belong to ssl
  BIO* out = nullptr;
};

TlsLayer::TlsLayer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsLayer::~TlsLayer() = default;

Result<std::unique_ptr<TlsLayer>> TlsLayer::client(const std::string& host, const TlsFiles& files) {
  ::ERR_clear_error();
  auto impl = std::make_unique<Impl>();
  impl->context.reset(::SSL_CTX_new(::TLS_client_method()));
  SSL_CTX* context = impl->context.get();
  if (context == nullptr || ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
    return tls_error("TLS cannot be set up");
  }
  ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  if (!files.cert_file.empty() &&
      (::SSL_CTX_use_certificate_chain_file(context, files.cert_file.c_str()) != 1 ||
       ::SSL_CTX_use_PrivateKey_file(context, files.key_file.c_str(), SSL_FILETYPE_PEM) != 1)) {
    return tls_error("the certificate in " + files.cert_file + ", or its key in " + files.key_file +
                     ", cannot be used");
  }
  if (!files.ca_file.empty()) {
    if (::SSL_CTX_load_verify_file(context, files.ca_file.c_str()) != 1) {
      return tls_error("the certificates in " + files.ca_file + " cannot be read");
    }
  } else {
    ::SSL_CTX_set_default_verify_paths(context);
    for (const char* bundle : kBundles) {
      if (::access(bundle, R_OK) == 0 && ::SSL_CTX_load_verify_file(context, bundle) == 1) break;
    }
    ::ERR_clear_error();
  }
  impl->ssl.reset(::SSL_new(context));
  SSL* ssl = impl->ssl.get();
  impl->in = ::BIO_new(::BIO_s_mem());
  impl->out = ::BIO_new(::BIO_s_mem());
  if (ssl == nullptr || impl->in == nullptr || impl->out == nullptr) {
    return tls_error("TLS cannot be set up");
  }
  ::SSL_set_bio(ssl, impl->in, impl->out);
  ::SSL_set_connect_state(ssl);
  X509_VERIFY_PARAM* wanted = ::SSL_get0_param(ssl);
  ::X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const bool named = is_address(host)
                         ? ::X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1
                         : ::X509_VERIFY_PARAM_set1_host(wanted, host.c_str(), host.size()) == 1 &&
                               SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
  if (!named) return tls_error("TLS cannot be set up for " + host);
  return std::unique_ptr<TlsLayer>(new TlsLayer(std::move(impl)));
}

Result<bool> TlsLayer::handshake() {
  ::ERR_clear_error();
  const int done = ::SSL_do_handshake(impl_->ssl.get());
  if (done == 1) return true;
  if (::SSL_get_error(impl_->ssl.get(), done) == SSL_ERROR_WANT_READ) return false;
  const auto verified = ::SSL_get_verify_result(impl_->ssl.get());
  if (verified != X509_V_OK) {
    ::ERR_clear_error();
    return tls_error(std::string("the server's certificate is not believed: ") +
                     ::X509_verify_cert_error_string(verified));
  }
  return tls_error("TLS could not be agreed upon");
}

Status TlsLayer::encrypt(Bytes bytes) {
  ::ERR_clear_error();
  const int n = ::SSL_write(impl_->ssl.get(), bytes.data(), static_cast<int>(bytes.size()));
  if (n == static_cast<int>(bytes.size())) return {};
  return tls_error("TLS broke");
}

Result<std::size_t> TlsLayer::decrypt(std::span<std::byte> out) {
  ::ERR_clear_error();
  const int n = ::SSL_read(impl_->ssl.get(), out.data(), static_cast<int>(out.size()));
  if (n > 0) return static_cast<std::size_t>(n);
  const int why = ::SSL_get_error(impl_->ssl.get(), n);
  if (why == SSL_ERROR_WANT_READ) return std::size_t{0};
  if (why == SSL_ERROR_ZERO_RETURN) {
    return Error{Code::kUnavailable, "the connection was closed", ""};
  }
  return tls_error("TLS broke");
}

std::string TlsLayer::to_send() {
  std::string bytes(::BIO_ctrl_pending(impl_->out), '\0');
  if (bytes.empty()) return bytes;
  const int n = ::BIO_read(impl_->out, bytes.data(), static_cast<int>(bytes.size()));
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return bytes;
}

void TlsLayer::received(Bytes bytes) {
  ::BIO_write(impl_->in, bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace nc::tier
