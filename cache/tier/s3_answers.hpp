// What an S3 service answers, as ours: failures, lists, ids of uploads. Pure; nothing that comes is
// believed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cache/tier/engine.hpp"
#include "cache/tier/http_client.hpp"

namespace nc::tier {

struct S3Failure {
  std::string code;     // "NoSuchKey"; "" when the answer names none
  std::string message;  // printable, at most 200 bytes
  std::string region;   // where the bucket is, if the answer tells
};
// Takes anything.
S3Failure parse_s3_failure(const HttpHead& head, std::string_view body);

// `what`: the call, for the message.
Error s3_error(const HttpHead& head, const S3Failure& failure, std::string_view what);

struct S3List {
  std::vector<ObjectInfo> objects;  // full keys as names, in the answer's order
  bool truncated = false;
};
Result<S3List> parse_s3_list(std::string_view body);

Result<std::string> parse_upload_id(std::string_view body);
// The answer to the completion of an upload: it may fail with status 200.
Status check_completion(const HttpHead& head, std::string_view body, std::string_view what);
std::string completion_body(const std::vector<std::string>& etags);

}  // namespace nc::tier
