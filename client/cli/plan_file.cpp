#include "client/cli/plan_file.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/toml_tree.hpp"
#include "client/cli/warm_run.hpp"

namespace nc::cli {
namespace {

using Kind = TomlNode::Kind;

constexpr std::size_t kMostCommands = 10'000;

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  Result<PlanFile> read(const TomlNode& root) {
    PlanFile plan;
    bool version = false;
    for (const auto& [name, node] : root.table) {
      if (name == "version") {
        if (node.kind != Kind::kInteger || node.text != "1")
          return wrong(node, "this neuroncache knows version = 1 of plans");
        version = true;
      } else if (name == "build" || name == "run") {
        if (node.kind != Kind::kList) return wrong(node, fmt::format("write [[{}]]", name));
        for (const TomlNode& item : node.list)
          NC_TRY(name == "build" ? read_build(item, plan) : read_run(item, plan));
      } else {
        return unknown(root, name, {"version", "build", "run"});
      }
    }
    if (!version) return wrong(root, "version = 1 is missing");
    if (plan.runs.empty() && plan.builds.empty())
      return wrong(root, "there is neither a [[build]] nor a [[run]] in it");
    return plan;
  }

 private:
  Error wrong(const TomlNode& node, std::string_view what) const {
    return wrong_toml(path_, std::max(node.line, 1U), what);
  }

  Error unknown(const TomlNode& node, const std::string& name,
                const std::vector<std::string>& names) const {
    const auto nearest = nearest_name(name, names);
    return wrong(node, fmt::format("nothing is called '{}' here{}", name,
                                   nearest ? fmt::format("; did you mean {}?", *nearest) : ""));
  }

  Status take_name(const TomlNode& node, std::string& out) const {
    if (node.kind != Kind::kText) return wrong(node, "a recording's name is a text");
    if (Status ok = check_recording_name(node.text); !ok.ok())
      return wrong(node, ok.error().message);
    out = node.text;
    return {};
  }

  Status take_texts(const TomlNode& node, std::string_view name,
                    std::vector<std::string>& out) const {
    if (node.kind != Kind::kList || node.list.empty())
      return wrong(node, fmt::format("{} is a list of texts", name));
    for (const TomlNode& item : node.list) {
      if (item.kind != Kind::kText || item.text.empty())
        return wrong(item, fmt::format("{} is a list of texts", name));
      out.push_back(item.text);
    }
    return {};
  }

  Status read_build(const TomlNode& node, PlanFile& plan) const {
    Selection build;
    if (node.kind != Kind::kTable) return wrong(node, "write [[build]]");
    for (const auto& [name, value] : node.table) {
      if (name == "recording") {
        NC_TRY(take_name(value, build.recording));
      } else if (name == "labels") {
        NC_TRY(take_texts(value, name, build.labels));
      } else if (name == "keys") {
        NC_TRY(take_texts(value, name, build.keys));
      } else if (name == "compilers") {
        NC_TRY(take_texts(value, name, build.compilers));
      } else if (name == "targets") {
        NC_TRY(take_texts(value, name, build.targets));
      } else {
        return unknown(node, name, {"recording", "labels", "keys", "compilers", "targets"});
      }
    }
    if (build.recording.empty()) return wrong(node, "a [[build]] needs a recording");
    plan.builds.push_back(std::move(build));
    return {};
  }

  Status read_run(const TomlNode& node, PlanFile& plan) const {
    PlannedRun run;
    if (node.kind != Kind::kTable) return wrong(node, "write [[run]]");
    for (const auto& [name, value] : node.table) {
      if (name == "recording") {
        NC_TRY(take_name(value, run.recording));
      } else if (name == "command") {
        NC_TRY(take_texts(value, name, run.command));
      } else if (name == "buckets") {
        NC_TRY(take_buckets(value, run.buckets));
      } else {
        return unknown(node, name, {"recording", "command", "buckets"});
      }
    }
    if (run.recording.empty() || run.command.empty())
      return wrong(node, "a [[run]] needs a recording and a command");
    NC_TRY(check_placeholders(node, run));
    plan.runs.push_back(std::move(run));
    return {};
  }

