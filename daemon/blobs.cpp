// Blobs in and out. An upload reserves its space before the first byte is read, and is written by
// disk threads.
#include "base/log.hpp"
#include "daemon/answers.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

constexpr std::string_view kBytesType = "application/octet-stream";

HttpResponse stored(const Digest& digest, std::uint64_t size, bool existed) {
  return answer({{"digest", digest.hex()}, {"size", size}, {"existed", existed}},
                existed ? 200 : 201);
}

class StoreSink final : public BodySink {
 public:
  StoreSink(Service& service, std::unique_ptr<Upload> upload, const Digest& digest,
            std::uint64_t size, std::string lease)
      : service_(service),
        upload_(std::move(upload)),
        digest_(digest),
        size_(size),
        lease_(std::move(lease)) {}

  Status write(Bytes bytes) override {
    if (!lease_.empty()) service_.leases.touch(lease_);
    return upload_->write(bytes);
  }

  HttpResponse finish() override {
    if (!lease_.empty()) service_.leases.touch(lease_);
    Status finished = upload_->finish();
    upload_.reset();
    if (!finished.ok()) return HttpResponse::error(finished.error());
    const auto lease = service_.leases.find(lease_);
    const std::string name_space = lease ? lease->request.name_space : "default";
    service_.store.count(name_space, "uploads", 1);
    service_.store.count(name_space, "upload_bytes", static_cast<double>(size_));
    return stored(digest_, size_, false);
  }

 private:
  Service& service_;
  std::unique_ptr<Upload> upload_;
  const Digest digest_;
  const std::uint64_t size_;
  const std::string lease_;
};

// The blob is there already: the body is read, not kept.
class DropSink final : public BodySink {
 public:
  DropSink(const Digest& digest, std::uint64_t size) : digest_(digest), size_(size) {}
  Status write(Bytes) override { return {}; }
  HttpResponse finish() override { return stored(digest_, size_, true); }

 private:
  const Digest digest_;
  const std::uint64_t size_;
};

}  // namespace

Result<std::unique_ptr<BodySink>> put_blob(Service& service, const HttpRequest& request) {
  const Digest digest = *Digest::from_hex(request.arg);
  const std::uint64_t size = *request.head.content_length;
  const std::string_view compress = request.query("compress");
  if (!compress.empty() && compress != "auto" && compress != "never") {
    return Error{Code::kInvalid, "compress is '" + std::string(compress.substr(0, 40)) + "'",
                 "send compress=auto or compress=never"};
  }
  auto known = service.store.has_blob(digest);
  if (!known.ok()) return std::move(known).error();
  if (*known) return std::unique_ptr<BodySink>(std::make_unique<DropSink>(digest, size));
  NC_ASSIGN(auto upload, service.store.begin_upload(digest, size, compress != "never"));
  return std::unique_ptr<BodySink>(std::make_unique<StoreSink>(
      service, std::move(upload), digest, size, std::string(request.query("lease"))));
}

HttpResponse get_blob(Service& service, const HttpRequest& request) {
  const Digest digest = *Digest::from_hex(request.arg);
  HttpResponse response;
  response.content_type = kBytesType;
  auto mapping = service.store.map_blob(digest);
  if (mapping.ok()) {
    std::shared_ptr<Mapping> owner = std::move(*mapping);
    response.view = owner->bytes();
    response.owner = std::move(owner);
  } else if (mapping.is(Code::kConflict)) {
    auto bytes = service.store.read_blob(digest, service.settings.copy().size("max_blob"));
    if (!bytes.ok()) return HttpResponse::error(bytes.error());
    response.body = std::move(*bytes);
  } else {
    return HttpResponse::error(mapping.error());
  }
  const std::size_t sent = response.owner ? response.view.size() : response.body.size();
  service.store.count("default", "downloads", 1);
  service.store.count("default", "download_bytes", static_cast<double>(sent));
  return response;
}

// Reads all of it, whatever was known of it. What reading finds damaged the store drops.
HttpResponse check_blob(Service& service, const HttpRequest& request) {
  const Digest digest = *Digest::from_hex(request.arg);
  auto mapping = service.store.map_blob(digest);
  Status well;
  if (!mapping.ok()) {
    well = std::move(mapping).error();
  } else if (Digest::of((*mapping)->bytes()) != digest) {
    well = Error{Code::kCorrupt, "", ""};
  }
  if (well.is(Code::kCorrupt) || well.is(Code::kConflict)) {
    auto bytes = service.store.read_blob(digest, service.settings.copy().size("max_blob"));
    if (bytes.ok()) return answer({{"well", well.is(Code::kConflict)}});
    well = std::move(bytes).error();
  }
  if (well.ok()) return answer({{"well", true}});
  if (!well.is(Code::kCorrupt)) return HttpResponse::error(well.error());
  log::warn("blobs", "{} was damaged and is dropped", digest.hex());
  return answer({{"well", false}});
}

HttpResponse head_blob(Service& service, const HttpRequest& request) {
  auto blob = service.store.blob_ref(*Digest::from_hex(request.arg));
  if (!blob.ok()) {
    HttpResponse response = HttpResponse::error(blob.error());
    response.head_length = response.body.size();
    response.body.clear();
    return response;
  }
  HttpResponse response;
  response.content_type = kBytesType;
  response.head_length = blob->output.size;
  return response;
}

}  // namespace nc::daemon
