// How many launch shapes there are of a kernel that moves an op's bytes and computes nothing.
#pragma once

namespace halfbyte::cuda {

inline constexpr int kBytesShapes = 4;

}  // namespace halfbyte::cuda
