#include "client/cc/rebuild.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/filesystem.hpp"
#include "base/unique_fd.hpp"
#include "client/cc/flag_table.hpp"
#include "client/lease_keeper.hpp"

namespace nc::cc {
namespace {

constexpr std::string_view kFlagsVariable = "NEURON_CC_FLAGS";
constexpr std::string_view kInput = "{in/";
constexpr std::string_view kOutput = "{out/neff}";

std::string variable(const std::vector<std::string>& env, std::string_view name) {
  for (const std::string& entry : env) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  }
  return {};
}

// ---- Compilers ----

Result<KnownCompiler> know(const CompilerSearch& search, RealCompiler compiler) {
  std::error_code ignored;
  const auto full = std::filesystem::absolute(compiler.path, ignored);
  if (!full.empty()) compiler.path = full.string();
  std::vector<std::string> env = search.env;
  env.push_back(fmt::format("{}={}", kChainVariable, extend({}, search.self, compiler).format()));
  NC_ASSIGN(CompilerIdentity identity, identify(compiler, env, search.cache_dir));
  return KnownCompiler{std::move(compiler), std::move(identity)};
}

bool is_version(const std::string& version, const std::string& wanted) {
  if (!version.starts_with(wanted)) return false;
  return version.size() == wanted.size() || version[wanted.size()] == '.' ||
         version[wanted.size()] == '+';
}

Result<KnownCompiler> of_version(const CompilerSearch& search, const std::string& wanted) {
  std::vector<RealCompiler> found;
  const auto add = [&](const std::string& setting, const std::string& path_list) {
    auto one = find_real_compiler(setting, path_list, search.self, {});
    if (!one.ok()) return;
    const bool again = std::any_of(found.begin(), found.end(),
                                   [&](const RealCompiler& c) { return c.id == one->id; });
    if (!again) found.push_back(*std::move(one));
  };
  if (!search.setting.empty()) add(search.setting, "");
  const std::string path_list = variable(search.env, "PATH");
  for (std::size_t begin = 0; begin < path_list.size();) {
    const std::size_t end = std::min(path_list.find(':', begin), path_list.size());
    if (end > begin) add("", path_list.substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<std::string> versions;
  for (RealCompiler& compiler : found) {
    auto known = know(search, std::move(compiler));
    if (!known.ok()) continue;
    if (is_version(known->identity.version(), wanted)) return known;
    versions.push_back(known->identity.version());
  }
  const std::string there = versions.empty()
                                ? "there is none on PATH"
                                : fmt::format("there is {}", fmt::join(versions, ", "));
  return Error{Code::kNotFound, fmt::format("there is no neuronx-cc {} here; {}", wanted, there),
               "install it, put its directory on PATH, or give the path of the program"};
}

// ---- Aiming ----

Error unsayable(const client::RecordedAction& record, std::string_view why) {
  return {Code::kUnsupported, fmt::format("{} cannot be built anew: {}", record.label, why), ""};
}

// Placeholders are the only files of a recorded command.
Surroundings recorded_world() {
  Surroundings world;
  world.read_file = [](const std::string&) { return std::nullopt; };
  world.exists = [](const std::string& path) { return path.starts_with(kInput); };
  return world;
}

std::vector<std::string> recorded_env(const client::RecordedAction& record) {
  std::vector<std::string> env;
  for (const auto& [name, value] : record.env) env.push_back(fmt::format("{}={}", name, value));
  return env;
}

bool of_compiler(std::string_view part) {
  return part == "compiler" || part == "compiler.package";
}

// The parts of the key with the command as it is now; those of the compiler and of the inputs are
// the record's.
KeyParts parts_of(const client::RecordedAction& record, Command& command) {
  const std::vector<std::string> env = recorded_env(record);
  const Command flags =
      parse_flags_variable(variable(env, kFlagsVariable), recorded_world(), command);
  std::string machine;
  KeyParts kept;
  for (const auto& [name, value] : record.parts) {
    if (name == "machine") machine = value;
    if (of_compiler(name) || name.starts_with(kInputPart)) kept.emplace_back(name, value);
  }
  KeyParts parts = command_parts(command, flags, env, machine);
  std::move(kept.begin(), kept.end(), std::back_inserter(parts));
  return parts;
}

// Every spelling of --target goes, one comes.
void set_target(std::vector<std::string>& argv, const std::string& target) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < argv.size(); ++i) {
    const FlagSpec* flag = find_flag(std::string_view(argv[i]).substr(0, argv[i].find('=')));
    if (flag == nullptr || flag->canonical != "target") {
      out.push_back(argv[i]);
    } else if (argv[i].find('=') == std::string::npos) {
      ++i;  // its value
    }
  }
  out.insert(out.end(), {"--target", target});
  argv = std::move(out);
}

// ---- Building ----

bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

Status fetch(client::Client& client, const client::OutputInfo& input, const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return errno_error(errno, "cannot write", path);
  Sha256Hasher hasher;
  const auto size = client.download_to(input.digest, [&](Bytes bytes) -> Status {
    hasher.update(bytes);
    std::string_view left = as_text(bytes);
    while (!left.empty()) {
      const ssize_t n = ::write(fd.get(), left.data(), left.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_error(errno, "cannot write", path);
      left.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
  });
  if (size.is(Code::kNotFound))
    return Error{Code::kNotFound,
                 fmt::format("the recorded input {} is gone from the store", input.name),
                 "record the action again with `neuroncache warmup -- COMMAND`"};
  if (!size.ok()) return size.error();
  if (*size == input.size && hasher.finish() == input.digest) return {};
  return Error{Code::kDigestMismatch, fmt::format("the stored input {} is damaged", input.name),
               "run `neuroncache verify --repair`, and record the action again"};
}

// Without what only says how the compiler is to go about it: places, how much is printed.
std::vector<std::string> needed_words(const std::vector<std::string>& argv) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < argv.size(); ++i) {
    const FlagSpec* flag = argv[i].starts_with("--")
                               ? find_flag(std::string_view(argv[i]).substr(0, argv[i].find('=')))
                               : nullptr;
    if (flag == nullptr || flag->in_key == InKey::kYes || flag->role == Role::kOutput) {
      out.push_back(argv[i]);
    } else if (flag->takes == Takes::kValue && argv[i].find('=') == std::string::npos) {
      ++i;
    }
  }
  return out;
}

class Rebuild {
 public:
  Rebuild(const Workshop& workshop, const client::RecordedAction& record, client::Client& client,
          const client::Lease& lease)
      : shop_(workshop), record_(record), client_(client), lease_(lease) {}

