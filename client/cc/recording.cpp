#include "client/cc/recording.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "client/cc/flag_table.hpp"
#include "client/cc/words.hpp"

namespace nc::cc {
namespace {

constexpr std::string_view kFlagsVariable = "NEURON_CC_FLAGS";

Error not_recordable(std::string why) {
  return {Code::kUnsupported, std::move(why), ""};
}

// A name for the placeholder that is also that of a file: the input's own, whose suffix counts.
std::string name_of(const std::string& path, std::size_t index, std::set<std::string>& taken) {
  std::string name = path.substr(path.rfind('/') + 1);
  std::erase_if(name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '}'; });
  if (name.empty() || name == "." || name == ".." || taken.contains(name))
    name = fmt::format("{}-{}", index, name);
  taken.insert(name);
  return name;
}

const FlagSpec* flag_of(const std::string& word) {
  return find_flag(std::string_view(word).substr(0, word.find('=')));
}

// What the command says once placeholders stand for paths must be what it said before.
bool same_meaning(const Command& command, const Template& made) {
  Surroundings world;
  world.read_file = [](const std::string&) { return std::nullopt; };
  world.exists = [](const std::string& path) { return path.starts_with("{in/"); };
  const Command again = parse_command(made.argv, world);
  return again.kind == Command::Kind::kCompile && again.flags == command.flags &&
         again.unknown == command.unknown && again.inputs.size() == command.inputs.size() &&
         again.output == "{out/neff}" &&
         std::equal(again.inputs.begin(), again.inputs.end(), made.input_names.begin(),
                    [](const std::string& input, const std::string& name) {
                      return input == fmt::format("{{in/{}}}", name);
                    });
}

}  // namespace

Result<Template> make_template(const Command& command) {
  if (!command.unknown_files.empty())
    return not_recordable("a flag that is not known names a file");
  Template made;
  std::set<std::string> taken;
  std::map<std::string, std::string> places;
  for (std::size_t i = 0; i < command.inputs.size(); ++i) {
    made.input_names.push_back(name_of(command.inputs[i], i, taken));
    places[command.inputs[i]] = fmt::format("{{in/{}}}", made.input_names.back());
  }
  const std::vector<std::string>& words = command.compiler_arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_utf8(words[i]) || words[i].find('\0') != std::string::npos)
      return not_recordable("an argument is not UTF-8");
    if (words[i].find("{in/") != std::string::npos || words[i].find("{out/") != std::string::npos)
      return not_recordable("an argument looks like a placeholder");
    const FlagSpec* flag = words[i].starts_with("--") ? flag_of(words[i]) : nullptr;
    if (flag != nullptr && (flag->role == Role::kOutput || flag->role == Role::kLogfile)) {
      if (words[i].find('=') == std::string::npos) ++i;  // its value
      continue;
    }
    const auto place = places.find(words[i]);
    made.argv.push_back(place == places.end() ? words[i] : place->second);
  }
  made.argv.insert(made.argv.end(), {"--output", "{out/neff}"});
  if (!same_meaning(command, made))
    return not_recordable(
        "its words are in a response file, or name files otherwise than as its inputs");
  return made;
}

std::map<std::string, std::string> recorded_environment(const std::vector<std::string>& env) {
  std::map<std::string, std::string> out;
  for (const std::string& entry : env) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || !is_utf8(entry)) continue;
    const std::string name = entry.substr(0, equals);
    const std::string value = entry.substr(equals + 1);
    const bool counts =
        name == kFlagsVariable ? !value.empty() : keyed_variable(name, value).has_value();
    if (counts) out.emplace(name, value);
  }
  return out;
}

Status record_action(const Session& session, client::Client& client, const std::string& name,
                     const Command& flags_variable) {
  if (!flags_variable.unknown_files.empty())
    return not_recordable(fmt::format("{} names a file", kFlagsVariable));
  NC_ASSIGN(Template made, make_template(session.command));
  if (!unchanged(session.action.files)) return not_recordable("its inputs changed meanwhile");

  client::RecordedAction record;
  record.key = session.action.key;
  record.parts = session.action.parts;
  record.name_space = session.settings.text("namespace");
  record.kind = "neff";
  record.label = session.action.label;
  record.program = "neuronx-cc";
  record.compiler = "neuronx-cc " + session.identity.version();
  record.argv = std::move(made.argv);
  record.env = recorded_environment(session.env);
  for (std::size_t i = 0; i < session.command.inputs.size(); ++i) {
    const std::string& path = session.command.inputs[i];
    struct stat s {};
    if (::stat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode))
      return not_recordable(fmt::format("its input {} is no file", key_text(path)));
    NC_ASSIGN(const auto uploaded, client.upload_file(path, {}));
    constexpr std::uint32_t kMode = 0644;
    record.inputs.push_back({made.input_names[i], uploaded.digest, uploaded.size, kMode});
  }
  // What changed between the two looks was not what the key was made from.
  if (!unchanged(session.action.files)) return not_recordable("its inputs changed meanwhile");
  NC_ASSIGN([[maybe_unused]] const bool fresh, client.record(name, record));
  return {};
}

}  // namespace nc::cc
