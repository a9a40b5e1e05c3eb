#include "client/cc/input/hlo_proto.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "client/cc/input/canonical.hpp"
#include "client/cc/input/wire.hpp"

namespace nc::cc {
namespace {

// Field numbers of hlo.proto and xla_data.proto.
enum Module : std::uint32_t {
  kModuleName = 1,
  kEntryName = 2,
  kComputations = 3,
  kHostProgramShape = 4,
  kModuleId = 5,
  kEntryId = 6,
  kSchedule = 7,
  kStackFrameIndex = 17,
  kModuleAttributes = 19,
};
enum Computation : std::uint32_t {
  kComputationName = 1,
  kInstructions = 2,
  kProgramShape = 4,
  kComputationId = 5,
  kRootId = 6,
};
enum Instruction : std::uint32_t {
  kName = 1,
  kOpcode = 2,
  kMetadata = 7,
  kId = 35,
  kOperandIds = 36,
  kControlIds = 37,
  kCalledIds = 38,
  kAttributes = 68,
};
constexpr std::uint32_t kParameterNames = 3;  // of ProgramShapeProto

// The fields whose meaning is known. Among them none but those above names an id or another name.
constexpr std::array kKnownModule = {1,  2,  3,  4,  5,  6,  7,  8,  10,
                                     11, 12, 13, 14, 15, 16, 17, 18, 19};
constexpr std::array kKnownComputation = {1, 2, 4, 5, 6, 7, 8};
constexpr std::array kKnownInstruction = {
    1,  2,  3,  7,  8,  9,  11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
    25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 40, 43, 45, 47, 48,
    49, 50, 51, 52, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 65, 66, 67, 68, 69,
    70, 71, 72, 73, 74, 75, 76, 77, 79, 80, 81, 82, 85, 86, 87, 89, 90, 91};
constexpr std::array kDebugStrings = {1, 2, 3, 12, 16};  // of OpMetadata
constexpr std::array kDebugNumbers = {4, 15, 17, 18, 19};

template <std::size_t N>
bool among(const std::array<int, N>& sorted, std::uint32_t number) {
  return std::binary_search(sorted.begin(), sorted.end(), static_cast<std::int64_t>(number));
}

// A number that may be given once; absent is 0, as in proto3.
struct Once {
  std::uint64_t value = 0;
  bool seen = false;

  bool take(const WireField& field) {
    if (seen || field.type != WireField::kVarint) return false;
    seen = true;
    value = field.value;
    return true;
  }
};

// "add.12" -> "add"
std::string_view without_number(std::string_view name) {
  std::size_t end = name.size();
  while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') --end;
  const bool numbered = end > 0 && end < name.size() && name[end - 1] == '.';
  return numbered ? name.substr(0, end - 1) : name;
}

// Ids, sorted; the place of an id is its rank.
class Ranks {
 public:
  void add(std::uint64_t id) { ids_.push_back(static_cast<std::int64_t>(id)); }
  bool seal() {  // false: an id twice
    std::sort(ids_.begin(), ids_.end());
    return std::adjacent_find(ids_.begin(), ids_.end()) == ids_.end();
  }
  std::optional<std::uint64_t> of(std::uint64_t id) const {
    const auto wanted = static_cast<std::int64_t>(id);
    const auto at = std::lower_bound(ids_.begin(), ids_.end(), wanted);
    if (at == ids_.end() || *at != wanted) return std::nullopt;
    return static_cast<std::uint64_t>(at - ids_.begin());
  }
  bool empty() const { return ids_.empty(); }

 private:
  std::vector<std::int64_t> ids_;
};

struct ComputationInfo {
  std::uint64_t id = 0;
  std::string_view name;
  Ranks instructions;
};

class HloProto {
 public:
  explicit HloProto(std::string_view module) : module_(module), out_("hlo-proto") {}

  std::optional<Digest> digest() {
    if (!survey() || !emit_module()) return std::nullopt;
    return out_.finish();
  }

 private:
  // First pass: the ids, and whether all is known.
  bool survey() {
    WireField field;
    WireReader reader(module_);
    Once entry;
    std::string_view entry_name;
    bool named = false;
    while (reader.next(field)) {
      if (!among(kKnownModule, field.number)) exact_ = true;
      switch (field.number) {
        case kEntryName:
          if (named || field.type != WireField::kBytes) return false;
          named = true;
          entry_name = field.bytes;
          break;
        case kEntryId:
          if (!entry.take(field)) return false;
          break;
        case kComputations:
          if (field.type != WireField::kBytes || !survey_computation(field.bytes)) return false;
          break;
        default:
          break;
      }
    }
    if (!reader.at_end() || computations_.empty() || !computation_ranks_.seal()) return false;
    by_rank_.resize(computations_.size());
    for (std::size_t i = 0; i < computations_.size(); ++i)
      by_rank_[computation_ranks_.of(computations_[i].id).value_or(0)] = i;
    const auto rank = computation_ranks_.of(entry.value);
    return rank && (!named || computations_[by_rank_[*rank]].name == entry_name);
  }

