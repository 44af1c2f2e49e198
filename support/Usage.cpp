//===- Usage.cpp - command lines that cannot be understood ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Usage.h"

#include "support/Text.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <limits>
#include <numeric>

using namespace gridloom;

/// The edit distance: letters to insert, delete or replace (Wagner and Fischer 1974).
static size_t getDistance(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

std::string gridloom::suggest(const std::string &name, std::span<const std::string> known) {
  const std::string *best = nullptr;
  size_t least = std::max<size_t>(1, name.size() / 3) + 1;
  for (const std::string &candidate : known) {
    // "sched" is the beginning of "schedule".
    bool begins = name.size() >= 3 && candidate.starts_with(name);
    size_t distance = begins ? 1 : getDistance(name, candidate);
    if (distance < least) {
      least = distance;
      best = &candidate;
    }
  }
  return best ? "; did you mean '" + *best + "'?" : "";
}

/// The innermost verb that the command line names, and how it is called.
static std::pair<const CLI::App *, std::string> findVerb(const CLI::App &app, std::string call) {
  const CLI::App *verb = &app;
  while (!verb->get_subcommands().empty()) {
    verb = verb->get_subcommands().back();
    call += " " + verb->get_name();
  }
  return {verb, call};
}

/// Describes what CLI11 did not accept: an unknown option, or one argument too many.
static std::string describeExtra(const CLI::App &verb) {
  std::vector<std::string> extras = verb.remaining();
  auto option = std::find_if(extras.begin(), extras.end(), [](const std::string &text) {
    return text.size() > 1 && text.starts_with('-');
  });
  if (option == extras.end())
    return "'" + (extras.empty() ? "" : extras.front()) + "' is one argument too many";
  std::string name = option->substr(0, option->find('='));
  std::vector<std::string> known;
  for (const CLI::Option *candidate : verb.get_options())
    for (const std::string &spelled : candidate->get_lnames())
      known.push_back("--" + spelled);
  return "there is no option " + name + suggest(name, known);
}

/// "give one of inspect, export", for a verb that has others.
static std::string describeVerbs(const CLI::App &verb) {
  std::string names;
  for (const CLI::App *inner : verb.get_subcommands([](const CLI::App *) { return true; }))
    names += (names.empty() ? "" : ", ") + inner->get_name();
  return "give one of " + names;
}

CLI::Validator gridloom::notEmpty() {
  return CLI::Validator(
      [](std::string &text) { return text.empty() ? std::string("it is empty") : std::string(); },
      "");
}

CLI::Validator gridloom::numberWithin(double least, double most) {
  CLI::Validator range = CLI::Range(least, most);
  auto check = [range](std::string &text) {
    double number = 0;
    bool isNaN = CLI::detail::lexical_cast(text, number) && std::isnan(number);
    return isNaN ? "Value " + text + " is not a number" : range(text);
  };
  return CLI::Validator(check, range.get_description());
}

CLI::Validator gridloom::wholeNumberFrom(uint64_t least) {
  std::string from = std::to_string(least);
  auto check = [least, from](std::string &text) {
    uint64_t number = 0;
    errno = 0; // CLI11 takes what is too large as the largest number
    bool isWhole = CLI::detail::lexical_cast(text, number) && text.find('-') == std::string::npos;
    bool isTooLarge = errno == ERANGE;
    if (isWhole && !isTooLarge && number >= least)
      return std::string();
    return "Value " + text + " is not a whole number from " + from +
           (isTooLarge ? " to " + std::to_string(std::numeric_limits<uint64_t>::max()) : "");
  };
  return CLI::Validator(check, "from " + from);
}

std::string gridloom::describeUsageError(const CLI::App &app, const CLI::ParseError &error,
                                         const std::string &program) {
  auto [verb, call] = findVerb(app, program);
  bool isExtra = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  bool lacksVerb = error.what() == std::string("A subcommand is required");
  std::string line = isExtra     ? describeExtra(*verb)
                     : lacksVerb ? describeVerbs(*verb)
                                 : error.what();
  line.resize(line.find_last_not_of("\n ") + 1);
  if (line.size() > 1 && islower(static_cast<unsigned char>(line[1]))) // CLI11 begins sentences
    line[0] = static_cast<char>(tolower(line[0]));
  return makePrintable(line) + (line.ends_with('?') ? " see " : "; see ") + call + " --help";
}
