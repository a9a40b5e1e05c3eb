// The padding engine on the graphs of a deep Llama (tests/data/padding): time and memory, because
// the first call of a program waits for them, and how both grow with the graph.
#include <sys/resource.h>
#include <zstd.h>

#include <ctime>

#include <boost/json.hpp>

#include "bucketing/padding/engine.hpp"
#include "tests/bench/bench_util.hpp"

namespace nc::bench {
namespace {

namespace json = boost::json;

constexpr int kRounds = 5;

std::string recorded() {
  const char* path = NC_SOURCE_DIR "/tests/data/padding/llama.json.zst";
  std::ifstream file(path, std::ios::binary);
  const std::string packed((std::istreambuf_iterator<char>(file)), {});
  const auto size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  std::string text;
  if (size != ZSTD_CONTENTSIZE_ERROR && size != ZSTD_CONTENTSIZE_UNKNOWN) text.resize(size);
  if (text.empty() ||
      ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size()) != text.size()) {
    std::fprintf(stderr, "%s cannot be read\n", path);
    std::exit(2);
  }
  return text;
}

// Processor time of this thread: what the work costs, also when other programs run.
double cpu_now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double peak_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

std::size_t nodes(const json::value& request, const char* graph) {
  return request.at(graph).at("nodes").as_array().size();
}

int run() {
  Budgets budgets;
  const std::string text = recorded();
  double parsing = 1e300;
  double planning = 1e300;
  double writing = 1e300;
  std::size_t count = 0;
  for (int i = 0; i < kRounds; ++i) {
    const double begin = cpu_now_ms();
    const json::value request = json::parse(text);
    const double parsed = cpu_now_ms();
    const json::value answer = must(padding::plan(request), "the engine");
    const double planned = cpu_now_ms();
    const std::string line = json::serialize(answer);
    parsing = std::min(parsing, parsed - begin);
    planning = std::min(planning, planned - parsed);
    writing = std::min(writing, cpu_now_ms() - planned);
    if (answer.as_object().contains("refusal")) {
      std::fprintf(stderr, "refused: %s\n", line.c_str());
      return 2;
    }
    count = nodes(request, "forward") + nodes(request, "backward");
    if (i == 0) {
      std::printf("%zu and %zu nodes, plans of %zu and %zu nodes with %lld masks\n",
                  nodes(request, "forward"), nodes(request, "backward"), nodes(answer, "forward"),
                  nodes(answer, "backward"), static_cast<long long>(answer.at("masks").as_int64()));
    }
  }
  std::printf("%.0f nodes per ms; reading the request %.1f ms, writing the answer %.1f ms\n",
              static_cast<double>(count) / planning, parsing, writing);
  budgets.at_most("analysis and rewrite of a deep Llama, both graphs", planning, 300, "ms");
  budgets.at_most("the same with JSON read and written", parsing + planning + writing, 400, "ms");
  budgets.at_most("peak memory of the process", peak_mib(), 200, "MiB");
  return budgets.exit_status();
}

}  // namespace
}  // namespace nc::bench

int main() {
  return nc::bench::run();
}
