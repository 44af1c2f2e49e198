//===- Tokens.h - token ids in and out --------------------------*- C++ -*-===//
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

/// Reads "1,2,3", a .npy file of integers ([tokens] or [prompts, tokens]), or a text file with a
/// prompt a line. Throws InvalidArgument when there is no token, prompts differ in length, or
/// something else is in the file.
TokenRows readTokens(const std::string &text);

/// "1,2,3"
std::string formatTokens(const std::vector<int64_t> &tokens);

/// Writes a .npy file of [prompts, tokens] where the name ends so, else a text file with a line per
/// prompt. Throws InvalidArgument when rows of a .npy file differ in length.
void writeTokens(const std::filesystem::path &path, const TokenRows &rows);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_TOKENS_H
