#include "client/cc/input/mlir_bytecode.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "client/cc/input/bytecode_file.hpp"
#include "client/cc/input/canonical.hpp"
#include "client/cc/input/mlir_tables.hpp"

namespace nc::cc {
namespace {

enum Mask : std::uint8_t {
  kHasAttributes = 0x01,
  kHasResults = 0x02,
  kHasOperands = 0x04,
  kHasSuccessors = 0x08,
  kHasRegions = 0x10,
  kHasUseOrders = 0x20,
  kHasProperties = 0x40,
  kUnknown = 0x80,
};
// Versions of the format since which ...
constexpr std::uint64_t kSectionsForRegions = 2;
constexpr std::uint64_t kUseOrders = 3;
constexpr std::uint64_t kLocationsMayBeAbsent = 4;
constexpr std::uint64_t kProperties = 5;

constexpr std::size_t kDeepest = 1024;

class MlirBytecode {
 public:
  explicit MlirBytecode(std::string_view bytes) : bytes_(bytes), out_("mlir-bytecode") {}

  std::optional<Digest> digest() {
    if (!file_.read(bytes_)) return std::nullopt;
    head();
    if (!walk()) return std::nullopt;
    return out_.finish();
  }

 private:
  // Regions of one operation, of which one may be under way.
  struct Frame {
    std::uint64_t regions_left = 0;
    bool isolated = false;
    bool own_reader = false;  // the last of readers_
    bool in_region = false;
    std::uint64_t blocks = 0;
    std::uint64_t blocks_left = 0;
    std::uint64_t operations_left = 0;
    std::uint64_t values = 0;  // that the region defines
    std::uint64_t defined = 0;
  };

  void head() {
    out_.varint(file_.version);
    out_.bytes(file_.producer);
    std::vector<BytecodeFile::Dialect> dialects = file_.dialects;
    std::sort(dialects.begin(), dialects.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    for (const BytecodeFile::Dialect& dialect : dialects) {
      out_.byte(1);
      out_.bytes(dialect.name);
      out_.byte(dialect.version ? 1 : 0);
      if (dialect.version) out_.bytes(*dialect.version);
    }
    out_.byte(0);
    out_.raw(file_.resources().view());
  }

  bool walk() {
    readers_.push_back(file_.ir);
    scopes_.push_back(0);
    frames_.push_back({.isolated = true, .own_reader = true, .in_region = true, .blocks = 1});
    if (!block(frames_.back())) return false;
    only_one_ = frames_.back().operations_left == 1;
    while (!frames_.empty()) {
      if (!step()) return false;
    }
    return true;
  }

  bool step() {
    Frame& frame = frames_.back();
    if (frame.operations_left > 0) {
      --frame.operations_left;
      return operation();
    }
    if (frame.blocks_left > 0) {
      --frame.blocks_left;
      return block(frame);
    }
    if (frame.in_region) {
      if (frame.defined != frame.values) return false;
      scopes_.back() -= frame.values;
      frame.in_region = false;
    }
    if (frame.regions_left > 0) {
      --frame.regions_left;
      return region(frame);
    }
    if (frame.own_reader) {
      if (!readers_.back().at_end()) return false;
      readers_.pop_back();
    }
    if (frame.isolated) scopes_.pop_back();
    frames_.pop_back();
    return true;
  }

  bool region(Frame& frame) {
    if (!at().count(frame.blocks)) return false;
    out_.varint(frame.blocks);
    if (frame.blocks == 0) return true;
    if (!at().varint(frame.values) || frame.values > bytes_.size()) return false;
    out_.varint(frame.values);
    frame.in_region = true;
    frame.defined = 0;
    frame.blocks_left = frame.blocks;
    scopes_.back() += frame.values;
    return true;
  }

  bool block(Frame& frame) {
    std::uint64_t operations = 0;
    if (!at().varint(operations)) return false;
    const bool has_arguments = (operations & 1) != 0;
    frame.operations_left = operations >> 1;
    out_.varint(frame.operations_left);
    if (!has_arguments) {
      out_.varint(0);
      return true;
    }
    std::uint64_t count = 0;
    if (!at().count(count) || count == 0) return false;
    out_.varint(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!argument()) return false;
    }
    if (!define(frame, count)) return false;
    if (file_.version < kUseOrders) return true;
    std::uint8_t orders = 0;
    if (!at().byte(orders) || (orders & ~kHasUseOrders) != 0) return false;
    out_.byte(orders);
    return orders == 0 || use_orders(count);
  }

