#include "cache/manifest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cache/policy_helpers.hpp"

namespace nc {
namespace {

using test::Dice;
using test::key_of;
using ::testing::HasSubstr;

Manifest small() {
  Manifest m;
  m.parts = {{"compiler", "inductor 2.13.0"}, {"graph", "sha256:00"}};
  m.key = *action_key(m.parts);
  m.kind = "graph";
  m.outputs = {{"code.so", key_of(1), 70000, 0755}};
  return m;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return text.replace(at, from.size(), to);
}

void expect_same(const Manifest& a, const Manifest& b) {
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.name_space, b.name_space);
  EXPECT_EQ(a.label, b.label);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.compiler, b.compiler);
  EXPECT_EQ(a.created_ms, b.created_ms);
  EXPECT_EQ(a.build_ms, b.build_ms);
  EXPECT_EQ(a.peak_rss_bytes, b.peak_rss_bytes);
  EXPECT_EQ(a.producer, b.producer);
  EXPECT_EQ(a.parts, b.parts);
  EXPECT_EQ(a.outputs, b.outputs);
  EXPECT_EQ(a.meta, b.meta);
  EXPECT_EQ(a.signature, b.signature);
}

TEST(Manifest, CanonicalTextIsFixed) {
  Manifest m = small();
  m.meta = {{"b", "2"}, {"a", "\"1\"\n"}};
  m.signature = R"({"alg":"ed25519","sig":"00"})";
  EXPECT_EQ(m.to_json(),
            R"({"v":1,"key":")" + m.key.hex() +
                R"(","kind":"graph","namespace":"default","label":"","model":"","compiler":"",)"
                R"("created_ms":0,"build_ms":0,"peak_rss_bytes":0,)"
                R"("producer":{"host":"","pid":0,"program":"","version":""},)"
                R"("parts":[["compiler","inductor 2.13.0"],["graph","sha256:00"]],)"
                R"("outputs":[{"name":"code.so","digest":")" +
                key_of(1).hex() +
                R"(","size":70000,"mode":493}],"meta":{"a":"\"1\"\n","b":"2"},)"
                R"("signature":{"alg":"ed25519","sig":"00"}})");
}

std::string odd_text(Dice& dice, std::size_t max) {
  const std::string_view pieces[] = {
      "a", "Z", "\"",  "\\", "\n", "\x01", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
      " ", "/", "\x7f"};
  std::string out;
  for (std::size_t n = dice.below(8); n > 0 && out.size() + 4 <= max; --n) out += dice.pick(pieces);
  return out;
}

TEST(Manifest, RoundTripIsExact) {
  Dice dice(1);
  for (int round = 0; round < 300; ++round) {
    Manifest m = small();
    m.parts.clear();
    for (std::uint64_t i = 0; i < dice.below(6); ++i) {
      m.parts.emplace_back("p" + std::to_string((i * 7) % 10), odd_text(dice, 1000));
    }
    m.key = *action_key(m.parts);
    m.kind = dice.one_in(2) ? "neff" : "a-_9";
    m.name_space = dice.one_in(2) ? "Team.A_1-x" : "default";
    m.label = odd_text(dice, 1024);
    m.model = odd_text(dice, 1024);
    m.compiler = odd_text(dice, 1024);
    m.created_ms = static_cast<Millis>(dice.below(1ULL << 31) << dice.below(22));
    m.build_ms = dice.below(1 << 30);
    m.peak_rss_bytes = 1ULL << dice.below(53);
    m.producer = {odd_text(dice, 99), static_cast<std::int64_t>(dice.below(99)), "p", "0.1.0"};
    m.outputs.clear();
    for (std::uint64_t i = 0; i < dice.below(5); ++i) {
      m.outputs.push_back({"o " + std::to_string(i), key_of(i), 1ULL << dice.below(51),
                           static_cast<std::uint32_t>(dice.below(01000))});
    }
    for (std::uint64_t i = 0; i < dice.below(4); ++i)
      m.meta[odd_text(dice, 99)] = odd_text(dice, 99);
    if (dice.one_in(2)) m.signature = R"({"n":-5,"s":"x"})";
    const std::string text = m.to_json();
    auto back = Manifest::parse(text);
    ASSERT_TRUE(back.ok()) << back.error().text() << text;
    expect_same(m, *back);
    EXPECT_EQ(back->to_json(), text);
  }
}

