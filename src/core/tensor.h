// A view of tensor bytes that somebody else owns (a mapped file, a buffer), and the buffer that owns some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "core/dtype.h"
#include "core/shape.h"

namespace halfbyte {

// Row-major elements at data; data may be unaligned for the type (files), so read through load().
struct TensorView {
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> data;  // exactly count(shape) * dtype_bytes(dtype)

  std::int64_t elements() const { return count(shape); }
};

// Reads one T from bytes of any alignment.
template <typename T>
T load(const std::byte* bytes, std::int64_t index = 0) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Owned array of a trivial type, aligned to 64 bytes, movable, not initialised unless asked.
template <typename T>
class Array {
 public:
  Array() = default;
  explicit Array(std::int64_t size) : size_(size) {
    if (size <= 0) return;
    // Aligned by hand: glibc 2.36 finds no freed place again for an aligned_alloc, and the heap would grow with every tensor.
    const auto bytes = static_cast<std::size_t>(size) * sizeof(T) + kAlignment - 1;
    void* const base = std::malloc(bytes);
    if (!base) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    const std::uintptr_t skipped = (kAlignment - address % kAlignment) % kAlignment;
    data_ = {reinterpret_cast<T*>(static_cast<std::byte*>(base) + skipped), Free{base}};
  }
  Array(std::int64_t size, T value) : Array(size) {
    for (std::int64_t i = 0; i < size; ++i) data_.get()[i] = value;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }
  std::int64_t bytes() const { return size_ * static_cast<std::int64_t>(sizeof(T)); }
  T& operator[](std::int64_t i) { return data_.get()[i]; }
  const T& operator[](std::int64_t i) const { return data_.get()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  std::span<T> span() { return {data(), static_cast<std::size_t>(size_)}; }
  std::span<const T> span() const { return {data(), static_cast<std::size_t>(size_)}; }
  std::span<const std::byte> as_bytes() const { return std::as_bytes(span()); }

 private:
  static constexpr std::size_t kAlignment = 64;

  struct Free {
    void* base = nullptr;
    void operator()(T*) const { std::free(base); }
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t size_ = 0;
};

}  // namespace halfbyte
