// safetensors: what is written is read back, the reference's own files are reproduced byte for byte, shards.
#include "io/safetensors.h"

#include <gtest/gtest.h>

#include "tests/support/scratch.h"

namespace halfbyte {
namespace {

using test::message_of;
using test::Scratch;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text_of(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.data.data()), view.data.size()};
}

TEST(Safetensors, RoundTripInFileOrder) {
  const Scratch scratch;
  SafetensorsWriter writer(
      scratch / "m.safetensors",
      {{"b", DType::u8, {3}}, {"a", DType::u8, {0, 7}}, {"s", DType::f32, {}}, {"h", DType::bf16, {2, 1}}},
      {{"format", "pt"}, {"quote\"", "\n"}});
  EXPECT_EQ(writer.tensors()[0].name, "s");
  writer.append("b", bytes_of("x"));
  writer.append("h", bytes_of("hhhh"));
  writer.append("s", bytes_of("ssss"));
  writer.append("b", bytes_of("yz"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "m.safetensors"));
  writer.finish();
  EXPECT_EQ(scratch.entries(), 1u);
  EXPECT_EQ(static_cast<std::uintmax_t>(writer.file_bytes()),
            std::filesystem::file_size(scratch / "m.safetensors"));

  const SafetensorsFile file(scratch / "m.safetensors");
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.tensors()[0].name, "s");
  EXPECT_EQ(file.tensors()[1].name, "h");
  EXPECT_EQ(file.tensors()[2].name, "a");
  EXPECT_EQ(text_of(file.at("b")), "xyz");
  EXPECT_EQ(text_of(file.at("s")), "ssss");
  EXPECT_EQ(file.at("a").shape, (Shape{0, 7}));
  EXPECT_EQ(file.at("h").dtype, DType::bf16);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"quote\"", "\n"}}));
  file.drop("b");
  EXPECT_EQ(text_of(file.at("b")), "xyz");
}

TEST(Safetensors, WriterRefusesWrongSizesAndLeavesNothing) {
  const Scratch scratch;
  {
    SafetensorsWriter writer(scratch / "m.safetensors", {{"a", DType::u8, {3}}}, {});
    EXPECT_THROW(writer.append("a", bytes_of("abcd")), Error);
    EXPECT_THROW(writer.append("b", bytes_of("a")), Error);
    writer.append("a", bytes_of("ab"));
    EXPECT_EQ(message_of([&] { writer.finish(); }),
              (scratch / "m.safetensors").string() + ": tensor \"a\" was given 2 of its 3 bytes");
  }
  EXPECT_EQ(scratch.entries(), 0u);
  EXPECT_THROW(SafetensorsWriter(scratch / "m", {{"a", DType::u8, {1}}, {"a", DType::u8, {1}}}, {}), Error);
  EXPECT_THROW(SafetensorsWriter(scratch / "m", {{"__metadata__", DType::u8, {1}}}, {}), Error);
  EXPECT_THROW(SafetensorsWriter(scratch / "m", {{"\xFF", DType::u8, {1}}}, {}), Error);
  EXPECT_THROW(SafetensorsWriter(scratch / "m", {{"a", DType::f32, {std::int64_t{1} << 62}}}, {}), Error);
  EXPECT_THROW(SafetensorsWriter(scratch / "m", {{"a", DType::u8, {-1}}}, {}), Error);
  EXPECT_EQ(scratch.entries(), 0u);
}

TEST(Safetensors, EmptyModel) {
  const Scratch scratch;
  SafetensorsWriter(scratch / "e.safetensors", {}, {}).finish();
  EXPECT_TRUE(SafetensorsFile(scratch / "e.safetensors").tensors().empty());
}

// Written by the reference implementation (tools/golden/make_gguf_golden.py): every dtype, odd names, an
// empty tensor.
TEST(Safetensors, ReproducesTheReferenceWriterByteForByte) {
  const std::filesystem::path golden = std::string(HALFBYTE_GOLDEN) + "/gguf_writer_order.safetensors";
  const SafetensorsFile file(golden);
  ASSERT_GE(file.tensors().size(), 15u);
  const Scratch scratch;
  std::vector<TensorSpec> specs;
  for (const NamedTensor& tensor : file.tensors())
    specs.insert(specs.begin(), {tensor.name, tensor.view.dtype, tensor.view.shape});
  SafetensorsWriter writer(scratch / "copy", specs, file.metadata());
  for (const NamedTensor& tensor : file.tensors()) writer.append(tensor.name, tensor.view.data);
  writer.finish();
  EXPECT_EQ(test::read_all(scratch / "copy"), test::read_all(golden));
}

class Shards : public ::testing::Test {
 protected:
  void shard(const std::string& name, const std::string& tensor) {
    SafetensorsWriter writer(scratch_ / name, {{tensor, DType::u8, {1}}}, {});
    writer.append(tensor, bytes_of("x"));
    writer.finish();
  }
  void index(const std::string& map) {
    scratch_.write("model.safetensors.index.json",
                   R"({"metadata": {"total_size": 2}, "weight_map": {)" + map + "}}");
  }
  std::string opening() {
    return message_of([&] { SafetensorsModel model(scratch_.path()); });
  }
  Scratch scratch_;
};

TEST_F(Shards, AreFoundByTheIndex) {
  shard("model-1.safetensors", "a");
  shard("model-2.safetensors", "b");
  index(R"("a": "model-1.safetensors", "b": "model-2.safetensors")");
  const SafetensorsModel model(scratch_.path());
  EXPECT_EQ(model.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(text_of(model.at("b")), "x");
  EXPECT_EQ(model.file_of("b").path(), (scratch_ / "model-2.safetensors").string());
  EXPECT_EQ(model.find("c"), nullptr);
  // Bytes are there from the moment they are asked for until they are dropped.
  EXPECT_EQ(model.describe("a")->shape, model.at("b").shape);
  EXPECT_EQ(text_of(model.at("a")), "x");
  model.drop("a");
  EXPECT_TRUE(model.describe("a")->data.empty());
  EXPECT_EQ(text_of(model.at("a")), "x");
  model.drop("a");
}

TEST_F(Shards, NoticesAFileThatShrankMeanwhile) {
  shard("model.safetensors", "a");
  const SafetensorsModel model(scratch_.path());
  std::filesystem::resize_file(scratch_ / "model.safetensors", 20);
  EXPECT_NE(message_of([&] { model.at("a"); }).find("was it changed while it is read?"), std::string::npos);
}

TEST_F(Shards, SingleFileAndFolderWithOne) {
  shard("model.safetensors", "a");
  EXPECT_EQ(SafetensorsModel(scratch_.path()).names().size(), 1u);
  EXPECT_EQ(SafetensorsModel(scratch_ / "model.safetensors").names().size(), 1u);
}

TEST_F(Shards, WrongIndexesAreRefused) {
  shard("model-1.safetensors", "a");
  shard("model-2.safetensors", "a");
  EXPECT_NE(opening().find("has neither model.safetensors nor"), std::string::npos);
  index(R"("a": "model-1.safetensors", "b": "model-1.safetensors")");
  EXPECT_NE(opening().find("tensor \"b\" should lie in \"model-1.safetensors\", but that file does not"),
            std::string::npos);
  index(R"("a": "model-1.safetensors", "b": "model-2.safetensors")");
  EXPECT_NE(opening().find("tensor \"a\" lies in two shards"), std::string::npos);
  index(R"("a": "../model-1.safetensors")");
  EXPECT_NE(opening().find("not the name of a .safetensors file in the same folder"), std::string::npos);
}

}  // namespace
}  // namespace halfbyte