TEST(Manifest, DefaultsAndUnknownFields) {
  const Manifest m = small();
  auto parsed =
      Manifest::parse(R"({ "future": {"deep": [1, 2.5, null]}, "v": 1, "key": ")" + m.key.hex() +
                      R"(", "kind": "graph", "outputs": [],
         "parts": [["compiler", "inductor 2.13.0"], ["graph", "sha256:00"]], "signature": null })");
  ASSERT_TRUE(parsed.ok()) << parsed.error().text();
  EXPECT_EQ(parsed->name_space, "default");
  EXPECT_EQ(parsed->bytes(), 0u);
  EXPECT_TRUE(parsed->signature.empty());
}

TEST(Manifest, EveryTruncationIsAnError) {
  const std::string text = small().to_json();
  for (std::size_t n = 0; n < text.size(); ++n) {
    EXPECT_TRUE(Manifest::parse(text.substr(0, n)).is(Code::kInvalid)) << n;
  }
}

TEST(Manifest, PartsMustHashToTheKey) {
  const std::string text = small().to_json();
  const auto wrong = Manifest::parse(replaced(text, "2.13.0", "2.13.1"));
  ASSERT_TRUE(wrong.is(Code::kKeyMismatch));
  EXPECT_FALSE(wrong.error().action.empty());
  EXPECT_FALSE(Manifest::parse(replaced(text, "[\"compiler\"", "[\"graph\"")).ok());
}

struct Bad {
  const char* from;
  const char* to;
  Code code;
  const char* says;
};

TEST(Manifest, LimitsAreChecked) {
  const std::string text = small().to_json();
  const std::string long_label = "\"label\":\"" + std::string(1025, 'x') + "\"";
  const Bad cases[] = {
      {"\"v\":1", "\"v\":2", Code::kUnsupported, "version 2"},
      {"\"v\":1,", "", Code::kInvalid, "\"v\" is missing"},
      {"\"v\":1", "\"v\":\"1\"", Code::kInvalid, "integer"},
      {"\"kind\":\"graph\"", "\"kind\":\"Graph\"", Code::kInvalid, "kind"},
      {"\"kind\":\"graph\"", "\"kind\":\"\"", Code::kInvalid, "kind"},
      {"\"kind\":\"graph\",", "", Code::kInvalid, "missing"},
      {"\"default\"", "\"a/b\"", Code::kInvalid, "namespace"},
      {"\"default\"", "\"..\"", Code::kInvalid, "namespace"},
      {"\"default\"", "\"\"", Code::kInvalid, "namespace"},
      {"\"label\":\"\"", long_label.c_str(), Code::kTooLarge, "label"},
      {"\"label\":\"\"", "\"label\":null", Code::kInvalid, "label"},
      {"\"label\":\"\"", "\"label\":\"\\ud800\"", Code::kInvalid, "JSON"},
      {"\"label\":\"\"", "\"label\":\"\xff\"", Code::kInvalid, "JSON"},
      {"\"build_ms\":0", "\"build_ms\":-1", Code::kInvalid, "build_ms"},
      {"\"build_ms\":0", "\"build_ms\":1.5", Code::kInvalid, "build_ms"},
      {"\"build_ms\":0", "\"build_ms\":9007199254740993", Code::kInvalid, "build_ms"},
      {"\"created_ms\":0", "\"created_ms\":18446744073709551615", Code::kInvalid, "created_ms"},
      {"\"code.so\"", "\"a/b\"", Code::kInvalid, "name"},
      {"\"code.so\"", "\"..\"", Code::kInvalid, "name"},
      {"\"code.so\"", "\"\"", Code::kInvalid, "name"},
      {"\"code.so\"", "\"a\\u0000b\"", Code::kInvalid, "name"},
      {"\"mode\":493", "\"mode\":2541", Code::kInvalid, "mode"},  // set-uid
      {"\"size\":70000", "\"size\":-1", Code::kInvalid, "size"},
      {"\"size\":70000,", "", Code::kInvalid, "size"},
      {"\"digest\":\"", "\"digest\":\"0", Code::kTooLarge, "digest"},
      {"\"outputs\":[", "\"outputs\":[3,", Code::kInvalid, "output 0"},
      {"\"parts\":[", "\"parts\":[[\"a\"],", Code::kInvalid, "pair"},
      {"\"parts\":[", "\"parts\":[[\"\",\"x\"],", Code::kInvalid, "parts"},
      {"\"parts\":[", "\"parts\":[[\"x\",1],", Code::kInvalid, "pair"},
      {"\"meta\":{}", "\"meta\":{\"a\":1}", Code::kInvalid, "meta"},
      {"\"meta\":{}", "\"meta\":[]", Code::kInvalid, "meta"},
      {"\"signature\":null", "\"signature\":\"x\"", Code::kInvalid, "signature"},
      {"\"signature\":null", "\"signature\":{\"a\":[]}", Code::kInvalid, "signature"},
      {"\"signature\":null", "\"signature\":{\"a\":1.5}", Code::kInvalid, "signature"},
      {"\"producer\":{", "\"producer\":{\"pid\":true,", Code::kInvalid, ""},
  };
  for (const Bad& bad : cases) {
    const auto parsed = Manifest::parse(replaced(text, bad.from, bad.to));
    if (std::string_view(bad.from).starts_with("\"producer\"")) {
      EXPECT_TRUE(parsed.ok());  // the later "pid" is the one that counts
      continue;
    }
    ASSERT_FALSE(parsed.ok()) << bad.to;
    EXPECT_EQ(parsed.error().code, bad.code) << parsed.error().text() << " for " << bad.to;
    EXPECT_THAT(parsed.error().message, HasSubstr(bad.says));
  }
  for (const char* other : {"", "[]", "null", "{}", "{\"v\":1}", "{\"v\":1} x", "nonsense"}) {
    EXPECT_TRUE(Manifest::parse(other).is(Code::kInvalid)) << other;
  }
}

