//===- Crc32c.h - a checksum of bytes ---------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_CRC32C_H
#define GRIDLOOM_SUPPORT_CRC32C_H

#include <cstdint>
#include <string_view>

namespace gridloom {

/// CRC-32C (Castagnoli): polynomial 0x1EDC6F41, reflected, inverted before and after, as in RFC
/// 3720, appendix B.4.
uint32_t crc32c(std::string_view bytes);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_CRC32C_H