  bool survey_computation(std::string_view message) {
    ComputationInfo info;
    Once id;
    Once root;
    bool named = false;
    WireField field;
    WireReader reader(message);
    while (reader.next(field)) {
      if (!among(kKnownComputation, field.number)) exact_ = true;
      switch (field.number) {
        case kComputationName:
          if (named || field.type != WireField::kBytes) return false;
          named = true;
          info.name = field.bytes;
          break;
        case kComputationId:
          if (!id.take(field)) return false;
          break;
        case kRootId:
          if (!root.take(field)) return false;
          break;
        case kInstructions:
          if (field.type != WireField::kBytes || !survey_instruction(field.bytes, info))
            return false;
          break;
        default:
          break;
      }
    }
    if (!reader.at_end() || info.instructions.empty() || !info.instructions.seal()) return false;
    if (!info.instructions.of(root.value)) return false;
    info.id = id.value;
    computation_ranks_.add(info.id);
    computations_.push_back(std::move(info));
    return true;
  }

  bool survey_instruction(std::string_view message, ComputationInfo& computation) {
    Once id;
    bool opcode = false;
    WireField field;
    WireReader reader(message);
    while (reader.next(field)) {
      if (!among(kKnownInstruction, field.number)) exact_ = true;
      if (field.number == kId && !id.take(field)) return false;
      if (field.number == kOpcode) {
        if (opcode || field.type != WireField::kBytes || field.bytes.empty()) return false;
        opcode = true;
      }
    }
    computation.instructions.add(id.value);
    return opcode && reader.at_end();
  }

  // Second pass.
  bool emit_module() {
    std::size_t at = 0;
    WireField field;
    WireReader reader(module_);
    while (reader.next(field)) {
      bool ok = true;
      switch (field.number) {
        case kModuleName:
        case kEntryName:
        case kStackFrameIndex:
          ok = field.type == WireField::kBytes;
          break;
        case kModuleId:
          ok = field.type == WireField::kVarint;
          break;
        case kEntryId:
          ok = emit_id(field.number, field.value, computation_ranks_);
          break;
        case kComputations:
          ok = emit_computation(field, computations_[at++]);
          break;
        case kHostProgramShape:
          ok = emit_program_shape(field);
          break;
        case kSchedule:
          ok = emit_schedule(field);
          break;
        case kModuleAttributes:
          ok = emit_attributes(field);
          break;
        default:
          keep(field);
      }
      if (!ok) return false;
    }
    close();
    return true;
  }

  bool emit_computation(const WireField& message, const ComputationInfo& info) {
    open(message.number);
    if (!emit_id(kComputationId, info.id, computation_ranks_)) return false;
    WireField field;
    WireReader reader(message.bytes);
    while (reader.next(field)) {
      bool ok = true;
      switch (field.number) {
        case kComputationName:
          ok = emit_name(field);
          break;
        case kInstructions:
          ok = emit_instruction(field, info.instructions);
          break;
        case kProgramShape:
          ok = emit_program_shape(field);
          break;
        case kComputationId:
          break;
        case kRootId:
          ok = emit_id(field.number, field.value, info.instructions);
          break;
        default:
          keep(field);
      }
      if (!ok) return false;
    }
    close();
    return true;
  }

  bool emit_instruction(const WireField& message, const Ranks& ranks) {
    open(message.number);
    bool has_id = false;
    WireField field;
    WireReader reader(message.bytes);
    while (reader.next(field)) {
      bool ok = true;
      switch (field.number) {
        case kName:
          ok = emit_name(field);
          break;
        case kMetadata:
          ok = emit_metadata(field);
          break;
        case kId:
          has_id = true;
          ok = emit_id(field.number, field.value, ranks);
          break;
        case kOperandIds:
        case kControlIds:
          ok = emit_ids(field, ranks);
          break;
        case kCalledIds:
          ok = emit_ids(field, computation_ranks_);
          break;
        case kAttributes:
          ok = emit_attributes(field);
          break;
        default:
          keep(field);
      }
      if (!ok) return false;
    }
    if (!has_id && !emit_id(kId, 0, ranks)) return false;
    close();
    return true;
  }

  bool emit_metadata(const WireField& message) {
    if (message.type != WireField::kBytes) return false;
    bool opened = false;
    WireField field;
    WireReader reader(message.bytes);
    while (reader.next(field)) {
      if (field.type == WireField::kBytes && among(kDebugStrings, field.number)) continue;
      if (field.type == WireField::kVarint && among(kDebugNumbers, field.number)) continue;
      if (!opened) open(message.number);
      opened = true;
      keep(field);
    }
    if (opened) close();
    return reader.at_end();
  }

