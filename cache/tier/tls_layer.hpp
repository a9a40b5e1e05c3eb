// The client's side of TLS as a transformation of bytes: what moves them is elsewhere. TLS 1.2 or
// later; the server's certificate and name are always checked.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace nc::tier {

struct TlsFiles {              // paths; "": none
  std::string ca_file = {};    // certificates to believe instead of the system's
  std::string cert_file = {};  // the client's own certificate, and its key
  std::string key_file = {};
};

class TlsLayer {
 public:
  // `host`: a name or an address, as the certificate has to hold it.
  static Result<std::unique_ptr<TlsLayer>> client(const std::string& host, const TlsFiles& files);
  ~TlsLayer();

  // After each call: send what to_send() gives; then, where the call had not enough, receive more.
  Result<bool> handshake();  // true: done; kIo: the server cannot prove who it is, or speaks no TLS
  Status encrypt(Bytes bytes);
  Result<std::size_t> decrypt(std::span<std::byte> out);  // 0: more has to be received
  std::string to_send();
  void received(Bytes bytes);

 private:
  struct Impl;
  explicit TlsLayer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace nc::tier
