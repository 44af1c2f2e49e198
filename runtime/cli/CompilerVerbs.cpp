//===- CompilerVerbs.cpp - verbs that need MLIR ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/core/Error.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <unistd.h>

using namespace gridloom::rt;

bool gridloom::rt::isCompilerVerb(const std::string &verb) {
  return verb == "compile" || verb == "check" || verb == "doctor" || verb == "plan" ||
         verb == "simulate";
}

bool gridloom::rt::inspectsModel(int argc, char **argv) {
  if (argc < 3 || std::string(argv[1]) != "inspect")
    return false;
  // Skip options' values, which may end in .onnx, too.
  static const std::set<std::string> valued{"-o", "--output", "--trace", "--phase", "--format"};
  for (int i = 2; i < argc; ++i)
    if (valued.contains(argv[i]))
      ++i;
    else if (argv[i][0] != '-' && std::filesystem::path(argv[i]).extension() == ".onnx")
      return true;
  return false;
}

bool gridloom::rt::plansAgain(int argc, char **argv) {
  if (argc < 3 || std::string(argv[1]) != "explain")
    return false;
  bool plans = false;
  for (int i = 2; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--help" || argument == "-h")
      return false;
    plans |= argument == "--alternatives" || argument == "--why-not" ||
             argument.rfind("--why-not=", 0) == 0;
  }
  return plans;
}

void gridloom::rt::execCompiler(char **argv) {
  std::error_code error;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string compiler = (self.parent_path() / "gridloom-compile").string();
  std::string verb = argv[1];
  argv[0] = compiler.data();
  execv(argv[0], argv);
  if (errno == ENOENT) {
    std::string name = "gridloom-compile";
    argv[0] = name.data();
    execvp(argv[0], argv);
  }
  if (errno == ENOENT)
    throw Error(ErrorCode::Unavailable,
                "'" + verb +
                    "' needs the compiler, and gridloom-compile is not installed: it is "
                    "neither in " +
                    self.parent_path().string() + " nor on PATH");
  throw Error(ErrorCode::Unavailable, compiler + " cannot be started: " + strerror(errno));
}
