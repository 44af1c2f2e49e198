//===- OutputFormat.cpp - print documents ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/OutputFormat.h"
#include "support/Text.h"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <stdexcept>
#include <sys/ioctl.h>
#include <unistd.h>

using namespace gridloom;

void gridloom::prepareFiles() {
  std::signal(SIGXFSZ, SIG_IGN);
  int file = 0;
  do
    file = open("/dev/null", O_RDONLY);
  while (file >= 0 && file <= STDERR_FILENO);
  if (file >= 0)
    close(file);
}

std::string gridloom::tryFlushOutput() {
  errno = 0;
  std::cout.flush();
  bool failed = fflush(stdout) != 0 || ferror(stdout);
  if (!failed && std::cout)
    return "";
  std::string line = "standard output cannot be written";
  return errno ? line + ": " + strerror(errno) : line;
}

void gridloom::flushOutput() {
  if (std::string error = tryFlushOutput(); !error.empty())
    throw std::runtime_error(error);
}

/// Columns of the terminal at standard output; 0 if it is no terminal.
static size_t getTerminalWidth() {
  winsize size{};
  if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
    return 0;
  return size.ws_col;
}

void OutputFormat::addOptions(CLI::App &verb, const std::vector<std::string> &others) {
  std::vector<std::string> names{"text", "json"};
  names.insert(names.end(), others.begin(), others.end());
  auto *format = verb.add_option("--format", name, joinWithOr(names))
                     ->check(CLI::IsMember(names))
                     ->capture_default_str();
  verb.add_flag("--json", asJson, "the same as --format json")->excludes(format);
  verb.add_flag("--wide", isWide, "do not make tables fit the terminal");
}

bool OutputFormat::isJson() const { return asJson || name == "json"; }

void OutputFormat::write(const Document &document) const {
  document.write(std::cout, isJson(), isWide ? 0 : getTerminalWidth());
}
