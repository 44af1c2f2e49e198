//===- OnnxWire.cpp - protobuf fields of ONNX files -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/OnnxWire.h"

#include "runtime/core/Error.h"

using namespace gridloom::rt;
using namespace gridloom::rt::wire;

std::optional<Field> MessageReader::next() {
  if (at == message.size())
    return std::nullopt;
  size_t start = at;
  uint64_t tag = readVarint();
  Field field;
  field.number = static_cast<uint32_t>(tag >> 3);
  if ((tag >> 3) == 0 || (tag >> 3) > (1u << 29) - 1)
    malformed(start, "field number " + std::to_string(tag >> 3) + " is out of range");
  field.type = static_cast<WireType>(tag & 7);
  switch (field.type) {
  case WireType::Varint:
    field.integer = readVarint();
    break;
  case WireType::Fixed64:
    field.payload = take(start, 8);
    break;
  case WireType::Bytes:
    field.payload = take(start, readVarint());
    break;
  case WireType::Fixed32:
    field.payload = take(start, 4);
    break;
  default:
    malformed(start, "wire type " + std::to_string(tag & 7) + " is not used by ONNX");
  }
  field.whole = message.substr(start, at - start);
  return field;
}

uint64_t MessageReader::readVarint() {
  uint64_t value = 0;
  size_t start = at;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (at == message.size())
      malformed(start, "a number runs past the end of its message");
    auto byte = static_cast<unsigned char>(message[at++]);
    value |= uint64_t(byte & 0x7f) << shift;
    if (!(byte & 0x80))
      return value;
  }
  malformed(start, "a number takes more than 10 bytes");
}

std::string_view MessageReader::take(size_t start, uint64_t bytes) {
  if (bytes > message.size() - at)
    malformed(start, "a field of " + std::to_string(bytes) +
                         " bytes runs past the end of its message, which has " +
                         std::to_string(message.size() - at) + " left");
  std::string_view taken = message.substr(at, bytes);
  at += bytes;
  return taken;
}

void MessageReader::malformed(size_t start, const std::string &reason) const {
  uint64_t offset = static_cast<uint64_t>(message.data() - file.data()) + start;
  throw Error(ErrorCode::InvalidArgument, fileName + " is not a valid ONNX file: at byte " +
                                              std::to_string(offset) + ", " + reason);
}

static void appendVarint(uint64_t value, std::string &out) {
  for (; value >= 0x80; value >>= 7)
    out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

std::string gridloom::rt::wire::makeHeader(uint32_t field, uint64_t bytes) {
  std::string header;
  appendVarint(uint64_t(field) << 3 | uint64_t(WireType::Bytes), header);
  appendVarint(bytes, header);
  return header;
}
