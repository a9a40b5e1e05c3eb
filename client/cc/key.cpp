#include "client/cc/key.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "client/cc/flag_table.hpp"
#include "client/cc/words.hpp"

namespace nc::cc {
namespace {

constexpr std::size_t kMaxPart = 1024;  // parts are kept and shown; what is longer is hashed

std::string part_text(std::string_view bytes) {
  if (bytes.size() <= kMaxPart) return key_text(bytes);
  return "sha256:" + Digest::of(as_bytes(bytes)).hex();
}

void add_flags(const Command& from, const std::string& prefix, KeyParts& parts) {
  for (const auto& [name, value] : from.flags)
    parts.emplace_back(prefix + "." + name, part_text(value));
  if (!from.unknown.empty())
    parts.emplace_back(prefix + "s.other", part_text(quote_words(from.unknown)));
}

Status add_files(const Command& from, const std::string& prefix, Action& action) {
  for (std::size_t i = 0; i < from.unknown_files.size(); ++i) {
    NC_ASSIGN(Input input, read_input(from.unknown_files[i]));
    action.parts.emplace_back(fmt::format("{}s.file.{}", prefix, i), std::move(input.text));
    action.files.insert(action.files.end(), input.files.begin(), input.files.end());
  }
  return {};
}

}  // namespace

KeyParts compiler_parts(const CompilerIdentity& compiler) {
  return {{"compiler", part_text(compiler.version_text)}, {"compiler.package", compiler.package}};
}

KeyParts command_parts(const Command& command, const Command& flags_variable,
                       std::span<const std::string> env, const std::string& machine) {
  KeyParts parts;
  parts.emplace_back("door", fmt::format("neuronx-cc compile {}", kKeyVersion));
  add_flags(command, "flag", parts);
  add_flags(flags_variable, "cc_flag", parts);
  if (!command.flags.contains("target")) parts.emplace_back("machine", part_text(machine));

  for (const std::string& entry : env) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = entry.substr(0, equals);
    const auto value = keyed_variable(name, std::string_view(entry).substr(equals + 1));
    if (value) parts.emplace_back("env." + key_text(name), part_text(*value));
  }
  return parts;
}

Result<Action> make_action(const Command& command, const Command& flags_variable,
                           const CompilerIdentity& compiler, std::span<const std::string> env,
                           const std::string& machine) {
  Action action;
  KeyParts& parts = action.parts;
  parts = compiler_parts(compiler);
  KeyParts said = command_parts(command, flags_variable, env, machine);
  std::move(said.begin(), said.end(), std::back_inserter(parts));
  NC_TRY(add_files(command, "flag", action));
  NC_TRY(add_files(flags_variable, "cc_flag", action));
  for (std::size_t i = 0; i < command.inputs.size(); ++i) {
    NC_ASSIGN(Input input, read_input(command.inputs[i]));
    parts.emplace_back(fmt::format("{}{}", kInputPart, i), std::move(input.text));
    action.input_bytes += input.bytes;
    action.files.insert(action.files.end(), input.files.begin(), input.files.end());
  }
  const std::string& first = command.inputs.front();
  action.label = key_text(first.substr(first.rfind('/') + 1));
  NC_ASSIGN(action.key, action_key(parts));
  return action;
}

std::string machine_name() {
  for (const char* path : {"/sys/devices/virtual/dmi/id/product_name", "/proc/device-tree/model"}) {
    constexpr std::uint64_t kLimit = 4096;
    const auto text = real_filesystem().read_all(path, kLimit);
    if (!text.ok()) continue;
    const std::size_t last = text->find_last_not_of(" \n\r\t");
    if (last != std::string::npos) return text->substr(0, last + 1);
  }
  return "unknown";
}

}  // namespace nc::cc
