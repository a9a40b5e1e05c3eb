// Element types, by torch's names, with what the analysis needs to know of them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace nc::padding {

// A type is its name; the engine knows classes of types, not a closed list.
class Dtype {
 public:
  Dtype() = default;
  explicit Dtype(std::string_view name) : name_(name) {}

  const std::string& name() const { return name_; }
  bool is_bool() const { return name_ == "bool"; }
  bool is_float() const { return name_.starts_with("float") || name_.starts_with("bfloat"); }
  bool is_complex() const { return name_.starts_with("complex"); }
  bool is_integer() const { return name_.starts_with("int") || name_.starts_with("uint"); }
  bool is_inexact() const { return is_float() || is_complex(); }
  // Least and greatest value of an integer type that the rules may fill with.
  int64_t least() const {
    if (name_ == "int8") return std::numeric_limits<int8_t>::min();
    if (name_ == "int16") return std::numeric_limits<int16_t>::min();
    if (name_ == "int32") return std::numeric_limits<int32_t>::min();
    if (name_ == "int64") return std::numeric_limits<int64_t>::min();
    return 0;
  }
  int64_t greatest() const {
    if (name_ == "int8") return std::numeric_limits<int8_t>::max();
    if (name_ == "int16") return std::numeric_limits<int16_t>::max();
    if (name_ == "int32") return std::numeric_limits<int32_t>::max();
    if (name_ == "uint8") return std::numeric_limits<uint8_t>::max();
    if (name_ == "bool") return 1;
    return std::numeric_limits<int64_t>::max();
  }
  bool operator==(const Dtype&) const = default;

 private:
  std::string name_;
};

}  // namespace nc::padding
