//===- Tokens.cpp - read and write token ids ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Tokens.h"

#include "runtime/arrays/Npy.h"
#include "runtime/arrays/Values.h"
#include "runtime/core/Error.h"
#include "support/FileSwap.h"

#include <charconv>
#include <fstream>

using namespace gridloom::rt;

static Error refuse(const std::string &text) { return {ErrorCode::InvalidArgument, text}; }

/// Parses numbers separated by spaces, or by a comma; `where` is for errors.
static std::vector<int64_t> parseLine(const std::string &line, const std::string &where) {
  std::vector<int64_t> tokens;
  const char *spaces = " \t\r";
  bool needsToken = false; // after a comma
  for (size_t at = line.find_first_not_of(spaces); at != std::string::npos || needsToken;
       at = line.find_first_not_of(spaces, at)) {
    size_t end = std::min(line.find_first_of(", \t\r", at), line.size());
    std::string text = at < end ? line.substr(at, end - at) : "";
    int64_t token = 0;
    auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), token);
    if (text.empty())
      throw refuse(where + ": a comma lacks a token id beside it");
    if (problem != std::errc() || stop != text.data() + text.size() || token < 0)
      throw refuse(where + ": '" + text + "' is not a token id");
    tokens.push_back(token);
    at = std::min(line.find_first_not_of(spaces, end), line.size());
    needsToken = at < line.size() && line[at] == ',';
    at += needsToken;
  }
  return tokens;
}

static TokenRows readArray(const std::string &path) {
  HostArray array = readNpy(path);
  const std::vector<int64_t> &shape = array.getShape();
  if (isFloat(array.getType()) || shape.empty() || shape.size() > 2)
    throw refuse(path + " holds " + std::string(nameOf(array.getType())) + " " +
                 formatShape(shape) +
                 "; token ids are integers of shape [tokens] or [prompts, tokens]");
  TokenRows rows(shape.size() == 2 ? size_t(shape[0]) : 1);
  for (size_t row = 0; row < rows.size(); ++row)
    for (int64_t i = 0; i < shape.back(); ++i) {
      rows[row].push_back(int64_t(getElement(array, int64_t(row) * shape.back() + i)));
      if (rows[row].back() < 0)
        throw refuse(path + ": " + std::to_string(rows[row].back()) + " is not a token id");
    }
  return rows;
}

TokenRows gridloom::rt::readTokens(const std::string &text) {
  TokenRows rows;
  std::error_code error;
  if (text.ends_with(".npy")) {
    rows = readArray(text);
  } else if (std::filesystem::is_regular_file(text, error)) {
    std::ifstream file(text);
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      rows.push_back(parseLine(line, text + " line " + std::to_string(++number)));
      if (rows.back().empty())
        rows.pop_back();
    }
  } else if (text.find_first_not_of("0123456789, ") != std::string::npos) {
    throw refuse("--tokens '" + text + "' is neither a list of token ids, as 1,2,3, nor a file");
  } else {
    rows.push_back(parseLine(text, "--tokens"));
  }
  if (rows.empty() || rows.front().empty())
    throw refuse("--tokens '" + text + "' holds no token id");
  for (const std::vector<int64_t> &row : rows)
    if (row.size() != rows.front().size())
      throw refuse("--tokens " + text + " holds prompts of " + std::to_string(rows.front().size()) +
                   " and of " + std::to_string(row.size()) +
                   " tokens; prompts of one run have one length");
  return rows;
}

std::string gridloom::rt::formatTokens(const std::vector<int64_t> &tokens) {
  std::string text;
  for (int64_t token : tokens)
    text += (text.empty() ? "" : ",") + std::to_string(token);
  return text;
}

void gridloom::rt::writeTokens(const std::filesystem::path &path, const TokenRows &rows) {
  if (path.extension() == ".npy") {
    HostArray array = HostArray::allocate(
        DataType::I64, {int64_t(rows.size()), rows.empty() ? 0 : int64_t(rows.front().size())});
    size_t at = 0;
    for (const std::vector<int64_t> &row : rows) {
      if (row.size() != rows.front().size())
        throw refuse("prompts ended after different numbers of tokens (--stop); name a text file "
                     "for --output");
      for (int64_t token : row)
        array.as<int64_t>()[at++] = token;
    }
    writeNpy(path, array);
    return;
  }
  std::string lines;
  for (const std::vector<int64_t> &row : rows)
    lines += formatTokens(row) + "\n";
  if (std::string reason = replaceFile(path, {lines}); !reason.empty())
    throw refuse(path.string() + " cannot be written: " + reason);
}
