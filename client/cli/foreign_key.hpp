// The key under which the neuronx-cc wrapper looks for what a neuron-cache holds. That cache says
// the compiler's version, the graph and the flags; the rest has to be given: the compiler itself
// (its package counts) and the environment in which the programs run, which is taken to be the one
// of this process.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "client/cc/identity.hpp"
#include "client/cli/foreign_layout.hpp"

namespace nc::cli {

class WrapperKeys {
 public:
  // `compiler`: the path of a neuronx-cc. Errors: kNotFound, kInvalid, kUnsupported (it does not
  // say its version).
  static Result<WrapperKeys> open(const std::string& compiler, const std::string& store_dir);

  const std::string& version() const { return version_; }  // "2.20.9961.0+0acef03a"

  // The parts that the wrapper makes of the command that libneuronxla gave for this entry. An error
  // says what is missing in the entry: kInvalid.
  Result<KeyParts> parts_of(const ForeignEntry& entry) const;

 private:
  cc::CompilerIdentity identity_;
  std::string version_;
  std::vector<std::string> env_;
};

}  // namespace nc::cli
