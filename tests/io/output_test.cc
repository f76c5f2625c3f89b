// Output files and folders: complete or absent, also when the process is interrupted.
#include "io/output.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/cleanup.h"
#include "io/file.h"
#include "io/mapped_file.h"
#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

using test::message_of;
using test::read_all;
using test::Scratch;

TEST(OutputFile, AppearsAtCommitOnly) {
  const Scratch scratch;
  scratch.write("f", "old");
  {
    OutputFile file(scratch / "f");
    file.write("lost");
  }
  EXPECT_EQ(read_all(scratch / "f"), "old");
  EXPECT_EQ(scratch.entries(), 1u);
  OutputFile file(scratch / "f");
  file.write("new ");
  file.write("text");
  file.write_at(0, std::as_bytes(std::span("N", 1)));
  EXPECT_EQ(read_all(scratch / "f"), "old");
  file.commit(true);
  EXPECT_EQ(read_all(scratch / "f"), "New text");
  EXPECT_EQ(scratch.entries(), 1u);
}

TEST(OutputFile, RefusesWhatCannotBeWritten) {
  const Scratch scratch;
  EXPECT_THROW(OutputFile(scratch.path()), Error);
  EXPECT_THROW(OutputFile(scratch / "missing/f"), Error);
  EXPECT_THROW(OutputFile(""), Error);
  EXPECT_EQ(message_of([] {
              OutputFile full("/dev/full");
              full.write("x");
            }),
            "/dev/full: cannot be written: No space left on device");
}

TEST(OutputFile, FollowsLinks) {
  const Scratch scratch;
  scratch.write("real", "old");
  std::filesystem::create_symlink(scratch / "real", scratch / "link");
  write_text_file(scratch / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(scratch / "link"));
  EXPECT_EQ(read_all(scratch / "real"), "new");
}

TEST(OutputDirectory, AppearsAtCommitOnly) {
  const Scratch scratch;
  {
    OutputDirectory lost(scratch / "d");
    write_text_file(lost.temporary() / "f", "x");
  }
  EXPECT_EQ(scratch.entries(), 0u);
  OutputDirectory made(scratch / "d/");
  write_text_file(made.temporary() / "f", "x");
  EXPECT_FALSE(std::filesystem::exists(scratch / "d"));
  made.commit();
  EXPECT_EQ(read_all(scratch / "d/f"), "x");
  EXPECT_EQ(scratch.entries(), 2u);
}

TEST(OutputDirectory, ReplacesOnlyWhatItMay) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "empty");
  OutputDirectory(scratch / "empty").commit();
  scratch.write("full/notes.txt", "precious");
  EXPECT_NE(message_of([&] { OutputDirectory d(scratch / "full"); }).find("exists and is not empty"),
            std::string::npos);
  EXPECT_NE(message_of([&] { OutputDirectory d(scratch / "full", true); }).find("no config.json"),
            std::string::npos);
  EXPECT_NE(message_of([&] { OutputDirectory d(scratch / "full/notes.txt"); }).find("not a folder"),
            std::string::npos);
  scratch.write("full/config.json", "{}");
  OutputDirectory made(scratch / "full", true);
  write_text_file(made.temporary() / "f", "x");
  made.commit();
  EXPECT_EQ(read_all(scratch / "full/f"), "x");
  EXPECT_FALSE(std::filesystem::exists(scratch / "full/notes.txt"));
  EXPECT_EQ(scratch.entries(), 3u);
}

TEST(Cleanup, AnInterruptedProcessLeavesNothing) {
  for (const int number : {SIGINT, SIGTERM}) {
    const Scratch scratch;
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      install_cleanup_handler();
      OutputDirectory folder(scratch / "d");
      OutputFile inside(folder.temporary() / "f"), beside(scratch / "g");
      inside.write("x");
      beside.write("x");
      if (::write(ready[1], "x", 1) != 1) ::_exit(3);
      for (;;) ::pause();
    }
    char byte;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_GE(scratch.entries(), 3u);
    ASSERT_EQ(::kill(child, number), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_EQ(WTERMSIG(status), number);
    EXPECT_EQ(scratch.entries(), 0u);
    ::close(ready[0]);
    ::close(ready[1]);
  }
}

TEST(MappedFile, BytesAndRefusals) {
  const Scratch scratch;
  const MappedFile empty(scratch.write("empty", ""));
  EXPECT_EQ(empty.size(), 0);
  MappedFile file(scratch.write("f", std::string(100000, 'x')));
  const auto bytes = file.bytes();
  file.prefetch(bytes);
  file.drop(bytes);
  file.drop(bytes.subspan(5, 3));
  const MappedFile moved = std::move(file);
  EXPECT_EQ(moved.bytes().data(), bytes.data());
  EXPECT_EQ(static_cast<char>(moved.bytes()[99999]), 'x');
  EXPECT_NE(message_of([&] { MappedFile d(scratch.path()); }).find("it is a directory"), std::string::npos);
  EXPECT_NE(message_of([&] { MappedFile d(scratch / "none"); }).find("No such file"), std::string::npos);
  EXPECT_NE(message_of([&] { MappedFile d("/dev/null"); }).find("not a regular file"), std::string::npos);
  EXPECT_NE(message_of([&] { read_text_file(scratch / "f", 99999); }).find("more than the 99999"),
            std::string::npos);
  EXPECT_EQ(read_text_file(scratch / "f", 100000).size(), 100000u);
}

}  // namespace
}  // namespace halfbyte
