#include "client/cc/input/mlir_text.hpp"

#include <deque>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "client/cc/input/canonical.hpp"
#include "client/cc/input/mlir_lexer.hpp"
#include "client/cc/input/mlir_location.hpp"

namespace nc::cc {
namespace {

using Kind = MlirToken::Kind;

constexpr std::string_view kDumpPath = "torch.debug_dump_path";

class MlirText {
 public:
  explicit MlirText(std::string_view text) : lexer_(text), out_("mlir-text") {}

  std::optional<Digest> digest() {
    if (!run()) return std::nullopt;
    return out_.finish();
  }

 private:
  bool run() {
    MlirToken token;
    while (lexer_.next(token)) {
      if (!take(token)) return false;
    }
    if (lexer_.bad() || !started_ || !brackets_.empty()) return false;
    for (const std::string_view alias : location_uses_) {
      if (!locations_.contains(alias)) return false;
    }
    for (const std::string_view alias : other_uses_) {
      if (locations_.contains(alias)) return false;  // a location that is somebody's value
    }
    while (!held_.empty()) release();
    return true;
  }

  bool take(MlirToken token) {
    if (token.kind == Kind::kHash && token.at_line_start && brackets_.empty() &&
        is_location_alias()) {
      return skip_location_alias(token.text);
    }
    if (!started_ && !start(token)) return false;
    if (token.is_word("loc") && lexer_.peek().is('(')) {
      const bool trails = ends_something(last_) && angles_ == 0;
      last_ = {};
      return trails && read_mlir_location(lexer_, location_uses_);
    }
    if (token.kind == Kind::kWord && token.text == kDumpPath) return skip_dump_path(token);
    if (token.kind == Kind::kSymbol && module_name_follows_) {
      module_name_follows_ = false;
      module_name_dropped_ = true;
      return true;
    }
    module_name_follows_ = token.is_word("module") && held_.empty() && !emitted_;
    // A second operation at the top could call the first by its name.
    if (module_name_dropped_ && brackets_.empty() &&
        (token.kind == Kind::kString || token.is_word("module") ||
         (token.kind == Kind::kWord && token.text.find('.') != std::string_view::npos))) {
      return false;
    }
    if (token.kind == Kind::kHash) other_uses_.insert(token.text);
    if (!match_brackets(token)) return false;
    if (joins_) token.after_space = *joins_;
    if (!emitted_ && held_.empty()) token.after_space = false;
    joins_.reset();
    hold(token);
    return true;
  }

  // A file of another kind that has the same characters is not taken for MLIR.
  bool start(const MlirToken& token) {
    const bool alias = (token.kind == Kind::kHash || token.kind == Kind::kType) &&
                       token.at_line_start && lexer_.peek().is('=');
    if (alias) return true;
    started_ = token.is_word("module") || token.is_word("builtin.module") ||
               token.is_word("func.func") || (token.kind == Kind::kString && lexer_.peek().is('('));
    return started_;
  }

  bool is_location_alias() const {
    MlirLexer ahead(lexer_);
    MlirToken token;
    return ahead.next(token) && token.is('=') && ahead.next(token) && token.is_word("loc") &&
           ahead.peek().is('(');
  }

  // What a trailing location may follow: the end of a type, attribute, region, list or word. After
  // anything else (`=`, `,`, `(`, ...) it would be a value.
  static bool ends_something(const MlirToken& token) {
    return token.kind != Kind::kEnd && (token.kind != Kind::kPunctuation || token.is(')') ||
                                        token.is(']') || token.is('}') || token.is('>'));
  }

  bool skip_location_alias(std::string_view name) {
    MlirToken skipped;
    if (!lexer_.next(skipped) || !lexer_.next(skipped)) return false;  // `=`, `loc`
    std::vector<std::string_view> uses;
    if (!read_mlir_location(lexer_, uses)) return false;
    for (const std::string_view alias : uses) {
      if (!locations_.contains(alias)) return false;  // here it has to be known before
    }
    last_ = {};
    return locations_.insert(name).second;
  }

  // `torch.debug_dump_path = "..."` in a dictionary of attributes, with one comma.
  bool skip_dump_path(const MlirToken& name) {
    if (dump_path_seen_) return false;
    dump_path_seen_ = true;
    MlirToken token;
    if (!lexer_.next(token) || !token.is('=')) return false;
    if (!lexer_.next(token) || token.kind != Kind::kString) return false;
    if (brackets_.empty() || brackets_.back() != '{' || held_.empty()) return false;
    const MlirToken next = lexer_.peek();
    const MlirToken before = held_.back();
    if (next.is(',')) {
      lexer_.next(token);
      joins_ = name.after_space;
      return before.is('{') || before.is(',');
    }
    if (!next.is('}')) return false;
    if (before.is(',')) {
      held_.pop_back();
      last_ = {};
      return true;
    }
    if (!before.is('{')) return false;
    // The only attribute: the dictionary goes with it, except where one has to be.
    if (held_.size() > 1 && held_[held_.size() - 2].is('<')) return true;
    lexer_.next(token);
    brackets_.pop_back();
    held_.pop_back();
    if (!held_.empty() && held_.back().is_word("attributes")) held_.pop_back();
    last_ = token;  // a location may follow
    return true;
  }

  bool match_brackets(const MlirToken& token) {
    if (token.is('<')) {
      brackets_.push_back('<');
      ++angles_;
    } else if (token.is('>')) {
      if (last_.is('-') && !token.after_space) return true;  // an arrow
      if (brackets_.empty() || brackets_.back() != '<') return false;
      brackets_.pop_back();
      --angles_;
    } else if (token.is('(') || token.is('[') || token.is('{')) {
      brackets_.push_back(token.text[0]);
    } else if (token.is(')') || token.is(']') || token.is('}')) {
      const char opening = token.is(')') ? '(' : token.is(']') ? '[' : '{';
      if (brackets_.empty() || brackets_.back() != opening) return false;
      brackets_.pop_back();
    }
    return true;
  }

  // The last tokens are held back: skip_dump_path() may take them away.
  void hold(const MlirToken& token) {
    last_ = token;
    held_.push_back(token);
    if (held_.size() > 3) release();
  }
  void release() {
    emitted_ = true;
    emit(held_.front());
    held_.pop_front();
  }

  void emit(const MlirToken& token) {
    if (token.after_space) out_.byte(1);
    if (token.kind == Kind::kPunctuation) {
      out_.byte(2);
      out_.raw(token.text);
    } else if (token.kind == Kind::kValue) {
      const auto number = values_.try_emplace(token.text, values_.size()).first->second;
      out_.byte(4);
      out_.varint(number);
    } else {
      out_.byte(3);
      out_.bytes(token.text);
    }
  }

  MlirLexer lexer_;
  CanonicalHash out_;
  bool started_ = false;
  bool emitted_ = false;
  bool module_name_follows_ = false;
  bool module_name_dropped_ = false;
  bool dump_path_seen_ = false;
  std::optional<bool> joins_;  // whether the next token counts as behind space
  MlirToken last_;             // kEnd: what follows may have no location
  std::deque<MlirToken> held_;
  std::vector<char> brackets_;  // that are open
  std::size_t angles_ = 0;      // among them
  std::unordered_map<std::string_view, std::uint64_t> values_;
  std::unordered_set<std::string_view> locations_;  // aliases
  std::vector<std::string_view> location_uses_;
  std::unordered_set<std::string_view> other_uses_;  // of any alias, outside of locations
};

}  // namespace

std::optional<Digest> mlir_text_digest(Bytes bytes) {
  return MlirText(as_text(bytes)).digest();
}

}  // namespace nc::cc
