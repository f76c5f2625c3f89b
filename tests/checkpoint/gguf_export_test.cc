// Writing GGUF: models come back from it unchanged, codes and scales of NVFP4 and MXFP4 mean the same there, and Q4_0 and Q8_0
// are those of ggml.
#include "checkpoint/gguf_export.h"

#include "checkpoint/gguf.h"
#include "checkpoint/gguf_blocks.h"
#include "formats/ggml_blocks.h"
#include "io/gguf.h"
#include "tests/checkpoint/peer_files.h"

namespace halfbyte {
namespace {

const std::filesystem::path kGolden = HALFBYTE_GOLDEN;

class GgufRoundTrip : public testing::TestWithParam<std::string> {};

// A GGUF file, imported, exported and imported again.
TEST_P(GgufRoundTrip, GivesTheSameModel) {
  const test::Scratch scratch;
  const auto first = scratch / "model", second = scratch / "again";
  import_gguf(kGolden / "gguf" / (GetParam() + ".gguf"), first, false, {});
  export_gguf(Checkpoint(first), scratch / "model.gguf", {});
  import_gguf(scratch / "model.gguf", second, false, {});
  for (const char* file : {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(test::read_all(first / file), test::read_all(second / file)) << file;
}
INSTANTIATE_TEST_SUITE_P(Models, GgufRoundTrip,
                         testing::Values("llama3", "llama_linear", "mistral", "qwen2", "qwen3",
                                         "smollm2_like", "spm"));

// A peer's checkpoint of 99 tokens with a tokenizer to go with it.
void add_tokenizer(const std::filesystem::path& dir) {
  Json vocab = Json::object();
  for (int i = 0; i < 97; ++i) vocab["t" + std::to_string(i)] = i;
  const Json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  write_text_file(
      dir / "tokenizer.json",
      dump_json({{"normalizer", nullptr},
                 {"pre_tokenizer", level},
                 {"added_tokens", {{{"id", 97}, {"content", "<end>"}, {"special", true}}}},
                 {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array({"t 1"})}}}}));
  write_text_file(dir / "tokenizer_config.json", dump_json({{"eos_token", {{"content", "<end>"}}}}));
}

TEST(GgufExport, CodesAndScalesMeanTheSame) {
  for (const std::string name : {"modelopt_nvfp4", "compressed_tensors_mxfp4"}) {
    const test::Scratch dir;
    test::EditableModel(test::peer_dir(name)).write(dir.path());
    add_tokenizer(dir.path());
    const Checkpoint checkpoint(dir.path());
    EXPECT_NE(test::message_of([&] { export_gguf(checkpoint, dir / "m.gguf", {}); }).find("--weights-only"),
              std::string::npos);
    export_gguf(checkpoint, dir / "m.gguf", {.weights_only = true});
    const GgufFile file(dir / "m.gguf");
    const QuantizedTensor up = checkpoint.quantized("model.layers.0.mlp.up_proj.weight"),
                          query = checkpoint.quantized("model.layers.0.self_attn.q_proj.weight");
    for (const auto& [tensor, gguf] : {std::pair(&up, "blk.0.ffn_up"), {&query, "blk.0.attn_q"}}) {
      const GgufTensor& stored = file.tensor(std::string(gguf) + ".weight");
      ASSERT_EQ(stored.shape, tensor->shape);
      const GgmlDecoder& decoder = *find_ggml_decoder(stored.type->id);
      std::vector<float> values(static_cast<std::size_t>(count(stored.shape)));
      decoder.decode(stored.data.data(), count(stored.shape) / decoder.block_values, values.data());
      float factor = 1;
      if (stored.type->name == "NVFP4") {
        factor = load<float>(file.tensor(std::string(gguf) + ".scale").data.data());
        EXPECT_EQ(factor, tensor->global_scale);
      }
      QuantizedTensor exact = std::move(*const_cast<QuantizedTensor*>(tensor));
      exact.source = DType::f32;
      exact.global_scale = 1;  // llama.cpp multiplies with it afterwards
      const std::vector<float> expected = test::decode(exact);
      const std::int64_t columns = exact.shape[1];
      std::int64_t different = 0;
      for (std::int64_t row = 0; row < exact.shape[0]; ++row) {
        // Heads of 16 rows: row 2b + a of the file is row 8a + b.
        const std::int64_t from = tensor == &query ? row / 16 * 16 + row % 2 * 8 + row % 16 / 2 : row;
        for (std::int64_t i = 0; i < columns; ++i)
          different += values[static_cast<std::size_t>(row * columns + i)] !=
                       expected[static_cast<std::size_t>(from * columns + i)];
      }
      EXPECT_EQ(different, 0) << name << " " << gguf;
    }
    EXPECT_EQ(file.integer("general.file_type"), name == "modelopt_nvfp4" ? 39 : 38);
    EXPECT_EQ(file.string("tokenizer.ggml.pre"), "gpt-2");
    EXPECT_EQ(file.integer("tokenizer.ggml.eos_token_id"), 97);
    EXPECT_EQ(file.strings("tokenizer.ggml.tokens")[98], "[PAD98]");
    EXPECT_EQ(file.integers("tokenizer.ggml.token_type")[98], 5);
    EXPECT_EQ(file.integers("tokenizer.ggml.token_type")[97], 3);
    EXPECT_EQ(file.tensor("blk.0.attn_norm.weight").type->name, "F32");
    EXPECT_EQ(file.tensor("output.weight").type->name, "BF16");
  }
}

TEST(GgufExport, BlocksAreThoseOfGgml) {
  const SafetensorsFile golden(kGolden / "ggml_c.safetensors");
  const SafetensorsFile input(kGolden / "gguf.safetensors");
  const TensorView& x = input.at("x");
  for (const auto& [type, encode] : {std::pair("Q4_0", &encode_q4_0_row), {"Q8_0", &encode_q8_0_row}}) {
    const TensorView& expected = golden.at(std::string(type) + ".bytes");
    const auto row_bytes = static_cast<std::size_t>(expected.shape[1]);
    for (std::int64_t row = 0; row < x.shape[0]; ++row) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < x.shape[1]; ++i)
        values.push_back(load<float>(x.data.data(), row * x.shape[1] + i));
      std::vector<std::byte> bytes(row_bytes);
      encode(values, bytes);
      EXPECT_TRUE(std::ranges::equal(
          bytes, expected.data.subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes)))
          << type << " row " << row;
    }
  }
}

