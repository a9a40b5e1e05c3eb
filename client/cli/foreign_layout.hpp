// The directories in which Neuron's own stacks keep what they compiled, as entries that can be
// stored:
//
//   neff-cache    ROOT/ab/cd/KEY.neff                              KEY: 32 hex digits, abcd...
//   neuron-cache  ROOT/neuronxcc-VERSION/MODULE_GRAPH+FLAGS/       model.neff, model.done,
//   model.log,
//                                                                  model.hlo_module.pb,
//                                                                  compile_flags.json
//
// Neither says all that went into a compile. An entry is stored under what its layout does say, so
// it is found again by that, and can be laid out again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"

namespace nc::cli {

enum class Layout { kNeffCache, kNeuronCache };
inline constexpr std::string_view kLayoutNames = "neff-cache|neuron-cache";
std::string_view layout_name(Layout layout);
Result<Layout> parse_layout(std::string_view name);

// Where an entry is below the root. The parts of its key and this say the same.
struct ForeignPlace {
  Layout layout = Layout::kNeffCache;
  std::string compiler;  // neuron-cache: "neuronxcc-2.20.9961.0+0acef03a"
  std::string name;      // KEY, or "MODULE_GRAPH+FLAGS"

  KeyParts parts() const;
  // nullopt: parts of another kind, or none that make a sound path.
  static std::optional<ForeignPlace> from(const KeyParts& parts);
  // Of what the neuronx-cc wrapper built for libneuronxla, which names its inputs after the module
  // ("model.MODULE_GRAPH+FLAGS.hlo_module.pb"); `compiler`: "neuronx-cc VERSION".
  static std::optional<ForeignPlace> from_command(std::string_view input,
                                                  std::string_view compiler);
  std::string path() const;  // relative: of the file, or of the directory
};

struct ForeignEntry {
  ForeignPlace place;
  std::map<std::string, std::string> files;  // name of the output -> path; "neff" is among them
};
struct ForeignSkip {
  std::string path;  // relative
  std::string reason;
};
struct ForeignScan {
  std::vector<ForeignEntry> entries;
  std::vector<ForeignSkip> skipped;
};

inline constexpr std::string_view kNeffOutput = "neff";
// Files of a module besides model.neff; they keep their names as outputs.
bool is_module_file(std::string_view name);

// Errors: those of reading `root`; kInvalid when nothing in it is of the layout.
Result<ForeignScan> scan_layout(Layout layout, const std::string& root);

}  // namespace nc::cli
