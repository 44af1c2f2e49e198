//===- Npy.cpp - numpy's file format --------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/arrays/Npy.h"

#include "runtime/core/Error.h"
#include "runtime/core/Files.h"
#include "support/FileSwap.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

using namespace gridloom;
using namespace gridloom::rt;

static constexpr std::string_view magic = "\x93NUMPY";
static constexpr size_t maxDims = 32;

/// numpy's letter and bytes of each type. numpy has neither bf16 nor 8-bit floats; its extensions
/// write these as V2 and V1.
static constexpr std::array<std::pair<DataType, std::string_view>, 17> codes = {{
    {DataType::F32, "f4"},
    {DataType::F64, "f8"},
    {DataType::F16, "f2"},
    {DataType::BF16, "V2"},
    {DataType::I8, "i1"},
    {DataType::I16, "i2"},
    {DataType::I32, "i4"},
    {DataType::I64, "i8"},
    {DataType::U8, "u1"},
    {DataType::Bool, "b1"},
    {DataType::U16, "u2"},
    {DataType::U32, "u4"},
    {DataType::U64, "u8"},
    {DataType::F8E4M3FN, "V1"},
    {DataType::F8E5M2, "V1"},
    {DataType::F8E4M3FNUZ, "V1"},
    {DataType::F8E5M2FNUZ, "V1"},
}};

namespace {

/// The header, a Python dictionary.
struct Header {
  std::optional<std::string> type;
  std::optional<bool> isFortran;
  std::optional<std::vector<int64_t>> shape;
};

/// Reads the few Python literals that numpy writes, and nothing else.
class HeaderParser {
public:
  HeaderParser(std::string_view text, const std::string &name) : text(text), name(name) {}