TEST(Manifest, CountsAreBounded) {
  Manifest m = small();
  m.outputs.clear();
  for (std::uint64_t i = 0; i <= Manifest::kMaxOutputs; ++i) {
    m.outputs.push_back({"o" + std::to_string(i), key_of(i), 1ULL << 50, 0});
  }
  EXPECT_TRUE(Manifest::parse(m.to_json()).is(Code::kTooLarge));
  m.outputs.pop_back();
  auto parsed = Manifest::parse(m.to_json());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->bytes(), 1ULL << 58);
  m.outputs[1].name = m.outputs[0].name;
  EXPECT_TRUE(Manifest::parse(m.to_json()).is(Code::kInvalid));
}

TEST(Manifest, SizeIsBoundedAlsoInCanonicalForm) {
  Manifest m = small();
  m.meta["filler"] = "";
  m.meta["filler"] = std::string(Manifest::kMaxBytes - m.to_json().size(), 'x');
  const std::string full = m.to_json();
  ASSERT_EQ(full.size(), Manifest::kMaxBytes);
  EXPECT_TRUE(Manifest::parse(full).ok());
  EXPECT_TRUE(Manifest::parse(full + " ").is(Code::kTooLarge));
  // Shorter as sent than as kept: the default that is left out comes back.
  const std::string sent = replaced(full, "\"label\":\"\",", "");
  EXPECT_TRUE(Manifest::parse(sent).ok());
  m.meta["filler"] += "xx";
  EXPECT_TRUE(Manifest::parse(replaced(m.to_json(), "\"label\":\"\",", "")).is(Code::kTooLarge));
}

TEST(Manifest, DeepNestingIsRefused) {
  std::string deep = "{\"v\":1,\"x\":" + std::string(5000, '[') + std::string(5000, ']') + "}";
  EXPECT_TRUE(Manifest::parse(deep).is(Code::kInvalid));
}

}  // namespace
}  // namespace nc
