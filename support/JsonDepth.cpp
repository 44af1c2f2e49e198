//===- JsonDepth.cpp - a limit on nested lists and objects ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/JsonDepth.h"

using namespace gridloom;

bool gridloom::isDeepJson(std::string_view text) {
  int depth = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (inString) {
      if (c == '\\')
        ++i;
      inString = c != '"';
    } else if (c == '"') {
      inString = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth)
        return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

std::string gridloom::describeDeepJson() {
  return "more than " + std::to_string(kMaxJsonDepth) + " lists and objects in each other";
}
