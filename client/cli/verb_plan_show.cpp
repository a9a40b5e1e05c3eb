#include <fmt/format.h>

#include "client/cli/output.hpp"
#include "client/cli/session.hpp"

namespace nc::cli {
namespace {

using client::BucketFamily;
using client::BucketFamilyPlan;
using client::BucketProgram;

std::string share(const std::optional<double>& waste) {
  return waste ? fmt::format("{:.1f} %", *waste * 100) : std::string("-");
}

std::string ladder_words(const BucketFamilyPlan& plan) {
  std::string out = fmt::format(
      "then x {:.3g}",
      plan.den == 0 ? 0.0 : static_cast<double>(plan.num) / static_cast<double>(plan.den));
  if (plan.max != 0) out += fmt::format(" to {}", plan.max);
  return out;
}

std::string buckets_words(const BucketFamily& family) {
  if (!family.plan) return "no plan yet";
  const BucketFamilyPlan& plan = *family.plan;
  const std::string list = fmt::format("{}", fmt::join(plan.buckets, " "));
  if (!plan.varies && plan.buckets.size() == 1) return list + ", the only size seen";
  if (plan.buckets.empty()) return fmt::format("from {}, {}", plan.base, ladder_words(plan));
  return list + ", " + ladder_words(plan);
}

bj::object family_json(const BucketFamily& family) {
  bj::object out{{"family", family.name},
                 {"calls", family.calls},
                 {"distinct", family.distinct},
                 {"min", family.smallest},
                 {"max", family.largest},
                 {"waste", family.waste ? bj::value(*family.waste) : bj::value(nullptr)},
                 {"plan", nullptr}};
  if (!family.plan) return out;
  const BucketFamilyPlan& plan = *family.plan;
  bj::array ends;
  for (const std::uint64_t end : plan.buckets) ends.push_back(end);
  out["plan"] = bj::object{{"buckets", std::move(ends)},
                           {"tile", plan.tile},
                           {"floor", plan.floor},
                           {"varies", plan.varies},
                           {"beyond",
                            {{"base", plan.base},
                             {"ratio", {plan.num, plan.den}},
                             {"max", plan.max == 0 ? bj::value(nullptr) : bj::value(plan.max)}}}};
  return out;
}

bj::object program_json(const BucketProgram& program) {
  bj::array families;
  for (const BucketFamily& family : program.families) families.push_back(family_json(family));
  bj::array joints;
  for (const auto& joint : program.joints) {
    bj::array pairs;
    for (const auto& [a, b] : joint.buckets) pairs.push_back(bj::array{a, b});
    joints.push_back(
        bj::object{{"families", {joint.first, joint.second}}, {"buckets", std::move(pairs)}});
  }
  return {{"program", program.program},
          {"label", program.label},
          {"seen_ms", program.seen_ms},
          {"compile_ms", program.compile_ms},
          {"call_us", program.call_us},
          {"epoch", program.epoch},
          {"digest", program.digest.empty() ? bj::value(nullptr) : bj::value(program.digest)},
          {"jobs", program.jobs},
          {"families", std::move(families)},
          {"joint", std::move(joints)}};
}

std::string program_text(const BucketProgram& program, Millis now) {
  std::string out = fmt::format("{}  {}  seen {}", short_key(program.program),
                                program.label.empty() ? "(no name)" : printable(program.label),
                                format_ago(program.seen_ms, now));
  if (program.epoch > 0) {
    out += fmt::format(", epoch {}, {}", program.epoch,
                       counted(static_cast<double>(program.jobs), "job", "jobs"));
  }
  out += "\n";
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"dimension", ""},
               {"calls", "", kRight},
               {"sizes", "", kRight},
               {"from", "", kRight},
               {"to", "", kRight},
               {"padding", "", kRight},
               {"buckets", "", Table::Align::kLeft, true}});
  for (const BucketFamily& family : program.families) {
    table.add({printable(family.name), count_cell(static_cast<double>(family.calls)),
               count_cell(static_cast<double>(family.distinct)), fmt::format("{}", family.smallest),
               fmt::format("{}", family.largest), share(family.waste), buckets_words(family)});
  }
  out += table.text(terminal_width(), 2);
  for (const auto& joint : program.joints) {
    out += fmt::format("  {} x {} together:", printable(joint.first), printable(joint.second));
    for (const auto& [a, b] : joint.buckets) out += fmt::format(" {}x{}", a, b);
    out += "\n";
  }
  return out;
}

Table tab_table(const std::vector<BucketProgram>& programs) {
  Table table({{"", "program"},
               {"", "label"},
               {"", "seen_ms"},
               {"", "epoch"},
               {"", "family"},
               {"", "calls"},
               {"", "distinct"},
               {"", "min"},
               {"", "max"},
               {"", "waste"},
               {"", "buckets"}});
  for (const BucketProgram& program : programs) {
    for (const BucketFamily& family : program.families) {
      table.add({program.program, program.label, fmt::format("{}", program.seen_ms),
                 fmt::format("{}", program.epoch), family.name, fmt::format("{}", family.calls),
                 fmt::format("{}", family.distinct), fmt::format("{}", family.smallest),
                 fmt::format("{}", family.largest),
                 family.waste ? fmt::format("{}", *family.waste) : "",
                 family.plan ? fmt::format("{}", fmt::join(family.plan->buckets, ",")) : ""});
    }
  }
  return table;
}

Result<int> run(Context& context) {
  const std::string prefix = context.option("PROGRAM").value_or("");
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kRead));
  std::vector<BucketProgram> programs;
  if (session.source() != Session::Source::kNone) {
    NC_ASSIGN(programs, session.client().bucket_programs());
  }
  std::erase_if(programs, [&](const BucketProgram& p) { return !p.program.starts_with(prefix); });
  switch (context.format()) {
    case Format::kJson: {
      bj::array out;
      for (const BucketProgram& program : programs) out.push_back(program_json(program));
      print_json(
          bj::object{{"source", std::string(session.source_name())}, {"programs", std::move(out)}});
      break;
    }
    case Format::kTab:
      print(tab_table(programs).tab());
      break;
    case Format::kText: {
      if (programs.empty()) print("No sizes were seen yet.\n");
      const Millis now = system_clock().wall_ms();
      for (std::size_t i = 0; i < programs.size(); ++i) {
        print((i == 0 ? "" : "\n") + program_text(programs[i], now));
      }
      break;
    }
  }
  return kOk;
}

constexpr ArgumentSpec kArguments[] = {
    {"PROGRAM", "Only programs whose name begins so.", false, false, ""}};

}  // namespace

extern constinit const Verb kPlanShowVerb{
    .name = "plan show",
    .summary = "The dimensions of each program, the buckets in force, and what padding costs.",
    .details =
        "Padding is what the buckets would have cost over the sizes seen until now, as a "
        "share of the unpadded calls when a call costs in proportion to its size.",
    .arguments = kArguments,
    .options = {},
    .examples = "neuroncache plan show",
    .run = run};

}  // namespace nc::cli
