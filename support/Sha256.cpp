//===- Sha256.cpp - digests of files and tensors --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Sha256.h"

#include "support/Text.h"

#include <array>
#include <memory>
#include <openssl/evp.h>
#include <stdexcept>

std::string gridloom::sha256(std::span<const std::string_view> parts) {
  std::array<unsigned char, 32> digest;
  unsigned length = 0;
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                  &EVP_MD_CTX_free);
  bool isGood = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  for (std::string_view part : parts)
    isGood = isGood && EVP_DigestUpdate(context.get(), part.data(), part.size());
  if (!isGood || !EVP_DigestFinal_ex(context.get(), digest.data(), &length) ||
      length != digest.size())
    throw std::runtime_error("SHA-256 is not available from OpenSSL");
  return toHex(std::as_bytes(std::span(digest)));
}

std::string gridloom::sha256(std::span<const std::byte> bytes) {
  std::string_view whole(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  return sha256(std::span(&whole, 1));
}
