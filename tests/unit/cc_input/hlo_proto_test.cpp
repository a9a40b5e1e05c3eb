#include "client/cc/input/hlo_proto.hpp"

#include <gtest/gtest.h>

#include "tests/unit/cc_input/inputs.hpp"

namespace nc::cc {
namespace {

// What two processes that trace one graph may write differently, and what they may not.
struct Graph {
  std::string module = "jit_f";
  std::uint64_t module_id = 7;
  std::uint64_t first_id = 1;
  std::uint64_t id_step = 1;
  std::string file = "/home/ann/model.py";
  std::string attributes = "ab";
  std::string opcode = "add";
  std::string constant = std::string("\0\0\x80?\0\0\0@", 8);
  std::uint64_t second_operand = 2;  // which instruction, by place
  std::string base_name = "add";
  std::uint64_t extra_field = 0;  // of an instruction
  std::uint64_t root = 2;

  std::uint64_t id(std::uint64_t place) const { return first_id + place * id_step; }

  Message instruction(std::uint64_t place, const std::string& op, const std::string& name) const {
    Message m;
    m.text(1, name + "." + std::to_string(id(place)));
    m.text(2, op);
    m.message(3, Message().number(2, 11).packed(3, {2}));
    m.message(7, Message().text(1, op).text(2, "jit(f)/" + op).text(3, file).number(4, first_id));
    return m;
  }

