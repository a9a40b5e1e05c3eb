// The command line of the compiler wrapper: words separated by NUL, then NEURON_CC_FLAGS, then the
// text of a response file.
#include "client/cc/arguments.hpp"
#include "client/cc/failure.hpp"
#include "client/cc/flag_table.hpp"
#include "client/cc/real_compiler.hpp"
#include "client/cc/words.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace {

using namespace nc::cc;

std::string_view take(std::string_view& text, char until) {
  const std::size_t end = std::min(text.find(until), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

void check(const Command& command, const std::vector<std::string>& words) {
  for (const auto& [name, value] : command.flags) {
    bool known = false;
    for (const FlagSpec& f : flag_table())
      known = known || (f.canonical == name && f.in_key == InKey::kYes);
    FUZZ_REQUIRE(known);
  }
  if (command.kind == Command::Kind::kPassThrough) {
    FUZZ_REQUIRE(command.compiler_arguments == words);
    return;
  }
  FUZZ_REQUIRE(command.kind == Command::Kind::kBypass || !command.inputs.empty());
  // The compiler gets the caller's words, in order, but for those of the other wrapper.
  auto at = words.begin();
  for (const std::string& word : command.compiler_arguments) {
    at = std::find(at, words.end(), word);
    FUZZ_REQUIRE(at != words.end());
    ++at;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text = nc::as_text(nc::fuzz_bytes(data, size));
  std::string_view line = take(text, '\1');
  const std::string_view variable = take(text, '\1');
  const std::string response(text);
  std::vector<std::string> words;
  while (!line.empty()) words.emplace_back(take(line, '\0'));
  Surroundings world;
  world.exists = [](const std::string& path) { return path.size() % 2 == 0; };
  world.read_file = [&](const std::string& path) -> std::optional<std::string> {
    if (path != "f") return std::nullopt;
    return response;
  };
  Command command = parse_command(words, world);
  check(command, words);
  const Command again = parse_command(words, world);
  FUZZ_REQUIRE(again.flags == command.flags && again.unknown == command.unknown &&
               again.inputs == command.inputs && again.output == command.output);
  const Command flags = parse_flags_variable(variable, world, command);
  FUZZ_REQUIRE(split_words(quote_words(flags.unknown)) == flags.unknown);
  for (const std::string& word : words) FUZZ_REQUIRE(!key_text(word).empty() || word.empty());
  const Streams streams = split_streams(response);
  FUZZ_REQUIRE(streams.out.size() + streams.err.size() <= response.size());
  const Chain chain = Chain::parse(variable);
  FUZZ_REQUIRE(chain.depth >= 0 && chain.depth <= kMaxChain);
  FUZZ_REQUIRE(Chain::parse(chain.format()).tried == chain.tried);
  return 0;
}
