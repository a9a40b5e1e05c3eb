#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "bucketing/planner/axis.hpp"
#include "client/cli/length_column.hpp"
#include "client/cli/output.hpp"
#include "client/cli/simulation.hpp"

namespace nc::cli {
namespace {

using buckets::Size;
using buckets::SizeCounts;

struct Question {
  std::string file, column, weight, cost;
  SimulationInput input;
  std::optional<double> learn;
};

// Feeds the file to a LengthColumn that takes the first `first` rows apart.
Result<LengthColumn> read_file(const Question& question, std::uint64_t first) {
  LengthColumn column(question.column, question.weight);
  column.split_at(first);
  CsvReader reader([&](std::uint64_t line, const CsvReader::Record& record) {
    return column.add(line, record);
  });
  NC_ASSIGN(const auto file, real_filesystem().open(question.file, FileSystem::Open::kRead));
  std::vector<std::byte> buffer(1 << 20);
  std::uint64_t offset = 0;
  const auto all = [&]() -> Status {
    for (;;) {
      NC_ASSIGN(const std::size_t got, file->read_at(offset, buffer));
      if (got == 0) break;
      offset += got;
      NC_TRY(reader.feed(as_text(Bytes(buffer).first(got))));
    }
    NC_TRY(reader.finish());
    return column.finish();
  };
  if (Status done = all(); !done.ok()) return Error(done.error()).context(printable(question.file));
  return column;
}

Result<std::uint64_t> bounded(const Context& context, std::string_view name,
                              std::uint64_t otherwise, std::uint64_t most) {
  NC_ASSIGN(const auto given, context.count_option(name));
  const std::uint64_t value = given.value_or(otherwise);
  if (value >= 1 && value <= most) return value;
  return Error{Code::kInvalid, fmt::format("--{} is {}", name, value),
               fmt::format("give a whole number from 1 to {}", most)};
}

Result<Question> question_of(const Context& context) {
  Question out;
  out.file = context.option("FILE").value_or("");
  out.column = context.option("column").value_or("");
  if (out.column.empty()) {
    return Error{Code::kInvalid, "the column with the lengths is not named", "add --column NAME"};
  }
  out.weight = context.option("weight").value_or("");
  NC_ASSIGN(const std::uint64_t most, bounded(context, "max-buckets", 8, 1024));
  NC_ASSIGN(const std::uint64_t tile, bounded(context, "tile", 1, buckets::kMaxSize));
  out.input.max_buckets = static_cast<std::uint32_t>(most);
  out.input.tile = static_cast<Size>(tile);
  out.cost = context.option("cost").value_or("linear");
  if (out.cost == "quadratic") out.input.cost = buckets::CostModel::quadratic();
  if (const auto text = context.option("learn")) {
    double share = 0;
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, share);
    if (error != std::errc() || stop != end || !(share > 0) || !(share < 1)) {
      return Error{Code::kInvalid, fmt::format("--learn is '{}'", printable(*text)),
                   "give a share of the rows between 0 and 1, such as 0.1"};
    }
    out.learn = share;
  }
  return out;
}

double calls(std::uint64_t weight) {
  return static_cast<double>(weight) / static_cast<double>(kWeightUnit);
}

double mean(const SizeCounts& sizes) {
  double sum = 0;
  for (const auto& one : sizes)
    sum += static_cast<double>(one.size) * static_cast<double>(one.count);
  return sum / static_cast<double>(std::max<std::uint64_t>(buckets::total(sizes), 1));
}

bj::object plan_json(const SimulatedPlan& plan) {
  bj::array ends;
  for (const Size end : plan.buckets) ends.push_back(end);
  return {{"buckets", std::move(ends)}, {"used", plan.used}, {"waste", plan.waste}};
}

bj::object answer_json(const Question& question, const LengthCounts& all, const Simulation& found) {
  bj::array by_count;
  for (const double waste : found.optimum_by_count) by_count.push_back(waste);
  bj::object out = plan_json(found.plan);
  out["powers_of_two"] = plan_json(found.powers);
  out["optimum"] = plan_json(found.optimum);
  out["optimum_by_count"] = std::move(by_count);
  out["tile_waste"] = found.tiles.waste;
  out["cost"] = question.cost;
  out["tile"] = question.input.tile;
  out["max_buckets"] = question.input.max_buckets;
  out["learn"] = question.learn ? bj::value(*question.learn) : bj::value(nullptr);
  out["file"] = question.file;
  out["column"] = question.column;
  out["weight"] = question.weight.empty() ? bj::value(nullptr) : bj::value(question.weight);
  out["rows"] = all.rows;
  out["zero_rows"] = all.zeros;
  out["calls"] = calls(buckets::total(all.sizes));
  out["evaluated_calls"] = calls(buckets::total(question.input.evaluated));
  out["lengths"] = bj::object{{"distinct", all.sizes.size()},
                              {"min", all.sizes.front().size},
                              {"max", all.sizes.back().size},
                              {"mean", mean(all.sizes)}};
  return out;
}

// Equal steps when the lengths are of one order, else doubling ones.
std::vector<Size> bin_ends(const SizeCounts& sizes, Size tile) {
  constexpr Size kBins = 16;
  const std::uint64_t low = sizes.front().size;
  const std::uint64_t high = sizes.back().size;
  std::vector<Size> ends;
  if (high / std::max<std::uint64_t>(low, 1) >= kBins) {
    return buckets::powers_of_two(tile, sizes.back().size);
  }
  const std::uint64_t step = std::max<std::uint64_t>((high - low) / kBins + 1, 1);
  for (std::uint64_t end = low + step - 1; ends.empty() || ends.back() < high; end += step) {
    ends.push_back(static_cast<Size>(std::min<std::uint64_t>(end, buckets::kMaxSize)));
  }
  return ends;
}

std::string histogram_text(const SizeCounts& sizes, const Simulation& found, Size tile) {
  const auto ends = bin_ends(sizes, tile);
  const auto sum = static_cast<double>(std::max<std::uint64_t>(buckets::total(sizes), 1));
  std::vector<double> shares;
  auto at = sizes.begin();
  for (const Size end : ends) {
    std::uint64_t weight = 0;
    for (; at != sizes.end() && at->size <= end; ++at) weight += at->count;
    shares.push_back(static_cast<double>(weight) / sum);
  }
  const double most = *std::max_element(shares.begin(), shares.end());
  constexpr double kBar = 32;
  Table table({{"lengths", "", Table::Align::kRight},
               {"calls", "", Table::Align::kRight},
               {"", ""},
               {"buckets", ""}});
  Size begin = 1;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    std::vector<Size> inside;
    for (const Size bucket : found.plan.buckets) {
      if (bucket >= begin && bucket <= ends[i]) inside.push_back(bucket);
    }
    const auto length = static_cast<std::size_t>(shares[i] / most * kBar + 0.5);
    table.add({fmt::format("{} - {}", begin, ends[i]), fmt::format("{:.1f} %", shares[i] * 100),
               std::string(length, '#'), fmt::format("{}", fmt::join(inside, " "))});
    begin = ends[i] + 1;
  }
  return table.text(0);
}