  std::string bytes() const {
    const std::uint64_t computation = id(2) + 10;
    Message parameter = instruction(0, "parameter", "Arg_0");
    parameter.number(35, id(0));
    Message constant_op = instruction(1, "constant", "constant");
    constant_op.message(8, Message().text(8, constant)).number(35, id(1));
    Message last = instruction(2, opcode, base_name);
    last.number(35, id(2)).packed(36, {id(0), id(second_operand - 1)});
    Message map;
    for (const char key : attributes)
      map.message(1, Message().text(1, std::string(1, key)).text(2, "v"));
    last.message(68, map);
    if (extra_field != 0) last.number(200, extra_field);
    Message body;
    body.text(1, "main." + std::to_string(computation));
    body.message(2, parameter).message(2, constant_op).message(2, last);
    body.message(4, Message().text(3, "x." + std::to_string(first_id)));
    body.number(5, computation).number(6, id(root));
    Message m;
    m.text(1, module).text(2, "main." + std::to_string(computation)).message(3, body);
    m.number(5, module_id).number(6, computation);
    m.message(7, Message().message(1, Message()
                                          .number(1, computation)
                                          .message(2, Message().packed(1, {id(0), id(1), id(2)}))));
    m.message(17, Message().text(1, file));
    return m.bytes();
  }
};

std::optional<Digest> digest(const Graph& graph) {
  return hlo_proto_digest(as_bytes(graph.bytes()));
}

TEST(HloProto, WhatCannotChangeTheOutputLeavesNoTrace) {
  const auto plain = digest({});
  ASSERT_TRUE(plain);
  EXPECT_EQ(digest({.module = "jit_g"}), plain);
  EXPECT_EQ(digest({.module_id = 0}), plain);
  EXPECT_EQ(digest({.first_id = 1000}), plain);
  EXPECT_EQ(digest({.first_id = 3, .id_step = std::uint64_t{1} << 33}), plain);
  EXPECT_EQ(digest({.file = "/srv/other/place.py"}), plain);
  EXPECT_EQ(digest({.attributes = "ba"}), plain);
}

TEST(HloProto, WhatCanChangeItCounts) {
  const auto plain = digest({});
  for (const Graph& other :
       {Graph{.attributes = "abc"}, Graph{.opcode = "multiply"},
        Graph{.constant = std::string("\0\0\x80?\0\0\1@", 8)}, Graph{.second_operand = 1},
        Graph{.base_name = "sum"}, Graph{.extra_field = 1}, Graph{.root = 1}}) {
    const auto changed = digest(other);
    ASSERT_TRUE(changed);
    EXPECT_NE(changed, plain);
  }
}

TEST(HloProto, AnUnknownFieldMakesIdsAndNamesCount) {
  const auto one = digest({.first_id = 1, .extra_field = 4});
  const auto two = digest({.first_id = 2, .extra_field = 4});
  ASSERT_TRUE(one && two);
  EXPECT_NE(one, two);
  EXPECT_EQ(digest({.module = "other", .first_id = 1, .extra_field = 4}), one);
}

// XLA sorts by id: the order of ids is part of the program even where the order in the file is the
// same.
TEST(HloProto, TheOrderOfIdsCounts) {
  const auto instruction = [](std::uint64_t id) {
    return Message().text(2, "after-all").number(35, id);
  };
  const auto module = [&](std::uint64_t first, std::uint64_t second) {
    const Message body = Message().message(2, instruction(first)).message(2, instruction(second));
    return Message().message(3, Message(body).number(5, 9).number(6, first)).number(6, 9).bytes();
  };
  const auto digest_of = [&](std::uint64_t a, std::uint64_t b) {
    return hlo_proto_digest(as_bytes(module(a, b)));
  };
  ASSERT_TRUE(digest_of(1, 2));
  EXPECT_EQ(digest_of(1, 2), digest_of(5, 70));
  EXPECT_NE(digest_of(1, 2), digest_of(2, 1));
}

TEST(HloProto, EveryCutIsRefusedOrAnotherModule) {
  const std::string whole = Graph{}.bytes();
  const auto plain = hlo_proto_digest(as_bytes(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto cut = hlo_proto_digest(as_bytes(std::string_view(whole).substr(0, size)));
    // Without its last field, the table of stack frames, it is the same program.
    const bool same_program =
        size == whole.size() -
                    Message().message(17, Message().text(1, "/home/ann/model.py")).bytes().size();
    EXPECT_EQ(cut == plain, same_program) << size;
  }
}

TEST(HloProto, WhatIsNotCertainIsRefused) {
  const auto refused = [](const Message& m) { return !hlo_proto_digest(as_bytes(m.bytes())); };
  const auto body = [](std::uint64_t id) {
    return Message().message(2, Message().text(2, "add").number(35, 1)).number(5, id).number(6, 1);
  };
  ASSERT_FALSE(refused(Message().message(3, body(4)).number(6, 4)));
  EXPECT_TRUE(refused(Message()));
  EXPECT_TRUE(refused(Message().message(3, body(4)).number(6, 5)));                      // no entry
  EXPECT_TRUE(refused(Message().message(3, body(4)).message(3, body(4)).number(6, 4)));  // id twice
  EXPECT_TRUE(refused(Message().message(3, body(4)).number(6, 4).number(6, 4)));     // given twice
  EXPECT_TRUE(refused(Message().text(2, "main").message(3, body(4)).number(6, 4)));  // other name
  EXPECT_TRUE(refused(Message().message(3, body(4).number(6, 2)).number(6, 4)));     // no root
  EXPECT_TRUE(refused(Message().message(3, Message().number(5, 4)).number(6, 4)));   // empty
  Message dangling = Message().text(2, "add").number(35, 1).packed(36, {2});
  EXPECT_TRUE(refused(
      Message().message(3, Message().message(2, dangling).number(5, 4).number(6, 1)).number(6, 4)));
  Message doubled = Message().text(2, "add").number(35, 1);
  doubled.message(68, Message()
                          .message(1, Message().text(1, "a").text(2, "1"))
                          .message(1, Message().text(1, "a").text(2, "2")));
  EXPECT_TRUE(refused(
      Message().message(3, Message().message(2, doubled).number(5, 4).number(6, 1)).number(6, 4)));
  EXPECT_FALSE(hlo_proto_digest(as_bytes(std::string_view("\x1a\x80\x00", 3))));  // long varint
  EXPECT_FALSE(hlo_proto_digest(as_bytes(std::string_view("\x1b\x1c", 2))));      // a group
}

TEST(HloProto, RealModules) {
  const auto here = hlo_proto_digest(as_bytes(sample("here.pb")));
  ASSERT_TRUE(here);
  EXPECT_EQ(hlo_proto_digest(as_bytes(sample("there.pb"))), here);
  EXPECT_NE(hlo_proto_digest(as_bytes(sample("weight.pb"))), here);
}

}  // namespace
}  // namespace nc::cc