  bool emit_program_shape(const WireField& message) {
    if (message.type != WireField::kBytes) return false;
    open(message.number);
    WireField field;
    WireReader reader(message.bytes);
    while (reader.next(field)) {
      if (field.number != kParameterNames) {
        keep(field);
      } else if (!emit_name(field)) {
        return false;
      }
    }
    close();
    return reader.at_end();
  }

  // HloScheduleProto: a map from the id of a computation to a message with the ids of instructions.
  bool emit_schedule(const WireField& message) {
    if (message.type != WireField::kBytes) return false;
    struct Sequence {
      std::uint64_t rank;
      std::string_view ids;
    };
    std::vector<Sequence> sequences;
    WireField field;
    WireReader reader(message.bytes);
    while (reader.next(field)) {
      if (field.number != 1 || field.type != WireField::kBytes) return false;
      WireReader entry(field.bytes);
      WireField key;
      WireField value;
      if (!entry.next(key) || key.tag() != (1 << 3 | WireField::kVarint)) return false;
      if (!entry.next(value) || value.tag() != (2 << 3 | WireField::kBytes) || !entry.at_end())
        return false;
      const auto rank = computation_ranks_.of(key.value);
      if (!rank) return false;
      sequences.push_back({*rank, value.bytes});
    }
    if (!reader.at_end()) return false;
    std::sort(sequences.begin(), sequences.end(),
              [](const Sequence& a, const Sequence& b) { return a.rank < b.rank; });
    open(message.number);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (i > 0 && sequences[i - 1].rank == sequences[i].rank) return false;
      const ComputationInfo& computation = computations_[by_rank_[sequences[i].rank]];
      open(1);
      if (!emit_id(1, computation.id, computation_ranks_)) return false;
      WireReader ids(sequences[i].ids);
      while (ids.next(field)) {
        if (field.number != 1 || !emit_ids(field, computation.instructions)) return false;
      }
      if (!ids.at_end()) return false;
      close();
    }
    close();
    return true;
  }

  // FrontendAttributes: one map of strings, written in any order.
  bool emit_attributes(const WireField& message) {
    if (message.type != WireField::kBytes) return false;
    std::vector<std::pair<std::string_view, std::string_view>> entries;
    WireField field;
    WireReader reader(message.bytes);
    while (reader.next(field)) {
      if (field.number != 1 || field.type != WireField::kBytes) return false;
      WireReader entry(field.bytes);
      WireField key;
      WireField value;
      if (!entry.next(key) || key.tag() != (1 << 3 | WireField::kBytes)) return false;
      if (!entry.next(value) || value.tag() != (2 << 3 | WireField::kBytes) || !entry.at_end())
        return false;
      entries.emplace_back(key.bytes, value.bytes);
    }
    if (!reader.at_end()) return false;
    std::sort(entries.begin(), entries.end());
    open(message.number);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0 && entries[i - 1].first == entries[i].first) return false;
      out_.varint(1);
      out_.bytes(entries[i].first);
      out_.bytes(entries[i].second);
    }
    close();
    return true;
  }

  bool emit_name(const WireField& field) {
    if (field.type != WireField::kBytes) return false;
    out_.varint(field.tag());
    out_.bytes(exact_ ? field.bytes : without_number(field.bytes));
    return true;
  }

  bool emit_id(std::uint32_t number, std::uint64_t id, const Ranks& ranks) {
    const auto rank = ranks.of(id);
    if (!rank) return false;
    out_.varint(number << 3 | WireField::kVarint);
    out_.varint(exact_ ? id : *rank);
    return true;
  }

  bool emit_ids(const WireField& field, const Ranks& ranks) {
    if (field.type == WireField::kVarint) return emit_id(field.number, field.value, ranks);
    if (field.type != WireField::kBytes) return false;
    WireReader reader(field.bytes);
    std::uint64_t id = 0;
    while (!reader.at_end()) {
      if (!reader.varint(id) || !emit_id(field.number, id, ranks)) return false;
    }
    return true;
  }

  void keep(const WireField& field) {
    out_.varint(field.tag());
    if (field.type == WireField::kVarint) {
      out_.varint(field.value);
    } else if (field.type == WireField::kBytes) {
      out_.bytes(field.bytes);
    } else {
      out_.raw(field.bytes);
    }
  }
  void open(std::uint32_t number) { out_.varint(number << 3 | 3); }
  void close() { out_.varint(0); }

  std::string_view module_;
  CanonicalHash out_;
  bool exact_ = false;  // ids and names count as they stand
  std::vector<ComputationInfo> computations_;
  Ranks computation_ranks_;
  std::vector<std::size_t> by_rank_;  // of a computation -> its place
};

}  // namespace

std::optional<Digest> hlo_proto_digest(Bytes bytes) {
  return HloProto(as_text(bytes)).digest();
}

}  // namespace nc::cc
