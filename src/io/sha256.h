// SHA-256 of bytes as 64 hexadecimal digits, as sha256sum prints it. (OpenSSL's.)
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace halfbyte {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  std::string finish();  // once, last

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256(std::span<const std::byte> bytes);
std::string sha256(std::string_view text);

}  // namespace halfbyte
