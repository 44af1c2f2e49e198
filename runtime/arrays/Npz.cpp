//===- Npz.cpp - numpy's archives of arrays -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The format is PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.3: members, each behind a local header,
// then a directory of them, then a record that says where the directory is.
//
//===----------------------------------------------------------------------===//
#include "runtime/arrays/Npz.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <cstdint>

using namespace gridloom::rt;

namespace {

constexpr uint32_t kLocal = 0x04034b50, kEntry = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr size_t kEndBytes = 22, kLocatorBytes = 20, kEntryBytes = 46, kLocalBytes = 30;
constexpr uint32_t kElsewhere = 0xffffffff; // the number is in the extra field

struct Entry {
  std::string name;
  uint64_t bytes = 0, offset = 0; // of the data as stored, of the local header
};

class Archive {
public:
  Archive(std::span<const std::byte> bytes, const std::string &name) : bytes(bytes), name(name) {}

  std::map<std::string, std::span<const std::byte>> read() {
    findDirectory();
    std::map<std::string, std::span<const std::byte>> members;
    for (uint64_t at = begin; at < end;) {
      Entry entry = readEntry(at);
      if (!members.emplace(entry.name, findData(entry)).second)
        fail("has '" + entry.name + "' twice");
    }
    return members;
  }

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw Error(ErrorCode::InvalidArgument,
                name + " " + what + "; write it with numpy.savez, or give a folder of .npy files");
  }

  /// A number of `size` bytes, little endian.
  uint64_t read(uint64_t at, size_t size) const {
    if (at > bytes.size() || bytes.size() - at < size)
      fail("is no whole .npz file: it ends at byte " + std::to_string(bytes.size()));
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i)
      value |= uint64_t(bytes[at + i]) << (8 * i);
    return value;
  }

  /// The record at the end of the file, which a comment may follow.
  uint64_t findEnd() const {
    if (bytes.size() >= kEndBytes)
      for (uint64_t at = bytes.size() - kEndBytes, tries = 0; tries < 0x10000; --at, ++tries) {
        if (read(at, 4) == kEnd && at + kEndBytes + read(at + 20, 2) == bytes.size())
          return at;
        if (at == 0)
          break;
      }
    fail("is no whole .npz file: it has no directory");
  }

  void findDirectory() {
    uint64_t record = findEnd();
    uint64_t size = read(record + 12, 4);
    begin = read(record + 16, 4);
    bool isLarge = begin == kElsewhere || size == kElsewhere || read(record + 10, 2) == 0xffff;
    if (isLarge && record >= kLocatorBytes && read(record - kLocatorBytes, 4) == kLocator64) {
      record = read(record - kLocatorBytes + 8, 8);
      if (read(record, 4) != kEnd64)
        fail("is no whole .npz file: its large directory is not where it says");
      size = read(record + 40, 8);
      begin = read(record + 48, 8);
    }
    if (begin > bytes.size() || size > bytes.size() - begin)
      fail("is no whole .npz file: it has " + std::to_string(bytes.size()) +
           " bytes, and a directory of " + std::to_string(size) + " at " + std::to_string(begin));
    end = begin + size;
  }

  Entry readEntry(uint64_t &at) const {
    if (read(at, 4) != kEntry)
      fail("is no whole .npz file: its directory is damaged at byte " + std::to_string(at));
    uint64_t flags = read(at + 8, 2), method = read(at + 10, 2), whole = read(at + 24, 4);
    uint64_t nameBytes = read(at + 28, 2), extraBytes = read(at + 30, 2);
    uint64_t commentBytes = read(at + 32, 2), extra = at + kEntryBytes + nameBytes;
    Entry entry;
    entry.bytes = read(at + 20, 4);
    entry.offset = read(at + 42, 4);
    read(extra + extraBytes + commentBytes, 0); // all of it is there
    entry.name.assign(reinterpret_cast<const char *>(bytes.data()) + at + kEntryBytes, nameBytes);
    readLargeNumbers(entry, whole == kElsewhere, extra, extra + extraBytes);
    if (method != 0)
      fail("is compressed, as numpy.savez_compressed does");
    if (flags & 1)
      fail("is encrypted");
    at = extra + extraBytes + commentBytes;
    return entry;
  }

  /// The numbers that do not fit their 4 bytes, in this order: the size, that of the data as
  /// stored, the header's offset.
  void readLargeNumbers(Entry &entry, bool isLarge, uint64_t at, uint64_t extraEnd) const {
    for (; extraEnd - at >= 4 && at < extraEnd; at += 4 + read(at + 2, 2)) {
      if (read(at, 2) != 1)
        continue;
      uint64_t number = at + 4 + (isLarge ? 8 : 0);
      if (entry.bytes == kElsewhere) {
        entry.bytes = read(number, 8);
        number += 8;
      }
      if (entry.offset == kElsewhere)
        entry.offset = read(number, 8);
      return;
    }
  }

  std::span<const std::byte> findData(const Entry &entry) const {
    if (read(entry.offset, 4) != kLocal)
      fail("is no whole .npz file: '" + entry.name + "' is not where the directory says");
    uint64_t data =
        entry.offset + kLocalBytes + read(entry.offset + 26, 2) + read(entry.offset + 28, 2);
    if (data > bytes.size() || entry.bytes > bytes.size() - data)
      fail("is no whole .npz file: '" + entry.name + "' of " + std::to_string(entry.bytes) +
           " bytes ends beyond its " + std::to_string(bytes.size()));
    return bytes.subspan(data, entry.bytes);
  }

  std::span<const std::byte> bytes;
  const std::string &name;
  uint64_t begin = 0, end = 0; // of the directory
};

} // namespace

std::map<std::string, std::span<const std::byte>>
gridloom::rt::findNpzMembers(std::span<const std::byte> bytes, const std::string &name) {
  return Archive(bytes, name).read();
}
