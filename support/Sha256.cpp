//===- Sha256.cpp - digests of files and tensors --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Sha256.h"

#include "support/Text.h"

#include <array>
#include <openssl/evp.h>
#include <stdexcept>

std::string gridloom::sha256(std::span<const std::byte> bytes) {
  std::array<std::byte, 32> digest;
  unsigned length = 0;
  if (!EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char *>(digest.data()),
                  &length, EVP_sha256(), nullptr) ||
      length != digest.size())
    throw std::runtime_error("SHA-256 is not available from OpenSSL");
  return toHex(digest);
}
