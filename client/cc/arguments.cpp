#include "client/cc/arguments.hpp"

#include <algorithm>
#include <utility>

#include "client/cc/flag_table.hpp"
#include "client/cc/words.hpp"

namespace nc::cc {
namespace {

constexpr int kMaxResponseDepth = 8;
constexpr std::size_t kMaxWords = 100'000;

struct Word {
  std::string text;
  bool typed = true;      // on the command line itself, not in a response file
  std::size_t index = 0;  // of the argument that it is or came from
};

// One argument per line, as argparse reads response files; a line may also hold several words.
bool expand(const std::string& argument, std::size_t index, int depth, const Surroundings& world,
            std::vector<Word>& out) {
  if (out.size() >= kMaxWords) return false;
  const auto text = argument.size() > 1 && argument[0] == '@' && depth < kMaxResponseDepth
                        ? world.read_file(argument.substr(1))
                        : std::nullopt;
  if (!text) {
    out.push_back({argument, depth == 0, index});
    return true;
  }
  for (const std::string& word : split_words(*text)) {
    if (!expand(word, index, depth + 1, world, out)) return false;
  }
  return true;
}

class Parser {
 public:
  Parser(const Surroundings& world, bool flags_only) : world_(world), flags_only_(flags_only) {}

  void run(std::span<const Word> words) {
    dropped_.assign(words.empty() ? 0 : words.back().index + 1, false);
    for (at_ = 0; at_ < words.size(); ++at_) step(words);
    settle();
  }

  Command take(std::span<const std::string> arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (i >= dropped_.size() || !dropped_[i]) command_.compiler_arguments.push_back(arguments[i]);
    }
    return std::move(command_);
  }

 private:
  void step(std::span<const Word> words) {
    const std::string& word = words[at_].text;
    const bool flag = !only_positional_ && word.size() > 1 && word[0] == '-';
    if (!flag) return positional(word);
    if (word == "--") {
      only_positional_ = true;
      return;
    }
    if (word == "--version" || word == "--help" || word == "-h") return pass_through(word);
    const auto [spec, value] = match(word);
    if (spec == nullptr) return unknown(word);
    last_unknown_ = false;
    known(words, *spec, value);
  }

  struct Match {
    const FlagSpec* spec = nullptr;
    std::optional<std::string> value;
  };

  // --name, --name=value, -O, -O2, -O=2.
  static Match match(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string_view name = std::string_view(word).substr(0, equals);
    if (const FlagSpec* spec = find_flag(name)) {
      if (equals == std::string::npos) return {spec, std::nullopt};
      return {spec, word.substr(equals + 1)};
    }
    if (word.starts_with("--")) return {};
    if (const FlagSpec* spec = find_flag(std::string_view(word).substr(0, 2)))
      return {spec, word.substr(2)};
    return {};
  }

  void known(std::span<const Word> words, const FlagSpec& spec, std::optional<std::string> value) {
    const std::size_t first = at_;
    if (!value && spec.takes == Takes::kValue && at_ + 1 < words.size()) value = words[++at_].text;
    if (!value && spec.takes == Takes::kWords) {
      std::vector<std::string> taken;
      while (at_ + 1 < words.size() && !words[at_ + 1].text.starts_with('-'))
        taken.push_back(words[++at_].text);
      value = quote_words(taken);
    }
    if (!value) value = std::string(spec.implied);
    if (spec.wrapper_only) {
      for (std::size_t i = first; i <= at_; ++i) {
        if (words[i].typed) dropped_[words[i].index] = true;
      }
    }
    switch (spec.role) {
      case Role::kOutput:
        command_.output = *value;
        break;
      case Role::kLogfile:
        command_.logfile = *value;
        command_.logfile_named = true;
        break;
      case Role::kRetry:
        command_.retry_failed = true;
        break;
      case Role::kNoCache:
        bypass("no_cache");
        break;
      case Role::kPlain:
        break;
    }
    if (spec.in_key == InKey::kYes) command_.flags[std::string(spec.canonical)] = *value;
  }

  void unknown(const std::string& word) {
    if (may_abbreviate(word.substr(0, word.find('=')))) bypass("abbreviated_flag");
    last_unknown_ = true;
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) {
      note_file(word.substr(equals + 1));
      last_unknown_ = false;
    }
    command_.unknown.push_back(word);
  }

