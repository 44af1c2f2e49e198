//===- Tokens.h - read and write token ids ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_TOKENS_H
#define GRIDLOOM_RUNTIME_CLI_TOKENS_H

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gridloom::rt {

/// One list of token ids per prompt.
using TokenRows = std::vector<std::vector<int64_t>>;

/// Reads "1,2,3", a .npy file of integers ([tokens] or [prompts, tokens]), or a text file with one
/// prompt per line. Throws InvalidArgument if there are no tokens, prompts differ in length, or the
/// file has other contents.
TokenRows readTokens(const std::string &text);

/// "1,2,3"
std::string formatTokens(const std::vector<int64_t> &tokens);

/// Writes a .npy file of [prompts, tokens] if the path ends so, else a text file with one prompt
/// per line. Throws InvalidArgument if rows for a .npy file differ in length.
void writeTokens(const std::filesystem::path &path, const TokenRows &rows);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_TOKENS_H
