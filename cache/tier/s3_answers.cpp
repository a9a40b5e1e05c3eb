#include "cache/tier/s3_answers.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/number.hpp"
#include "cache/tier/dates.hpp"
#include "cache/tier/tier_url.hpp"
#include "cache/tier/xml.hpp"

namespace nc::tier {
namespace {

constexpr std::size_t kMaxMessage = 200;
constexpr std::size_t kMaxCode = 64;

struct Known {
  std::string_view name;
  Code code;
};

constexpr std::array kKnown = {
    Known{"NoSuchKey", Code::kNotFound},
    Known{"NoSuchUpload", Code::kNotFound},
    Known{"NoSuchBucket", Code::kIo},
    Known{"AccessDenied", Code::kDenied},
    Known{"InvalidAccessKeyId", Code::kDenied},
    Known{"SignatureDoesNotMatch", Code::kDenied},
    Known{"ExpiredToken", Code::kDenied},
    Known{"InvalidToken", Code::kDenied},
    Known{"TokenRefreshRequired", Code::kDenied},
    Known{"RequestTimeTooSkewed", Code::kDenied},
    Known{"SlowDown", Code::kBusy},
    Known{"Throttling", Code::kBusy},
    Known{"ThrottlingException", Code::kBusy},
    Known{"RequestLimitExceeded", Code::kBusy},
    Known{"ConditionalRequestConflict", Code::kBusy},
    Known{"OperationAborted", Code::kBusy},
    Known{"PreconditionFailed", Code::kConflict},
    Known{"RequestTimeout", Code::kTimeout},
    Known{"InternalError", Code::kUnavailable},
    Known{"ServiceUnavailable", Code::kUnavailable},
    Known{"EntityTooLarge", Code::kTooLarge},
    Known{"QuotaExceeded", Code::kNoSpace},
    Known{"XMinioStorageFull", Code::kNoSpace},
    Known{"BadDigest", Code::kCorrupt},
    Known{"XAmzContentSHA256Mismatch", Code::kCorrupt},
    Known{"IncompleteBody", Code::kCorrupt},
    Known{"NotImplemented", Code::kUnsupported},
};

Code code_of(int status, std::string_view name) {
  for (const auto& known : kKnown) {
    if (known.name == name) return known.code;
  }
  switch (status) {
    case 401:
    case 403:
      return Code::kDenied;
    case 404:
      return Code::kNotFound;
    case 405:
      return Code::kReadOnly;
    case 408:
      return Code::kTimeout;
    case 409:
    case 429:
      return Code::kBusy;
    case 412:
      return Code::kConflict;
    case 413:
      return Code::kTooLarge;
    case 501:
      return Code::kUnsupported;
    case 507:
      return Code::kNoSpace;
    default:
      return status >= 500 ? Code::kUnavailable : Code::kIo;
  }
}

std::string action_of(Code code, const S3Failure& failure) {
  if (failure.code == "NoSuchBucket") return "check the bucket's name and the endpoint";
  if (failure.code == "RequestTimeTooSkewed") return "set this host's clock";
  if (!failure.region.empty() && code == Code::kIo) {
    return fmt::format("put region={} into the tier's address", failure.region);
  }
  if (code == Code::kDenied) {
    return "check the credentials and what they allow (docs/tiers.md lists what is needed)";
  }
  return "";
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out(text.substr(0, limit));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return out;
}

Error no_answer(std::string_view what) {
  return {Code::kCorrupt, fmt::format("the answer is no {}", what),
          "check that the endpoint is that of an S3 service"};
}

}  // namespace

S3Failure parse_s3_failure(const HttpHead& head, std::string_view body) {
  S3Failure failure;
  failure.region = printable(head.header("x-amz-bucket-region"), kMaxCode);
  const auto root = parse_xml(body);
  if (!root.ok() || root->name != "Error") return failure;
  failure.code = printable(root->child_text("Code"), kMaxCode);
  failure.message = printable(root->child_text("Message"), kMaxMessage);
  if (failure.region.empty()) failure.region = printable(root->child_text("Region"), kMaxCode);
  return failure;
}

Error s3_error(const HttpHead& head, const S3Failure& failure, std::string_view what) {
  const auto code = code_of(head.status, failure.code);
  std::string message = fmt::format("{}: status {}", what, head.status);
  if (!failure.code.empty()) message += " " + failure.code;
  if (!failure.message.empty()) message += ": " + failure.message;
  return {code, std::move(message), action_of(code, failure)};
}

Result<S3List> parse_s3_list(std::string_view body) {
  NC_ASSIGN(const auto root, parse_xml(body));
  if (root.name != "ListBucketResult") return no_answer("list");
  S3List list;
  list.truncated = root.child_text("IsTruncated") == "true";
  const bool encoded = root.child_text("EncodingType") == "url";
  for (const auto& node : root.children) {
    if (node.name != "Contents") continue;
    const auto size = whole_number<std::uint64_t>(node.child_text("Size"));
    auto key = node.child_text("Key");
    if (encoded) {
      auto decoded = percent_decode(key);
      if (!decoded.ok()) return no_answer("list");
      key = *std::move(decoded);
    }
    if (key.empty() || !size) return no_answer("list");
    list.objects.push_back(
        {std::move(key), *size, parse_iso_date(node.child_text("LastModified")).value_or(0)});
  }
  return list;
}

Result<std::string> parse_upload_id(std::string_view body) {
  NC_ASSIGN(const auto root, parse_xml(body));
  auto id = root.child_text("UploadId");
  if (root.name != "InitiateMultipartUploadResult" || id.empty() || id.size() > 1024) {
    return no_answer("start of an upload");
  }
  return id;
}

Status check_completion(const HttpHead& head, std::string_view body, std::string_view what) {
  NC_ASSIGN(const auto root, parse_xml(body));
  if (root.name == "CompleteMultipartUploadResult") return {};
  if (root.name != "Error") return no_answer("end of an upload");
  HttpHead failed = head;
  failed.status = 500;
  return s3_error(failed, parse_s3_failure(head, body), what);
}

std::string completion_body(const std::vector<std::string>& etags) {
  std::string out = "<CompleteMultipartUpload>";
  for (std::size_t i = 0; i < etags.size(); ++i) {
    std::string etag;
    for (const char c : etags[i]) {
      if (c == '"') {
        etag += "&quot;";
      } else if (c != '<' && c != '&') {
        etag += c;
      }
    }
    out += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", i + 1, etag);
  }
  return out + "</CompleteMultipartUpload>";
}

}  // namespace nc::tier
