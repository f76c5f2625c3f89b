// Writes GGUF bytes piece by piece, sound or broken as a test wants them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace halfbyte::test {

template <typename T>
std::string le(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}
inline std::string gguf_string(const std::string& text) { return le<std::uint64_t>(text.size()) + text; }

class GgufBuilder {
 public:
  std::string magic = "GGUF",
              padding;  // padding: bytes between the tensor list and the data, computed when empty
  std::uint32_t version = 3;
  std::uint64_t extra_keys = 0, extra_tensors = 0;  // added to the counts, for lies about them
  std::uint64_t alignment = 32;

  GgufBuilder& key(const std::string& name, std::uint32_t type, const std::string& value) {
    keys_ += gguf_string(name) + le(type) + value;
    ++key_count_;
    return *this;
  }
  GgufBuilder& u32(const std::string& name, std::uint32_t value) { return key(name, 4, le(value)); }
  GgufBuilder& f32(const std::string& name, float value) { return key(name, 6, le(value)); }
  GgufBuilder& text(const std::string& name, const std::string& value) {
    return key(name, 8, gguf_string(value));
  }
  GgufBuilder& array(const std::string& name, std::uint32_t type, std::uint64_t count,
                     const std::string& elements) {
    return key(name, 9, le(type) + le(count) + elements);
  }
  GgufBuilder& texts(const std::string& name, const std::vector<std::string>& values) {
    std::string elements;
    for (const std::string& value : values) elements += gguf_string(value);
    return array(name, 8, values.size(), elements);
  }
  // An entry of the tensor list; dims fastest first.
  GgufBuilder& entry(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                     std::uint64_t offset) {
    entries_ += gguf_string(name) + le(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) entries_ += le(dim);
    entries_ += le(type) + le(offset);
    ++tensor_count_;
    return *this;
  }
  // An entry and its data, laid after the tensors before it.
  GgufBuilder& tensor(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                      const std::string& bytes) {
    data.resize((data.size() + alignment - 1) / alignment * alignment, '\0');
    entry(name, dims, type, data.size());
    data += bytes;
    return *this;
  }
  std::string build() const {
    std::string out = magic + le(version) + le(tensor_count_ + extra_tensors) + le(key_count_ + extra_keys) +
                      keys_ + entries_;
    out += padding.empty() ? std::string((alignment - out.size() % alignment) % alignment, '\0') : padding;
    return out + data;
  }

  std::string data;

 private:
  std::string keys_, entries_;
  std::uint64_t key_count_ = 0, tensor_count_ = 0;
};

}  // namespace halfbyte::test
