//===- TemporaryFolder.cpp - a folder that is removed again ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/TemporaryFolder.h"

#include <cerrno>
#include <cstdlib>

using namespace gridloom;
namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(const std::string &prefix) {
  std::error_code code;
  fs::path parent = fs::temp_directory_path(code);
  std::string pattern = (parent / (prefix + "-XXXXXX")).string();
  if (!code && !mkdtemp(pattern.data()))
    code = {errno, std::generic_category()};
  if (code)
    error = "cannot make a temporary folder in '" + parent.string() + "': " + code.message();
  else
    path = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (error.empty())
    fs::remove_all(path, ignored);
}
