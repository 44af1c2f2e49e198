//===- NamePattern.cpp - names with stars ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/NamePattern.h"

#include "llvm/ADT/SmallVector.h"

using llvm::SmallVector;
using llvm::StringRef;

bool gridloom::matchesPattern(StringRef pattern, StringRef name) {
  auto [first, rest] = pattern.split('*');
  if (first.size() == pattern.size())
    return pattern == name;
  if (!name.consume_front(first))
    return false;
  SmallVector<StringRef> parts;
  rest.split(parts, '*');
  StringRef last = parts.pop_back_val();
  // The earliest match of each part leaves the most text for those after it.
  for (StringRef part : parts) {
    size_t at = name.find(part);
    if (at == StringRef::npos)
      return false;
    name = name.drop_front(at + part.size());
  }
  return name.ends_with(last);
}
