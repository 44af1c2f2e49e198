//===- ReadableNames.cpp - names of values in dumps -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/ReadableNames.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace gridloom;
using llvm::StringRef;

/// Whether a character may be part of a printed name.
static bool isNamePart(char c) {
  return llvm::isAlnum(c) || c == '_' || c == '.' || c == '$' || c == '-';
}

/// Calls `visit` with each piece of the text in order, and whether it is a value's name (without
/// its `%`). Strings and comments hold no names.
static void visitPieces(StringRef text, llvm::function_ref<void(StringRef, bool)> visit) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at)
        at += text[at] == '\\';
    } else if (text.substr(at).starts_with("//")) {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == '%') {
      StringRef name = text.drop_front(at + 1).take_while(isNamePart);
      visit(text.slice(begin, at + 1), false);
      visit(name, true);
      begin = at + 1 + name.size();
      at += name.size();
    }
  }
  visit(text.drop_front(begin), false);
}

static std::string decode(StringRef name) {
  std::string readable;
  // The printer puts an underscore before a name that begins with a digit, such as the code's.
  if (name.starts_with("_2F"))
    name = name.drop_front(3);
  for (size_t i = 0; i < name.size();) {
    bool isSlash = name.substr(i).starts_with("2F");
    readable += isSlash ? '.' : name[i];
    i += isSlash ? 2 : 1;
  }
  // A number is the printer's own name for a value, and no other name may begin with a digit.
  if (readable.empty() || llvm::isDigit(readable.front()))
    readable = "_" + readable;
  return readable;
}

std::string gridloom::makeNamesReadable(StringRef text) {
  llvm::StringSet<> taken;
  visitPieces(text, [&](StringRef piece, bool isName) {
    if (isName)
      taken.insert(piece);
  });
  llvm::StringMap<std::string> names;
  std::string result;
  result.reserve(text.size());
  visitPieces(text, [&](StringRef piece, bool isName) {
    if (!isName || !piece.contains("2F")) {
      result += piece;
      return;
    }
    auto [name, isNew] = names.try_emplace(piece);
    if (isNew) {
      std::string base = decode(piece), free = base;
      for (int number = 0; taken.contains(free); ++number)
        free = base + "_" + std::to_string(number);
      taken.insert(free);
      name->second = free;
    }
    result += name->second;
  });
  return result;
}