std::vector<Cell> plan_row(std::string name, std::string id, const SimulatedPlan& plan) {
  return {{std::move(name), std::move(id)},
          count_cell(static_cast<double>(plan.buckets.size())),
          count_cell(static_cast<double>(plan.used)),
          {fmt::format("{:.1f} %", plan.waste * 100), fmt::format("{}", plan.waste)}};
}

Table plans_table(const Question& question, const Simulation& found) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"", "plan"},
               {"buckets", "buckets", kRight},
               {"used", "used", kRight},
               {"padding costs", "waste", kRight}});
  const std::string learned =
      question.learn ? fmt::format("learned from the first {:g} %", *question.learn * 100)
                     : "best for these lengths";
  table.add(plan_row(learned, "plan", found.plan));
  table.add(plan_row("powers of two", "powers_of_two", found.powers));
  if (question.learn) table.add(plan_row("best, known afterwards", "optimum", found.optimum));
  table.add(
      plan_row(fmt::format("every multiple of {}", question.input.tile), "tiles", found.tiles));
  return table;
}

std::string answer_text(const Question& question, const LengthCounts& all,
                        const Simulation& found) {
  std::string out =
      fmt::format("{}: {} calls, {} distinct lengths from {} to {}, {:.1f} in the mean\n\n",
                  printable(question.file), format_count(calls(buckets::total(all.sizes))),
                  format_count(static_cast<double>(all.sizes.size())), all.sizes.front().size,
                  all.sizes.back().size, mean(all.sizes));
  out += histogram_text(all.sizes, found, question.input.tile) + "\n";
  out += plans_table(question, found).text(0);
  out += fmt::format("\nBuckets: {}\n", fmt::join(found.plan.buckets, " "));
  if (all.zeros > 0) {
    out += fmt::format("Left out: {} of length or weight 0.\n",
                       counted(static_cast<double>(all.zeros), "row", "rows"));
  }
  return out;
}