  BuildReport run() {
    Status ready;
    {
      const client::LeaseKeeper keeper(shop_.client_options, lease_);
      ready = prepare();
    }
    if (!ready.ok()) return refuse(ready.error());
    return build_for_others(session_, client_, lease_);
  }

 private:
  BuildReport refuse(const Error& error) {
    client::FailReport failure;
    failure.failure_class = error.code == Code::kNoSpace ? "disk_full" : "environment";
    failure.message = error.text();
    ignore_error(client_.fail(lease_, failure), "the lease ends with this process");
    BuildReport report;
    report.failure_class = failure.failure_class;
    report.message = failure.message;
    return report;
  }

  Status prepare() {
    NC_TRY(fetch_inputs());
    if (::chdir(shop_.directory.c_str()) != 0)
      return errno_error(errno, "cannot change to", shop_.directory);
    session_.self = shop_.search.self;
    session_.settings = shop_.settings;
    NC_TRY(session_.settings.set("namespace", record_.name_space, Origin::kLive, "the record"));
    session_.client_options = shop_.client_options;
    session_.compiler = shop_.compiler;
    session_.chain =
        fmt::format("{}={}", kChainVariable, extend({}, session_.self, session_.compiler).format());
    session_.model = record_.model;
    NC_TRY(set_environment());
    NC_TRY(set_command());
    NC_ASSIGN(session_.identity,
              identify(session_.compiler, session_.compiler_env(), shop_.search.cache_dir));
    return set_action();
  }

  Status fetch_inputs() {
    const std::string in = join(shop_.directory, "in");
    NC_TRY(real_filesystem().make_dirs(in));
    NC_TRY(real_filesystem().make_dirs(join(shop_.directory, "out")));
    for (const client::OutputInfo& input : record_.inputs) {
      if (!is_file_name(input.name))
        return unsayable(record_, fmt::format("'{}' is no name of an input", input.name));
      NC_TRY(fetch(client_, input, join(in, input.name)));
      places_[fmt::format("{}{}}}", kInput, input.name)] = join(in, input.name);
    }
    places_[std::string(kOutput)] = join(shop_.directory, "out/file.neff");
    return {};
  }

  // Ours, but for what counts for the result: that is the record's, and nothing else is.
  Status set_environment() {
    const auto counts = [](const std::string& name, const std::string& value) {
      return name == kFlagsVariable || keyed_variable(name, value).has_value();
    };
    for (const std::string& entry : shop_.search.env) {
      const std::size_t equals = std::min(entry.find('='), entry.size());
      const std::string value = equals < entry.size() ? entry.substr(equals + 1) : "";
      if (!counts(entry.substr(0, equals), value)) session_.env.push_back(entry);
    }
    for (const auto& [name, value] : record_.env) {
      if (!counts(name, value))
        return unsayable(record_, fmt::format("the variable {} is none that counts", name));
      session_.env.push_back(fmt::format("{}={}", name, value));
    }
    return {};
  }