  Status take_buckets(const TomlNode& node,
                      std::vector<std::map<std::string, std::string>>& out) const {
    constexpr std::string_view kForm = "buckets is a list as in [{batch = 1, length = 128}]";
    if (node.kind != Kind::kList || node.list.empty()) return wrong(node, kForm);
    for (const TomlNode& item : node.list) {
      if (item.kind != Kind::kTable || item.table.empty()) return wrong(item, kForm);
      std::map<std::string, std::string> vector;
      for (const auto& [name, value] : item.table) {
        if (value.kind != Kind::kInteger) return wrong(value, "a bucket is a whole number");
        vector[name] = value.text;
      }
      out.push_back(std::move(vector));
    }
    if (out.size() > kMostCommands) return wrong(node, "too many buckets");
    return {};
  }

  // Each bucket's name is used, or all vectors would run one command.
  Status check_placeholders(const TomlNode& node, const PlannedRun& run) const {
    for (const auto& vector : run.buckets) {
      for (const auto& [name, value] : vector) {
        const std::string mark = fmt::format("{{{}}}", name);
        const bool used = std::any_of(
            run.command.begin(), run.command.end(),
            [&](const std::string& word) { return word.find(mark) != std::string::npos; });
        if (!used) return wrong(node, fmt::format("no word of the command has {} in it", mark));
      }
    }
    return {};
  }

  const std::string& path_;
};

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.append({'\\', c});
    } else if (u < 0x20 || u == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(u));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string comment(std::string_view what, const std::set<std::string>& names) {
  std::vector<std::string> list;
  for (const std::string& name : names) list.push_back(quoted(name));
  return fmt::format("# {} = [{}]\n", what, fmt::join(list, ", "));
}

std::string version_of(const client::RecordedAction& action) {
  return action.compiler.substr(action.compiler.find(' ') + 1);
}

}  // namespace

std::vector<std::vector<std::string>> PlannedRun::commands() const {
  if (buckets.empty()) return {command};
  std::vector<std::vector<std::string>> out;
  for (const auto& vector : buckets) {
    std::vector<std::string> words = command;
    for (std::string& word : words) {
      for (const auto& [name, value] : vector) {
        const std::string mark = fmt::format("{{{}}}", name);
        for (std::size_t at = word.find(mark); at != std::string::npos;
             at = word.find(mark, at + value.size()))
          word.replace(at, mark.size(), value);
      }
    }
    out.push_back(std::move(words));
  }
  return out;
}

Result<PlanFile> parse_plan(std::string_view text, const std::string& path) {
  NC_ASSIGN(const TomlNode root, read_toml(text, path));
  return Reader(path).read(root);
}

std::string plan_text(const std::string& recording,
                      const std::vector<client::RecordedAction>& actions) {
  std::set<std::string> labels;
  std::set<std::string> versions;
  std::set<std::string> targets;
  for (const client::RecordedAction& action : actions) {
    labels.insert(action.label);
    versions.insert(version_of(action));
    if (std::string target = target_of(action); !target.empty()) targets.insert(target);
  }
  std::string out = fmt::format(
      "# A plan for `neuroncache warmup --plan`: what was recorded as '{}', {} actions.\n"
      "# Each line that is a comment would narrow it down, or build it for others as well.\n"
      "version = 1\n\n[[build]]\nrecording = {}\n",
      recording, actions.size(), quoted(recording));
  out += comment("labels", labels);
  out += "compilers = [\"recorded\"]\n" + comment("compilers", versions);
  out += "targets = [\"recorded\"]\n" + comment("targets", targets);
  return out;
}

}  // namespace nc::cli