  bool argument() {
    std::uint64_t type_index = 0;
    if (!at().varint(type_index)) return false;
    bool located = true;
    if (file_.version >= kLocationsMayBeAbsent) {
      located = (type_index & 1) != 0;
      type_index >>= 1;
    }
    return type(type_index) && (!located || location());
  }

  bool operation() {
    std::uint64_t name = 0;
    std::uint8_t mask = 0;
    if (!at().index(file_.operations.size(), name) || !at().byte(mask) || !location()) return false;
    const BytecodeFile::Operation& operation = file_.operations[name];
    if ((mask & kUnknown) != 0) return false;
    if ((mask & kHasProperties) != 0 && file_.version < kProperties) return false;
    if ((mask & kHasUseOrders) != 0 && file_.version < kUseOrders) return false;
    out_.bytes(operation.name);
    out_.byte(operation.registered ? 1 : 0);

    std::optional<Digest> dictionary;
    if ((mask & kHasAttributes) != 0) {
      std::uint64_t index = 0;
      if (!at().index(file_.attributes(), index)) return false;
      const auto found = file_.dictionaries().find(index);
      if (found == file_.dictionaries().end()) return false;
      dictionary = found->second;
    }
    out_.byte(dictionary ? mask : static_cast<std::uint8_t>(mask & ~kHasAttributes));
    if (dictionary) out_.raw(dictionary->view());
    if ((mask & kHasProperties) != 0 && !properties(operation)) return false;
    std::uint64_t results = 0;
    if ((mask & kHasResults) != 0 && !list(results, [&](std::uint64_t i) { return type(i); }))
      return false;
    if ((mask & kHasOperands) != 0 && !numbers(scopes_.back())) return false;
    if ((mask & kHasSuccessors) != 0 && !numbers(frames_.back().blocks)) return false;
    if ((mask & kHasUseOrders) != 0 && !use_orders(results)) return false;
    if (!define(frames_.back(), results)) return false;
    return (mask & kHasRegions) == 0 || regions();
  }

  bool regions() {
    std::uint64_t count = 0;
    if (!at().varint(count)) return false;
    out_.varint(count);
    Frame frame{.regions_left = count >> 1, .isolated = (count & 1) != 0};
    if (frame.regions_left == 0 || frame.regions_left > at().left()) return false;
    if (frames_.size() == kDeepest) return false;
    if (frame.isolated) {
      if (file_.version >= kSectionsForRegions) {
        constexpr std::uint8_t kIr = 4;
        std::uint8_t id = 0;
        BytecodeCursor inner;
        if (!at().section(id, inner) || id != kIr) return false;
        readers_.push_back(inner);
        frame.own_reader = true;
      }
      scopes_.push_back(0);
    }
    frames_.push_back(frame);
    return true;
  }

  // The properties of a registered operation are a blob of its own form; of another one, an
  // attribute.
  bool properties(const BytecodeFile::Operation& operation) {
    std::uint64_t index = 0;
    if (!operation.registered) return at().varint(index) && attribute(index);
    if (!at().index(file_.properties.size(), index)) return false;
    if (!read_values(file_.properties[index])) return false;
    out_.varint(values_.size());
    if (operation.name.starts_with("vhlo.")) {
      // All of them are attributes of that dialect, and none may be absent.
      return std::all_of(values_.begin(), values_.end(), [&](std::uint64_t value) {
        return value < file_.attributes() && is_of_kind('H', file_.attribute(value), operation) &&
               attribute(value);
      });
    }
    const PropertyForms* forms = property_forms(operation.name);
    if (forms == nullptr) return false;
    std::string_view form;
    for (const std::string_view one : forms->forms) {
      if (!fits(one, operation)) continue;
      if (!form.empty()) return false;
      form = one;
    }
    if (form.empty()) return false;
    const bool outermost = frames_.size() == 1 && only_one_ && operation.name == "builtin.module";
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const bool optional = form[2 * i] == 'o';
      const bool left_out = outermost && i == 0;  // the module's name
      const bool there = !left_out && (!optional || (values_[i] & 1) != 0);
      out_.byte(there ? 1 : 0);
      if (there && !attribute(optional ? values_[i] >> 1 : values_[i])) return false;
    }
    return true;
  }