TEST(GgufExport, LinearsBecomeWhatIsAsked) {
  // The plain model that a peer's checkpoint decodes to.
  const test::Scratch dir;
  test::EditableModel model(test::peer_dir("compressed_tensors_mxfp4"));
  std::erase_if(model.tensors, [](const StoredTensor& tensor) {
    return tensor.spec.name.ends_with(".weight_packed") || tensor.spec.name.ends_with(".weight_scale");
  });
  const SafetensorsFile decoded(test::peer_dir("compressed_tensors_mxfp4") / "expected.safetensors");
  for (const NamedTensor& tensor : decoded.tensors())
    if (tensor.name.ends_with(".weight"))
      model.tensors.push_back(stored(tensor.name, tensor.view.dtype, tensor.view.shape, tensor.view.data));
  model.config.erase("quantization_config");
  model.write(dir.path());
  add_tokenizer(dir.path());
  for (const auto& [linears, type] : {std::pair(GgufLinears::as_they_are, "BF16"),
                                      {GgufLinears::q8_0, "Q8_0"},
                                      {GgufLinears::q4_0, "Q4_0"}}) {
    export_gguf(Checkpoint(dir.path()), dir / "m.gguf", {.linears = linears});
    const GgufFile file(dir / "m.gguf");
    EXPECT_EQ(file.tensor("blk.0.ffn_up.weight").type->name, type);
    EXPECT_EQ(file.tensor("token_embd.weight").type->name, "BF16");
    EXPECT_EQ(file.tensor("output.weight").type->name, "BF16");
  }
  const test::Scratch narrow;
  import_gguf(kGolden / "gguf/llama3.gguf", narrow / "model", false, {});
  EXPECT_NE(test::message_of([&] {
              export_gguf(Checkpoint(narrow / "model"), narrow / "m.gguf", {.linears = GgufLinears::q4_0});
            }).find("needs rows of a multiple of 32"),
            std::string::npos);
}

TEST(GgufExport, RefusesWhatLlamaCppWouldComputeOtherwise) {
  const auto refusal = [](const std::filesystem::path& dir, void (*edit)(Json & config, Json & tokenizer),
                          bool weights_only = true) {
    const test::Scratch scratch;
    test::EditableModel model(dir);
    model.write(scratch.path());
    add_tokenizer(scratch.path());
    Json tokenizer = read_json_file(scratch / "tokenizer.json");
    edit(model.config, tokenizer);
    write_text_file(scratch / "config.json", dump_json(model.config));
    write_text_file(scratch / "tokenizer.json", dump_json(tokenizer));
    const std::string message = test::message_of(
        [&] { export_gguf(Checkpoint(scratch.path()), scratch / "m.gguf", {.weights_only = weights_only}); });
    EXPECT_FALSE(std::filesystem::exists(scratch / "m.gguf")) << message;
    return message;
  };
  const auto nothing = [](Json&, Json&) {};
  const auto modelopt = test::peer_dir("modelopt_nvfp4");
  EXPECT_NE(refusal(test::peer_dir("bitsandbytes_nf4"), nothing).find("only nvfp4 and mxfp4"),
            std::string::npos);
  EXPECT_NE(refusal(test::peer_dir("compressed_tensors_nvfp4a16"), nothing).find("reciprocal is not exact"),
            std::string::npos);
  EXPECT_NE(refusal(modelopt, [](Json& c, Json&) { c["model_type"] = "gpt2"; }).find("\"gpt2\""),
            std::string::npos);
  EXPECT_NE(refusal(modelopt, [](Json& c, Json&) { c["sliding_window"] = 16; }).find("sliding window"),
            std::string::npos);
  EXPECT_NE(
      refusal(modelopt, [](Json& c, Json&) { c["rope_parameters"]["rope_type"] = "yarn"; }).find("yarn"),
      std::string::npos);
  EXPECT_NE(
      refusal(modelopt, [](Json&, Json& t) { t["model"]["byte_fallback"] = true; }).find("treat spaces"),
      std::string::npos);
  EXPECT_NE(refusal(modelopt,
                    [](Json&, Json& t) {
                      t["normalizer"] = {{"type", "NFKC"}};
                    })
                .find("no name"),
            std::string::npos);
  EXPECT_NE(refusal(modelopt, [](Json&, Json& t) { t["model"]["vocab"]["more"] = 99; }).find("99 rows"),
            std::string::npos);
}

}  // namespace
}  // namespace halfbyte