  void positional(const std::string& word) {
    const bool after_unknown = std::exchange(last_unknown_, false);
    if (!flags_only_ && !have_command_) {
      if (after_unknown && word != kCompile) {
        command_.unknown.push_back(word);
        return;
      }
      have_command_ = true;
      if (word != kCompile) pass_through("other_command");
      return;
    }
    if (after_unknown || flags_only_) {
      // A value of that flag or an input: settled when all words are known.
      doubtful_.push_back(command_.unknown.size());
      command_.unknown.push_back(word);
      return;
    }
    command_.inputs.push_back(word);
  }

  void settle() {
    if (settled_ && command_.kind == Command::Kind::kPassThrough) return;
    if (!flags_only_ && !have_command_) return pass_through("no_command");
    if (!flags_only_ && command_.inputs.empty()) {
      for (auto it = doubtful_.rbegin(); it != doubtful_.rend(); ++it) {
        const auto place = command_.unknown.begin() + static_cast<std::ptrdiff_t>(*it);
        if (!world_.exists(*place)) continue;
        command_.inputs.insert(command_.inputs.begin(), *place);
        command_.unknown.erase(place);
      }
    } else {
      for (const std::size_t i : doubtful_) note_file(command_.unknown[i]);
    }
    if (settled_) return;
    if (!flags_only_ && command_.inputs.empty()) return pass_through("no_input");
    command_.kind = Command::Kind::kCompile;
  }

  void note_file(const std::string& path) {
    if (!path.empty() && world_.exists(path)) command_.unknown_files.push_back(path);
  }

  void pass_through(std::string_view reason) {
    settled_ = true;
    command_.kind = Command::Kind::kPassThrough;
    const std::size_t name = reason.find_first_not_of('-');
    command_.reason = reason == "-h" ? "help" : std::string(reason.substr(name));
  }

  void bypass(std::string_view reason) {
    if (settled_ && command_.kind == Command::Kind::kPassThrough) return;
    settled_ = true;
    command_.kind = Command::Kind::kBypass;
    command_.reason = reason;
  }

  static constexpr std::string_view kCompile = "compile";

  const Surroundings& world_;
  const bool flags_only_;
  Command command_;
  std::size_t at_ = 0;
  bool only_positional_ = false;
  bool have_command_ = false;
  bool last_unknown_ = false;
  bool settled_ = false;
  std::vector<std::size_t> doubtful_;  // places in command_.unknown
  std::vector<bool> dropped_;          // arguments that the compiler does not get
};

Command parse(std::span<const std::string> arguments, const Surroundings& world, bool flags_only) {
  std::vector<Word> words;
  bool bounded = true;
  for (std::size_t i = 0; i < arguments.size() && bounded; ++i)
    bounded = expand(arguments[i], i, 0, world, words);
  Parser parser(world, flags_only);
  parser.run(words);
  Command command = parser.take(arguments);
  if (!bounded) {
    command.kind = Command::Kind::kPassThrough;
    command.reason = "too_many_words";
    command.compiler_arguments.assign(arguments.begin(), arguments.end());
  }
  if (command.kind == Command::Kind::kPassThrough)
    command.compiler_arguments.assign(arguments.begin(), arguments.end());
  return command;
}

}  // namespace

Command parse_command(std::span<const std::string> arguments, const Surroundings& surroundings) {
  return parse(arguments, surroundings, false);
}

Command parse_flags_variable(std::string_view text, const Surroundings& surroundings,
                             Command& command) {
  const std::vector<std::string> words = split_words(text);
  Command flags = parse(words, surroundings, true);
  command.retry_failed = command.retry_failed || flags.retry_failed;
  if (flags.kind == Command::Kind::kBypass && command.kind == Command::Kind::kCompile) {
    command.kind = flags.kind;
    command.reason = flags.reason;
  }
  std::erase_if(flags.flags, [&](const auto& flag) {
    const auto same = command.flags.find(flag.first);
    return same != command.flags.end() && same->second == flag.second;
  });
  // Whole runs only: the order of unknown words may matter.
  const auto run = std::search(command.unknown.begin(), command.unknown.end(),
                               flags.unknown.begin(), flags.unknown.end());
  if (!flags.unknown.empty() && run != command.unknown.end()) {
    flags.unknown.clear();
    flags.unknown_files.clear();
  }
  return flags;
}

}  // namespace nc::cc
