// What a compiler's input is to the key: a digest of everything in it that can change the output,
// and of nothing else. Two inputs that could compile differently never get one digest; where an
// input is not understood to its last byte, all its bytes count.
//
// The form is recognised by content, never by the file's name. What is hashed (SHA-256), version 1:
//
//   "neuroncache input 1 " form "\n" body
//   body       raw        every byte of the file
//              directory  for each file below it, in the order of the relative names (bytes):
//                         name, form, the 32 bytes of the file's own digest; for a directory
//                         without entries: its name and "/"; names and forms with their length in
//                         front
//              hlo-proto, mlir-text, mlir-bytecode: see hlo_proto.hpp, mlir_text.hpp,
//              mlir_bytecode.hpp
//   varint     LEB128, lengths are varints
//
// Any change of these grammars needs the next version number: it is the first thing hashed.
#pragma once

#include <cstdint>
#include <string>

#include "base/hash.hpp"
#include "base/result.hpp"

namespace nc::cc {

struct InputDigest {
  std::string form;  // "raw", "directory", "hlo-proto", "mlir-text", "mlir-bytecode"
  Digest digest;
  std::uint64_t bytes = 0;  // of the file, or of all files of the directory
  bool normalised = false;  // something was understood; raw files, and directories of them, are not
};

struct InputLimits {
  // A larger file is not looked into: it is hashed as it is, in constant memory. A smaller one is
  // held in memory, with at most about as much again for tables.
  std::uint64_t parsed_bytes = std::uint64_t{256} << 20;
  std::uint64_t files = 100'000;  // in a directory, before it is refused
  std::uint32_t depth = 64;       // of directories, likewise
};

// Errors: kNotFound, kDenied; kUnsupported (no file or directory, or one inside of the directory:
// opening a pipe or a device could block or eat what it holds); kTooLarge (over a limit of a
// directory); kConflict (changed while it was read); kIo.
Result<InputDigest> digest_input(const std::string& path, const InputLimits& limits = {});

// The same of bytes in memory, as of a file.
InputDigest digest_bytes(Bytes bytes, const InputLimits& limits = {});

}  // namespace nc::cc