Result<int> run(Context& context) {
  NC_ASSIGN(Question question, question_of(context));
  std::uint64_t first = 0;
  if (question.learn) {  // how many rows there are is known after a first reading
    NC_ASSIGN(const LengthColumn counted_rows, read_file(question, 0));
    first = static_cast<std::uint64_t>(
        std::ceil(static_cast<double>(counted_rows.rows()) * *question.learn));
  }
  NC_ASSIGN(const LengthColumn column, read_file(question, first));
  const LengthCounts all = column.all();
  question.input.learned = question.learn ? column.part(0).sizes : all.sizes;
  question.input.evaluated = question.learn ? column.part(1).sizes : all.sizes;
  question.input.largest = all.sizes.back().size;
  if (question.input.learned.empty() || question.input.evaluated.empty()) {
    return Error{Code::kInvalid, "one of the two parts of the file has no length above 0",
                 "choose another --learn"};
  }
  const Simulation found = simulate(question.input);
  switch (context.format()) {
    case Format::kJson:
      print_json(answer_json(question, all, found));
      break;
    case Format::kTab:
      print(plans_table(question, found).tab());
      break;
    case Format::kText:
      print(answer_text(question, all, found));
      break;
  }
  return kOk;
}

constexpr ArgumentSpec kArguments[] = {
    {"FILE", "A CSV file whose first line names the columns.", true, false, ""}};
constexpr OptionSpec kOptions[] = {
    {"column", "NAME", "The column with the length of each call.", ""},
    {"max-buckets", "K", "At most this many buckets (default 8).", ""},
    {"tile", "T", "Buckets are multiples of T (default 1).", ""},
    {"weight", "NAME", "The column that says how often a row's length occurs (default: once).", ""},
    {"learn", "FRACTION",
     "Make the plan of this part of the rows, the first ones, and judge it on "
     "the rest.",
     ""},
    {"cost", "MODEL", "What a call costs at a length n: n, or n^2 (default linear).",
     "linear|quadratic"},
};

}  // namespace

extern constinit const Verb kPlanSimulateVerb{
    .name = "plan simulate",
    .summary = "What buckets would do for your own lengths: a plan and what padding to it costs.",
    .details =
        "Beside the plan: powers of two from the tile on, the best plan there is for the "
        "lengths it is judged on, and every multiple of the tile. Rows of length 0 are left "
        "out. The largest length of the file is always a bucket.\n\nPadding costs are shares "
        "of the cost of the unpadded calls: 0.25, or 25 %, means a quarter more.",
    .arguments = kArguments,
    .options = kOptions,
    .examples =
        "neuroncache plan simulate lengths.csv --column tokens --max-buckets 8 --tile 128\n"
        "neuroncache plan simulate lengths.csv --column tokens --learn 0.1 # learn from the "
        "first tenth",
    .needs_settings = false,
    .run = run};

}  // namespace nc::cli
