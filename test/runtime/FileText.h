//===- FileText.h - the bytes of a file in tests ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_FILETEXT_H
#define GRIDLOOM_TEST_RUNTIME_FILETEXT_H

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace gridloom::test {

/// All bytes of a file; none if there is no such file.
inline std::string readAll(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace gridloom::test

#endif // GRIDLOOM_TEST_RUNTIME_FILETEXT_H
