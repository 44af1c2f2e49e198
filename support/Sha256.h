//===- Sha256.h - digests of files and tensors ---------------- -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_SHA256_H
#define GRIDLOOM_SUPPORT_SHA256_H

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace gridloom {

/// The SHA-256 of `bytes`, 64 lower-case hexadecimal digits. Throws std::runtime_error where
/// OpenSSL has none.
std::string sha256(std::span<const std::byte> bytes);
/// Of parts, one after the other.
std::string sha256(std::span<const std::string_view> parts);

inline std::string sha256(std::string_view text) {
  return sha256(std::as_bytes(std::span(text.data(), text.size())));
}

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_SHA256_H
