//===- Crc32c.cpp - a checksum of bytes -----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Crc32c.h"

#include <array>

using namespace gridloom;

/// The register after each byte was shifted through it alone.
static constexpr std::array<uint32_t, 256> makeTable() {
  constexpr uint32_t polynomial = 0x82F63B78; // reflected
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit)
      value = value >> 1 ^ (value & 1 ? polynomial : 0);
    table[byte] = value;
  }
  return table;
}

uint32_t gridloom::crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> table = makeTable();
  uint32_t crc = ~uint32_t(0);
  for (unsigned char byte : bytes)
    crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF];
  return ~crc;
}
