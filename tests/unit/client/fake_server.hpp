// A scripted daemon: a thread that answers each request on its Unix socket with the next step of a
// script.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace nc::client::testing {

struct SeenRequest {
  std::string method, target, head, body;
  int connection = 0;  // the how-manieth
};

struct Step {
  std::string answer;        // raw bytes
  bool close = false;        // after the answer
  bool before_body = false;  // answer when the head is read, then hang up
  bool byte_by_byte = false;
};

Step json_step(int status, std::string body);

class FakeServer {
 public:
  FakeServer();
  ~FakeServer();

  const std::string& path() const { return path_; }
  // Steps are used in order; without one left a request is never answered.
  void push(Step step);
  // Instead of steps: called for each request.
  void answer_with(std::function<Step(const SeenRequest&)> answer);
  std::vector<SeenRequest> seen();
  // Waits until so many requests came; false after 10 s.
  bool wait_for_requests(std::size_t n);
  int connections() const { return connections_; }

 private:
  void run();
  void serve(int fd, int connection);
  bool next_step(const SeenRequest& request, Step& out);

  std::string dir_, path_;
  int listener_ = -1;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Step> steps_;
  std::function<Step(const SeenRequest&)> answer_;
  std::vector<SeenRequest> seen_;
  std::vector<std::thread> threads_;
  std::vector<int> open_;
  std::thread acceptor_;
};

}  // namespace nc::client::testing
