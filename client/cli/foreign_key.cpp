#include "client/cli/foreign_key.hpp"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "base/settings.hpp"
#include "client/cc/arguments.hpp"
#include "client/cc/key.hpp"
#include "client/cc/real_compiler.hpp"
#include "client/cc/words.hpp"

namespace nc::cli {
namespace {

constexpr std::uint64_t kMaxFlags = 1 << 20;

// Words in files of flags name files relative to a directory that is not known any more.
cc::Surroundings no_files() {
  return {.read_file = [](const std::string&) { return std::nullopt; },
          .exists = [](const std::string&) { return false; }};
}

std::string variable(const std::vector<std::string>& env, std::string_view name) {
  for (const std::string& entry : env) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  }
  return {};
}

// compile_flags.json is a list of words; compile_flags.txt has them with spaces between.
Result<std::vector<std::string>> flags_of(const ForeignEntry& entry) {
  const auto json = entry.files.find("compile_flags.json");
  if (json == entry.files.end()) {
    const auto text = entry.files.find("compile_flags.txt");
    if (text == entry.files.end())
      return Error{Code::kInvalid, "does not say its flags", "keep compile_flags.json with it"};
    NC_ASSIGN(const std::string words, real_filesystem().read_all(text->second, kMaxFlags));
    return cc::split_words(words);
  }
  NC_ASSIGN(const std::string text, real_filesystem().read_all(json->second, kMaxFlags));
  boost::system::error_code ec;
  const boost::json::value value = boost::json::parse(text, ec);
  std::vector<std::string> words;
  bool sound = !ec && value.is_array();
  if (sound) {
    for (const boost::json::value& word : value.get_array()) {
      sound = sound && word.is_string();
      if (word.is_string()) words.emplace_back(word.get_string());
    }
  }
  if (!sound) return Error{Code::kInvalid, "has a compile_flags.json that is no list of words", ""};
  return words;
}

Result<std::string> graph_of(const ForeignEntry& entry) {
  for (const char* name : {"model.hlo_module.pb", "model.hlo.pb"}) {
    if (const auto file = entry.files.find(name); file != entry.files.end()) return file->second;
  }
  return Error{Code::kInvalid, "does not hold its graph", ""};
}

}  // namespace

Result<WrapperKeys> WrapperKeys::open(const std::string& compiler, const std::string& store_dir) {
  WrapperKeys keys;
  keys.env_ = process_environment();
  NC_ASSIGN(const cc::RealCompiler real,
            cc::find_real_compiler(compiler, variable(keys.env_, "PATH"), "", {}));
  NC_ASSIGN(keys.identity_, cc::identify(real, keys.env_, join(store_dir, "compilers")));
  keys.version_ = keys.identity_.version();
  return keys;
}

Result<KeyParts> WrapperKeys::parts_of(const ForeignEntry& entry) const {
  if (entry.place.compiler != "neuronxcc-" + version_) {
    return Error{Code::kInvalid,
                 fmt::format("was built by {}, not by {}", entry.place.compiler, version_), ""};
  }
  NC_ASSIGN(const std::string graph, graph_of(entry));
  NC_ASSIGN(const std::vector<std::string> flags, flags_of(entry));
  std::vector<std::string> words = {"compile", "--framework=XLA", graph, "--output", "model.neff"};
  words.insert(words.end(), flags.begin(), flags.end());
  cc::Command command = cc::parse_command(words, no_files());
  const cc::Command variable_flags =
      cc::parse_flags_variable(variable(env_, "NEURON_CC_FLAGS"), no_files(), command);
  if (command.kind != cc::Command::Kind::kCompile)
    return Error{Code::kInvalid, "has flags that the wrapper does not cache", ""};
  const bool targeted = command.flags.contains("target");
  NC_ASSIGN(cc::Action action, cc::make_action(command, variable_flags, identity_, env_,
                                               targeted ? "" : cc::machine_name()));
  return std::move(action.parts);
}

}  // namespace nc::cli
