// An HTTP service that a test scripts: each request is recorded and gets the next answer.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "cache/tier/http_client.hpp"
#include "cache/tier/open_engine.hpp"

namespace nc::tier {

struct FakeAnswer {
  int status = 200;
  std::vector<HttpHeader> headers = {};
  std::string body = {};
  std::optional<Error> breaks = {};  // after the body, or instead of an answer (status 0)
};

class FakeHttp final : public HttpClient {
 public:
  struct Seen {
    std::string method;
    std::string url;
    std::vector<HttpHeader> headers;
    std::string body;
    bool use_proxy = true;

    std::string header(std::string_view name) const {
      for (const auto& header : headers) {
        if (header.name == name) return header.value;
      }
      return "";
    }
    std::string line() const { return method + " " + url; }
  };

  void answer(FakeAnswer answer) { script_.push_back(std::move(answer)); }
  void answer(int status, std::string body = "", std::vector<HttpHeader> headers = {}) {
    answer({status, std::move(headers), std::move(body), std::nullopt});
  }
  void fail(Code code) { answer({0, {}, "", Error{code, "as the test wants it", ""}}); }
  std::size_t left() const { return script_.size(); }

  std::vector<Seen> seen;

  Result<HttpResponse> send(const HttpRequest& request) override {
    Seen one{request.method, request.url, request.headers, std::string(as_text(request.bytes)),
             request.use_proxy};
    if (request.source != nullptr) {
      one.body.resize(request.source_size);
      NC_ASSIGN(const auto got,
                request.source->read_at(request.source_offset,
                                        std::as_writable_bytes(std::span(one.body))));
      one.body.resize(got);
    }
    seen.push_back(std::move(one));
    if (script_.empty()) return Error{Code::kInternal, "nobody expected " + request.shown(), ""};
    const FakeAnswer answer = std::move(script_.front());
    script_.pop_front();
    if (answer.status == 0) return *answer.breaks;
    HttpResponse response{{answer.status, answer.headers}, ""};
    if (request.on_head) NC_TRY(request.on_head(response.head));
    if (response.head.success() && request.sink) {
      if (!answer.body.empty()) NC_TRY(request.sink(as_bytes(answer.body)));
    } else if (response.head.success() && answer.body.size() > request.body_limit) {
      return Error{Code::kTooLarge, "over the limit", ""};
    } else {
      response.body = answer.body;
    }
    if (answer.breaks) return *answer.breaks;
    return response;
  }

 private:
  std::deque<FakeAnswer> script_;
};

// Doors of an engine on fakes: no thread ever sleeps, and the environment is the test's.
struct FakeDoors {
  FakeClock clock{1'700'000'000'000};
  FakeRandom random;
  std::map<std::string, std::string> variables = {};
  std::vector<Millis> waits = {};

  EngineDeps deps(FileSystem& files) {
    EngineDeps deps;
    deps.clock = &clock;
    deps.random = &random;
    deps.files = &files;
    deps.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    };
    deps.sleep = [this](Millis ms) { waits.push_back(ms); };
    return deps;
  }
};

}  // namespace nc::tier