  Header parse() {
    Header header;
    expect('{');
    while (!accept('}')) {
      std::string key = parseString();
      expect(':');
      if (key == "descr" && !header.type)
        header.type = parseString();
      else if (key == "fortran_order" && !header.isFortran)
        header.isFortran = parseBool();
      else if (key == "shape" && !header.shape)
        header.shape = parseShape();
      else
        fail("has an unknown or repeated key '" + key + "'");
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skipSpace();
    if (at != text.size())
      fail("has something after its closing brace");
    if (!header.type || !header.isFortran || !header.shape)
      fail("lacks one of descr, fortran_order, shape");
    return header;
  }

private:
  [[noreturn]] void fail(const std::string &what) {
    throw Error(ErrorCode::InvalidArgument,
                name + ": its header " + what + "; write it with numpy.save");
  }
  void skipSpace() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n'))
      ++at;
  }
  bool accept(char c) {
    skipSpace();
    if (at == text.size() || text[at] != c)
      return false;
    ++at;
    return true;
  }
  void expect(char c) {
    if (!accept(c))
      fail(std::string("lacks '") + c + "' at character " + std::to_string(at));
  }
  std::string parseString() {
    skipSpace();
    char quote = at < text.size() ? text[at] : 0;
    size_t end = quote == '\'' || quote == '"' ? text.find(quote, at + 1) : std::string_view::npos;
    if (end == std::string_view::npos)
      fail("lacks a string at character " + std::to_string(at));
    std::string value(text.substr(at + 1, end - at - 1));
    at = end + 1;
    return value;
  }
  bool parseBool() {
    skipSpace();
    for (auto [word, value] : {std::pair("True", true), std::pair("False", false)})
      if (text.substr(at).starts_with(word)) {
        at += strlen(word);
        return value;
      }
    fail("lacks True or False at character " + std::to_string(at));
  }
  std::vector<int64_t> parseShape() {
    std::vector<int64_t> shape;
    expect('(');
    while (!accept(')')) {
      skipSpace();
      int64_t size = 0;
      auto [end, problem] = std::from_chars(text.data() + at, text.data() + text.size(), size);
      if (problem != std::errc() || size < 0)
        fail("lacks a size at character " + std::to_string(at));
      at = size_t(end - text.data());
      shape.push_back(size);
      if (shape.size() > maxDims)
        fail("has more than " + std::to_string(maxDims) + " dimensions");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text;
  size_t at = 0;
  const std::string &name;
};

} // namespace

static DataType parseType(const std::string &code, const std::string &name) {
  if (code.size() == 3 && code[0] == '>' && code[2] != '1')
    throw Error(ErrorCode::InvalidArgument,
                name + ": its numbers are big-endian; save x.astype('<" + code.substr(1) + "')");
  // Which 8-bit float it is the file does not tell; numpy's extensions call one of them f1.
  if (code == "|V1" || code == "<V1" || code == "<f1")
    return DataType::U8;
  for (auto [type, letters] : codes)
    if (code.size() == 3 && strchr("<=|>", code[0]) && code.substr(1) == letters)
      return type;
  throw Error(
      ErrorCode::InvalidArgument,
      name + ": element type '" + code +
          "' is not one of f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool, or the bytes of "
          "8-bit floats");
}

HostArray gridloom::rt::parseNpy(std::span<const std::byte> bytes,
                                 const std::shared_ptr<const void> &owner,
                                 const std::string &name) {
  std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  auto fail = [&](const std::string &what) {
    throw Error(ErrorCode::InvalidArgument, name + ": " + what);
  };
  if (text.size() < 10 || !text.starts_with(magic))
    fail("is not a .npy file; write it with numpy.save");
  int major = uint8_t(text[6]);
  if (major < 1 || major > 3)
    fail("is of .npy version " + std::to_string(major) + "; versions 1 to 3 are known");
  size_t lengthBytes = major == 1 ? 2 : 4, begin = 8 + lengthBytes;
  size_t length = 0;
  for (size_t i = 0; i < lengthBytes && 8 + i < text.size(); ++i)
    length |= size_t(uint8_t(text[8 + i])) << (8 * i);
  if (text.size() < begin || text.size() - begin < length)
    fail("ends within its header of " + std::to_string(length) + " bytes");

  Header header = HeaderParser(text.substr(begin, length), name).parse();
  DataType type = parseType(*header.type, name);
  if (*header.isFortran && header.shape->size() > 1)
    fail("is in Fortran order; save numpy.ascontiguousarray(x)");
  int64_t expected = checkedBytes(*header.shape, sizeOf(type), name);
  size_t actual = text.size() - begin - length;
  if (uint64_t(expected) != actual)
    fail("holds " + std::to_string(actual) + " bytes of data; " + formatShape(*header.shape) +
         " of " + std::string(nameOf(type)) + " takes " + std::to_string(expected));
  return HostArray::share(type, *header.shape, bytes.data() + begin + length, owner);
}

HostArray gridloom::rt::readNpy(const std::filesystem::path &path,
                                std::vector<std::shared_ptr<const MappedFile>> *files) {
  std::error_code missing;
  if (!std::filesystem::is_regular_file(path, missing))
    throw Error(ErrorCode::InvalidArgument,
                path.string() +
                    (std::filesystem::exists(path, missing)
                         ? ": is not a file"
                         : ": there is no such file, and no generator of this name (see "
                           "--input in --help)"));
  auto file = MappedFile::open(path);
  HostArray array = parseNpy(file->getBytes(), file, path.string());
  // An odd header length leaves the elements unaligned.
  if (files && reinterpret_cast<uintptr_t>(array.getData()) % sizeOf(array.getType()) == 0) {
    files->push_back(file);
    return array;
  }
  HostArray copy = HostArray::allocate(array.getType(), array.getShape());
  memcpy(copy.getMutableData(), array.getData(), array.getNumBytes());
  file->requireUnchanged();
  return copy;
}

void gridloom::rt::writeNpy(const std::filesystem::path &path, const HostArray &array) {
  std::string code;
  for (auto [type, name] : codes)
    if (type == array.getType())
      code = (sizeOf(type) == 1 ? "|" : "<") + std::string(name);
  std::string header = "{'descr': '" + code + "', 'fortran_order': False, 'shape': (";
  for (int64_t size : array.getShape())
    header += std::to_string(size) + ", ";
  if (array.getShape().size() > 1)
    header.resize(header.size() - 2);
  else if (array.getShape().size() == 1)
    header.pop_back(); // "(3,)"
  header += "), }";
  // The data begin at a multiple of 64.
  size_t total = (10 + header.size() + 1 + 63) / 64 * 64;
  header.resize(total - 11, ' ');
  header += '\n';

  const char prefix[] = {'\x01', '\x00', char(header.size() & 0xff), char(header.size() >> 8)};
  std::string_view data(reinterpret_cast<const char *>(array.getData()), array.getNumBytes());
  std::string reason =
      replaceFile(path, {magic, std::string_view(prefix, sizeof prefix), header, data});
  if (!reason.empty())
    throw Error(ErrorCode::InvalidArgument, path.string() + " cannot be written: " + reason);
}

std::string gridloom::rt::getNpyName(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  while (name.starts_with('.'))
    name.front() = '_';
  return name + ".npy";
}
