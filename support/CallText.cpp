//===- CallText.cpp - calls on the command line ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/CallText.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

using namespace gridloom;

namespace {

class Parser {
public:
  Parser(const std::string &text, CallText &call) : rest(text), call(call) {}

  std::string parse() {
    call.name = readWord();
    if (call.name.empty())
      return fail("has no name at its start");
    if (accept('(') && !accept(')')) {
      do
        readArgument();
      while (fault.empty() && accept(','));
      if (!accept(')'))
        fail("lacks ')' or ',' before " + describeRest());
    }
    skipSpace();
    return rest.empty() ? fault : fail("has '" + std::string(rest) + "' behind it");
  }

private:
  /// The first fault is kept.
  std::string fail(std::string what) {
    if (fault.empty())
      fault = std::move(what);
    return fault;
  }

  std::string describeRest() const {
    return rest.empty() ? "the end" : "'" + std::string(rest) + "'";
  }

  void skipSpace() { rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size())); }

  bool accept(char c) {
    skipSpace();
    if (!rest.starts_with(c))
      return false;
    rest.remove_prefix(1);
    return true;
  }

  std::string readWord() {
    if (accept('\'')) {
      size_t end = rest.find('\'');
      std::string word(rest.substr(0, end));
      if (end == std::string_view::npos)
        fail("lacks the second ' of '" + word);
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      return word;
    }
    bool isList = rest.starts_with('[');
    size_t end = isList ? rest.find(']') : rest.find_first_of(" \t(),='");
    if (isList && end == std::string_view::npos)
      fail("lacks the ] of '" + std::string(rest) + "'");
    end = end == std::string_view::npos ? rest.size() : end + (isList ? 1 : 0);
    std::string word(rest.substr(0, end));
    rest.remove_prefix(end);
    return word;
  }

  void readArgument() {
    std::string word = readWord();
    if (word.empty()) {
      fail("lacks an argument before " + describeRest());
    } else if (!accept('=')) {
      if (!call.settings.empty())
        fail("has '" + word + "' without '=' behind a setting");
      call.arguments.push_back(word);
    } else {
      if (std::ranges::count(call.settings, word, &std::pair<std::string, std::string>::first))
        fail("has " + word + " twice");
      call.settings.emplace_back(word, readWord());
      if (call.settings.back().second.empty())
        fail("has no value behind " + word + "=");
    }
  }

  std::string_view rest;
  CallText &call;
  std::string fault;
};

template <typename Number> std::optional<Number> parseWhole(const std::string &word) {
  Number value{};
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size())
    return std::nullopt;
  return value;
}

} // namespace

std::string CallText::parse(const std::string &text) {
  *this = {};
  return Parser(text, *this).parse();
}

std::optional<double> gridloom::parseNumber(const std::string &word) {
  std::optional<double> value = parseWhole<double>(word);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<int64_t> gridloom::parseInteger(const std::string &word) {
  return parseWhole<int64_t>(word);
}
