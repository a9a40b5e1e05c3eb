// Length data of users: a CSV file as it comes, whole and in pieces, and its numbers.
#include "client/cli/length_column.hpp"
#include "client/cli/simulation.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace {

using nc::cli::CsvReader;
using nc::cli::LengthColumn;

struct Reading {
  nc::Status status;
  std::vector<std::pair<std::uint64_t, CsvReader::Record>> records;
};

Reading read(std::string_view text, std::size_t piece) {
  Reading out;
  CsvReader reader([&](std::uint64_t line, const CsvReader::Record& record) {
    out.records.emplace_back(line, record);
    return nc::Status();
  });
  for (std::size_t at = 0; at < text.size() && out.status.ok(); at += piece) {
    out.status = reader.feed(text.substr(at, piece));
  }
  if (out.status.ok()) out.status = reader.finish();
  return out;
}

void simulate(const LengthColumn& column) {
  nc::cli::SimulationInput input;
  input.learned = input.evaluated = column.all().sizes;
  input.largest = input.learned.back().size;
  input.tile = 8;
  constexpr std::size_t kFew = 64;
  if (input.learned.size() > kFew) return;
  const auto found = nc::cli::simulate(input);
  FUZZ_REQUIRE(found.plan.buckets.back() >= input.largest);
  FUZZ_REQUIRE(found.plan.waste >= 0 && found.plan.waste <= found.optimum_by_count.front());
  FUZZ_REQUIRE(found.plan.buckets.size() <= input.max_buckets);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = nc::as_text(nc::fuzz_bytes(data, size));
  const Reading whole = read(text, size + 1);
  const Reading pieces = read(text, 3);
  FUZZ_REQUIRE(whole.status.ok() == pieces.status.ok());
  FUZZ_REQUIRE(whole.records == pieces.records);
  if (!whole.status.ok()) FUZZ_REQUIRE(!whole.status.error().message.empty());
  for (const char* weight : {"", "count"}) {
    LengthColumn column("length", weight);
    nc::Status status;
    for (const auto& [line, record] : whole.records) {
      if (status.ok()) status = column.add(line, record);
    }
    if (status.ok()) status = column.finish();
    if (!status.ok()) {
      FUZZ_REQUIRE(!status.error().message.empty());
    } else {
      simulate(column);
    }
  }
  return 0;
}