  bool read_values(std::string_view blob) {
    values_.clear();
    BytecodeCursor at(blob);
    constexpr std::size_t kMost = 64;
    while (!at.at_end()) {
      std::uint64_t value = 0;
      if (!at.varint(value) || values_.size() == kMost) return false;
      values_.push_back(value);
    }
    return true;
  }

  bool fits(std::string_view form, const BytecodeFile::Operation& operation) const {
    if (form.empty() || form.size() != 2 * values_.size()) return false;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      std::uint64_t value = values_[i];
      if (form[2 * i] == 'o') {
        if (value == 0) continue;
        if ((value & 1) == 0) return false;
        value >>= 1;
      }
      if (value >= file_.attributes()) return false;
      if (!is_of_kind(form[2 * i + 1], file_.attribute(value), operation)) return false;
    }
    return true;
  }

  bool is_of_kind(char kind, const BytecodeFile::Entry& entry,
                  const BytecodeFile::Operation& operation) const {
    if (entry.location) return false;
    if (!entry.custom) return kind == '*';
    return cc::is_of_kind(kind, file_.dialect_of(entry), entry.code, operation.name);
  }

  bool use_orders(std::uint64_t range) {
    std::uint64_t count = 1;
    if (range == 0 || (range > 1 && !at().count(count))) return false;
    out_.varint(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t which = 0;
      std::uint64_t size = 0;
      if (range > 1 && !at().index(range, which)) return false;
      if (!at().varint(size) || (size >> 1) > at().left()) return false;
      out_.varint(which);
      out_.varint(size);
      for (std::uint64_t j = 0; j < size >> 1; ++j) {
        std::uint64_t place = 0;
        if (!at().varint(place)) return false;
        out_.varint(place);
      }
    }
    return true;
  }

  template <class Take>
  bool list(std::uint64_t& count, Take take) {
    if (!at().count(count)) return false;
    out_.varint(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t value = 0;
      if (!at().varint(value) || !take(value)) return false;
    }
    return true;
  }
  bool numbers(std::uint64_t limit) {
    std::uint64_t count = 0;
    return list(count, [&](std::uint64_t value) {
      out_.varint(value);
      return value < limit;
    });
  }

  bool type(std::uint64_t index) {
    if (index >= file_.types()) return false;
    out_.raw(file_.type(index).digest.view());
    return true;
  }
  bool attribute(std::uint64_t index) {
    if (index >= file_.attributes() || file_.attribute(index).location) return false;
    out_.raw(file_.attribute(index).digest.view());
    return true;
  }
  bool location() {
    std::uint64_t index = 0;
    return at().index(file_.attributes(), index) && file_.attribute(index).location;
  }
  static bool define(Frame& frame, std::uint64_t count) {
    if (count > frame.values - frame.defined) return false;
    frame.defined += count;
    return true;
  }

  BytecodeCursor& at() { return readers_.back(); }

  std::string_view bytes_;
  BytecodeFile file_;
  CanonicalHash out_;
  std::vector<BytecodeCursor> readers_;
  std::vector<std::uint64_t> scopes_;  // how many values can be named
  std::vector<Frame> frames_;
  std::vector<std::uint64_t> values_;  // of the properties at hand
  bool only_one_ = false;              // operation at the top
};

}  // namespace

std::optional<Digest> mlir_bytecode_digest(Bytes bytes) {
  return MlirBytecode(as_text(bytes)).digest();
}

}  // namespace nc::cc