  Status set_command() {
    std::vector<std::string> argv = needed_words(record_.argv);
    for (std::string& word : argv) {
      if (word.starts_with('@')) return unsayable(record_, "it reads its words from a file");
      if (const auto place = places_.find(word); place != places_.end()) word = place->second;
    }
    world_ = real_surroundings();
    session_.command = parse_command(argv, world_);
    if (session_.command.kind != Command::Kind::kCompile)
      return unsayable(record_, "it is no compile command");
    if (session_.command.output != places_[std::string(kOutput)])
      return unsayable(record_, "its output goes elsewhere");
    session_.command.compiler_arguments = std::move(argv);
    return {};
  }

  Status set_action() {
    const Command flags =
        parse_flags_variable(variable(session_.env, kFlagsVariable), world_, session_.command);
    NC_ASSIGN(session_.action,
              make_action(session_.command, flags, session_.identity, session_.env,
                          session_.command.flags.contains("target") ? "" : machine_name()));
    if (session_.action.key != record_.key) return unsayable(record_, difference());
    session_.action.label = record_.label;
    return {};
  }

  std::string difference() const {
    std::map<std::string, std::string> here(session_.action.parts.begin(),
                                            session_.action.parts.end());
    for (const auto& [name, wanted] : record_.parts) {
      const auto mine = here.find(name);
      if (mine == here.end() || mine->second != wanted) {
        constexpr std::size_t kShown = 100;
        return fmt::format("its {} is '{}', here it is '{}'", name, wanted.substr(0, kShown),
                           mine == here.end() ? "" : mine->second.substr(0, kShown));
      }
    }
    return "here it is another command";
  }

  const Workshop& shop_;
  const client::RecordedAction& record_;
  client::Client& client_;
  const client::Lease& lease_;
  std::map<std::string, std::string> places_;  // of the placeholders
  Surroundings world_;
  Session session_;
};

}  // namespace

Result<KnownCompiler> choose_compiler(const CompilerSearch& search, const std::string& wanted) {
  if (!wanted.empty() && wanted.find('/') == std::string::npos) return of_version(search, wanted);
  auto compiler = wanted.empty() ? find_real_compiler(search.setting, variable(search.env, "PATH"),
                                                      search.self, {})
                                 : compiler_at(wanted, search.self, "the compiler");
  if (!compiler.ok()) return std::move(compiler).error();
  return know(search, *std::move(compiler));
}

bool recorded_with(const client::RecordedAction& record, const CompilerIdentity& compiler) {
  const KeyParts wanted = compiler_parts(compiler);
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& part) {
    return std::find(record.parts.begin(), record.parts.end(), part) != record.parts.end();
  });
}

Result<client::RecordedAction> aim_at(const client::RecordedAction& record, const Aim& aim) {
  client::RecordedAction made = record;
  Command command = parse_command(record.argv, recorded_world());
  if (command.kind != Command::Kind::kCompile) return unsayable(record, "it is no compile command");
  NC_ASSIGN(const ActionKey same, action_key(parts_of(record, command)));
  if (same != record.key)
    return unsayable(record, "it was recorded by another version of neuroncache; record it again");

  if (!aim.target.empty()) {
    set_target(made.argv, aim.target);
    command = parse_command(made.argv, recorded_world());
    const std::string flags = variable(recorded_env(record), kFlagsVariable);
    if (parse_flags_variable(flags, recorded_world(), command).flags.contains("target"))
      return unsayable(record, fmt::format("{} names a target", kFlagsVariable));
  }
  made.parts = parts_of(record, command);
  if (aim.compiler != nullptr) {
    std::erase_if(made.parts, [](const auto& part) { return of_compiler(part.first); });
    KeyParts parts = compiler_parts(*aim.compiler);
    std::move(parts.begin(), parts.end(), std::back_inserter(made.parts));
    made.compiler = "neuronx-cc " + aim.compiler->version();
  }
  NC_ASSIGN(made.key, action_key(made.parts));
  return made;
}

BuildReport build_recorded(const Workshop& workshop, const client::RecordedAction& record,
                           client::Client& client, const client::Lease& lease) {
  return Rebuild(workshop, record, client, lease).run();
}

}  // namespace nc::cc
