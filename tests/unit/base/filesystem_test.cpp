// What every file system must do: the same cases on the real disk and on the fake one.
#include "base/filesystem.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_filesystem.hpp"
#include "temp_dir.hpp"

namespace nc {
namespace {

using ::testing::UnorderedElementsAre;
using Open = FileSystem::Open;

struct OnRealDisk {
  TempDir dir;
  FileSystem& fs = real_filesystem();
  std::string root = dir.path();
};
struct OnFakeDisk {
  FakeFileSystem fs;
  std::string root = "/";
};

template <class Disk>
class FileSystemTest : public ::testing::Test {
 protected:
  std::string at(std::string_view name) const { return join(disk_.root, name); }
  void put(std::string_view name, std::string_view text) {
    auto file = fs().open(at(name), Open::kCreateOrTruncate);
    ASSERT_TRUE(file.ok()) << file.error().text();
    ASSERT_TRUE((*file)->write(as_bytes(text)).ok());
  }
  std::string get(std::string_view name) {
    auto text = fs().read_all(at(name), 1 << 20);
    return text.ok() ? *text : text.error().text();
  }
  FileSystem& fs() { return disk_.fs; }

  Disk disk_;
};
using Disks = ::testing::Types<OnRealDisk, OnFakeDisk>;
TYPED_TEST_SUITE(FileSystemTest, Disks);

TYPED_TEST(FileSystemTest, WritesAndReads) {
  this->put("a", "hello");
  EXPECT_EQ(this->get("a"), "hello");
  const auto file = this->fs().open(this->at("a"), Open::kRead);
  ASSERT_TRUE(file.ok());
  std::string buffer(10, '-');
  const auto span = std::as_writable_bytes(std::span(buffer));
  EXPECT_EQ(*(*file)->read_at(1, span), 4U);
  EXPECT_EQ(buffer.substr(0, 4), "ello");
  EXPECT_EQ(*(*file)->read_at(5, span), 0U);
  EXPECT_EQ(*(*file)->read_at(500, span), 0U);
  EXPECT_EQ(*(*file)->size(), 5U);
  EXPECT_TRUE((*file)->write(as_bytes("x")).is(Code::kInvalid));
  EXPECT_TRUE((*file)->write_at(0, as_bytes("x")).is(Code::kInvalid));
  EXPECT_TRUE((*file)->truncate(0).is(Code::kInvalid));
  EXPECT_EQ(this->get("a"), "hello");
}

TYPED_TEST(FileSystemTest, OpenModes) {
  EXPECT_TRUE(this->fs().open(this->at("a"), Open::kRead).is(Code::kNotFound));
  ASSERT_TRUE(this->fs().open(this->at("a"), Open::kCreateNew).ok());
  EXPECT_TRUE(this->fs().open(this->at("a"), Open::kCreateNew).is(Code::kConflict));
  this->put("a", "long text");
  this->put("a", "short");
  EXPECT_EQ(this->get("a"), "short");
  {
    const auto file = this->fs().open(this->at("a"), Open::kAppend);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE((*file)->write(as_bytes(" and")).ok());
    EXPECT_TRUE((*file)->write_at(0, as_bytes("x")).is(Code::kInvalid));
    EXPECT_TRUE((*file)->truncate(3).ok());
    EXPECT_TRUE((*file)->write(as_bytes("p")).ok());
    EXPECT_TRUE((*file)->sync().ok());
  }
  EXPECT_EQ(this->get("a"), "shop");
  EXPECT_TRUE(this->fs().open(this->at("new"), Open::kAppend).ok());
  EXPECT_EQ(this->get("new"), "");
  EXPECT_TRUE(this->fs().open(this->at("no/dir"), Open::kCreateNew).is(Code::kNotFound));
  EXPECT_TRUE(this->fs().open(this->at("a/b"), Open::kCreateNew).is(Code::kInvalid));
}

TYPED_TEST(FileSystemTest, WriteAtLeavesZerosAndMovesTheEnd) {
  const auto file = this->fs().open(this->at("a"), Open::kCreateNew);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->write(as_bytes("ab")).ok());
  EXPECT_TRUE((*file)->write_at(4, as_bytes("ef")).ok());
  EXPECT_TRUE((*file)->write(as_bytes("g")).ok());
  EXPECT_TRUE((*file)->write_at(0, as_bytes("A")).ok());
  EXPECT_EQ(this->get("a"), std::string("Ab\0\0efg", 7));
  EXPECT_TRUE((*file)->truncate(9).ok());
  EXPECT_EQ(this->get("a"), std::string("Ab\0\0efg\0\0", 9));
}

TYPED_TEST(FileSystemTest, ReadAllHasALimit) {
  this->put("a", "12345");
  EXPECT_EQ(*this->fs().read_all(this->at("a"), 5), "12345");
  EXPECT_TRUE(this->fs().read_all(this->at("a"), 4).is(Code::kTooLarge));
  EXPECT_TRUE(this->fs().read_all(this->at("b"), 4).is(Code::kNotFound));
  EXPECT_FALSE(this->fs().read_all(this->disk_.root, 4).ok());
}

TYPED_TEST(FileSystemTest, MappingOutlivesTheName) {
  this->put("a", "mapped");
  this->put("empty", "");
  const auto mapping = this->fs().map(this->at("a"));
  ASSERT_TRUE(mapping.ok());
  EXPECT_TRUE(this->fs().remove(this->at("a")).ok());
  EXPECT_EQ(as_text((*mapping)->bytes()), "mapped");
  EXPECT_EQ((*this->fs().map(this->at("empty")))->bytes().size(), 0U);
  EXPECT_TRUE(this->fs().map(this->at("a")).is(Code::kNotFound));
  EXPECT_TRUE(this->fs().map(this->disk_.root).is(Code::kConflict));
}

TYPED_TEST(FileSystemTest, StatTellsSizeKindModeAndLinks) {
  ASSERT_TRUE(this->fs().make_dirs(this->at("d"), 0750).ok());
  EXPECT_TRUE(this->fs().open(this->at("d/f"), Open::kCreateNew, 0640).ok());
  this->put("d/f", "123");
  const auto file = this->fs().stat(this->at("d/f"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size, 3U);
  EXPECT_FALSE(file->is_dir);
  EXPECT_EQ(file->mode, 0640U);
  EXPECT_EQ(file->links, 1U);
  EXPECT_EQ(file->uid, ::getuid());
  EXPECT_TRUE(this->fs().link(this->at("d/f"), this->at("g")).ok());
  EXPECT_EQ(this->fs().stat(this->at("g"))->links, 2U);
  EXPECT_EQ(this->fs().stat(this->at("g"))->inode, file->inode);
  EXPECT_NE(this->fs().stat(this->at("d"))->inode, file->inode);
  EXPECT_TRUE(this->fs().stat(this->at("d"))->is_dir);
  EXPECT_EQ(this->fs().stat(this->at("d"))->mode, 0750U);
  EXPECT_TRUE(this->fs().stat(this->at("h")).is(Code::kNotFound));
}

TYPED_TEST(FileSystemTest, DirectoriesAndLists) {
  EXPECT_TRUE(this->fs().make_dirs(this->at("x/y/z")).ok());
  EXPECT_TRUE(this->fs().make_dirs(this->at("x/y/z")).ok());
  this->put("x/f", "");
  EXPECT_THAT(*this->fs().list(this->at("x")), UnorderedElementsAre("y", "f"));
  EXPECT_TRUE(this->fs().list(this->at("nope")).is(Code::kNotFound));
  EXPECT_TRUE(this->fs().list(this->at("x/f")).is(Code::kInvalid));
  EXPECT_TRUE(this->fs().make_dirs(this->at("x/f/g")).is(Code::kInvalid));
  EXPECT_TRUE(this->fs().make_dirs(this->at("x/f")).is(Code::kInvalid));
  EXPECT_TRUE(this->fs().remove_dir(this->at("x/y")).is(Code::kConflict));
  EXPECT_TRUE(this->fs().remove_dir(this->at("x/y/z")).ok());
  EXPECT_TRUE(this->fs().remove_dir(this->at("x/y/z")).is(Code::kNotFound));
  EXPECT_TRUE(this->fs().remove_dir(this->at("x/f")).is(Code::kInvalid));
  EXPECT_FALSE(this->fs().remove(this->at("x/y")).ok());
  EXPECT_TRUE(this->fs().sync_dir(this->at("x")).ok());
  EXPECT_TRUE(this->fs().sync_dir(this->at("nope")).is(Code::kNotFound));
}

TYPED_TEST(FileSystemTest, RenameReplaces) {
  ASSERT_TRUE(this->fs().make_dirs(this->at("d")).ok());
  this->put("a", "new");
  this->put("d/b", "old");
  EXPECT_TRUE(this->fs().rename(this->at("a"), this->at("d/b")).ok());
  EXPECT_EQ(this->get("d/b"), "new");
  EXPECT_TRUE(this->fs().stat(this->at("a")).is(Code::kNotFound));
  EXPECT_TRUE(this->fs().rename(this->at("a"), this->at("b")).is(Code::kNotFound));
  EXPECT_TRUE(this->fs().rename(this->at("d/b"), this->at("no/b")).is(Code::kNotFound));
  EXPECT_TRUE(this->fs().rename(this->at("d/b"), this->at("d")).is(Code::kConflict));
  EXPECT_TRUE(this->fs().rename(this->at("d"), this->at("e")).ok());
  EXPECT_EQ(this->get("e/b"), "new");
}

TYPED_TEST(FileSystemTest, LinkAndRemove) {
  this->put("a", "text");
  this->put("taken", "");
  EXPECT_TRUE(this->fs().link(this->at("a"), this->at("taken")).is(Code::kConflict));
  EXPECT_TRUE(this->fs().link(this->at("none"), this->at("b")).is(Code::kNotFound));
  EXPECT_TRUE(this->fs().link(this->at("a"), this->at("b")).ok());
  EXPECT_TRUE(
      this->fs().rename(this->at("a"), this->at("b")).ok());  // the same file: nothing happens
  EXPECT_TRUE(this->fs().remove(this->at("a")).ok());
  EXPECT_EQ(this->get("b"), "text");
  EXPECT_TRUE(this->fs().remove(this->at("a")).is(Code::kNotFound));
}

TYPED_TEST(FileSystemTest, AnOpenFileOutlivesItsName) {
  this->put("a", "text");
  const auto file = this->fs().open(this->at("a"), Open::kAppend);
  ASSERT_TRUE(this->fs().remove(this->at("a")).ok());
  EXPECT_TRUE((*file)->write(as_bytes("!")).ok());
  EXPECT_EQ(*(*file)->size(), 5U);
}

TYPED_TEST(FileSystemTest, LocksExclude) {
  {
    const auto lock = this->fs().lock(this->at("lock"));
    ASSERT_TRUE(lock.ok());
    const auto second = this->fs().lock(this->at("lock"));
    ASSERT_TRUE(second.is(Code::kBusy));
    EXPECT_NE(second.error().message.find(this->at("lock")), std::string::npos);
    EXPECT_TRUE(this->fs().lock(this->at("other")).ok());
  }
  EXPECT_TRUE(this->fs().lock(this->at("lock")).ok());
  EXPECT_TRUE(this->fs().lock(this->at("no/lock")).is(Code::kNotFound));
}

TYPED_TEST(FileSystemTest, WriteAtomicallyReplacesAndLeavesNothing) {
  EXPECT_TRUE(this->fs().write_atomically(this->at("a"), as_bytes("one"), 0640).ok());
  EXPECT_TRUE(this->fs().write_atomically(this->at("a"), as_bytes("two"), 0640).ok());
  EXPECT_EQ(this->get("a"), "two");
  EXPECT_EQ(this->fs().stat(this->at("a"))->mode, 0640U);
  EXPECT_THAT(*this->fs().list(this->disk_.root), UnorderedElementsAre("a"));
  EXPECT_TRUE(this->fs().write_atomically(this->at("no/a"), as_bytes("x")).is(Code::kNotFound));
  ASSERT_TRUE(this->fs().make_dirs(this->at("d/sub")).ok());
  EXPECT_FALSE(this->fs().write_atomically(this->at("d"), as_bytes("x")).ok());
  EXPECT_THAT(*this->fs().list(this->disk_.root), UnorderedElementsAre("a", "d"));
}

TYPED_TEST(FileSystemTest, SpaceIsKnown) {
  const auto space = this->fs().space(this->disk_.root);
  ASSERT_TRUE(space.ok());
  EXPECT_GT(space->total, 0U);
  EXPECT_LE(space->available, space->total);
  EXPECT_TRUE(this->fs().space(this->at("none")).is(Code::kNotFound));
}

TEST(Paths, ParentAndJoin) {
  EXPECT_EQ(parent_dir("/a/b"), "/a");
  EXPECT_EQ(parent_dir("/a/b/"), "/a");
  EXPECT_EQ(parent_dir("/a//b"), "/a");
  EXPECT_EQ(parent_dir("/a"), "/");
  EXPECT_EQ(parent_dir("/"), "/");
  EXPECT_EQ(parent_dir("a"), ".");
  EXPECT_EQ(join("/a", "b"), "/a/b");
  EXPECT_EQ(join("/", "b"), "/b");
  EXPECT_EQ(join("", "b"), "b");
}

}  // namespace
}  // namespace nc
