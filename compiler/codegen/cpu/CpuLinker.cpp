//===- CpuLinker.cpp - objects to shared objects --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Links with lld in this process. The object is linked against empty libraries with the names of
// libm and libc, so that it lists them as needed although the machine may lack files to link with.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/WriteFile.h"
#include "compiler/codegen/cpu/CpuLowering.h"
#include "support/TemporaryFolder.h"

#include "lld/Common/Driver.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>

LLD_HAS_DRIVER(elf)

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

namespace {

LogicalResult runLinker(Location loc, ArrayRef<std::string> arguments) {
  // lld keeps its state in globals.
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  SmallVector<const char *> words{"ld.lld"};
  for (const std::string &argument : arguments)
    words.push_back(argument.c_str());
  std::string output;
  llvm::raw_string_ostream stream(output);
  lld::DriverDef driver{lld::Gnu, &lld::elf::link};
  lld::Result result = lld::lldMain(words, llvm::nulls(), stream, driver);
  if (result.retCode != 0)
    return emitError(loc) << "linking the kernels failed: " << StringRef(output).trim();
  return success();
}

/// The object's undefined symbols.
FailureOr<SmallVector<std::string>> findUndefined(Location loc, StringRef object) {
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernels"));
  if (!file)
    return emitError(loc) << "the kernels' object is damaged: " << llvm::toString(file.takeError());
  SmallVector<std::string> names;
  for (const llvm::object::SymbolRef &symbol : (*file)->symbols()) {
    auto flags = symbol.getFlags();
    if (!flags)
      return emitError(loc) << llvm::toString(flags.takeError());
    if (!(*flags & llvm::object::SymbolRef::SF_Undefined))
      continue;
    auto name = symbol.getName();
    if (!name)
      return emitError(loc) << llvm::toString(name.takeError());
    if (!name->empty())
      names.push_back(name->str());
  }
  return names;
}

bool isFromLibc(StringRef name) {
  return llvm::is_contained({"memcpy", "memmove", "memset", "memcmp", "bcmp", "malloc", "free"},
                            name);
}

/// From exp2 on: functions that LLVM substitutes, such as for pow with a base of 2 or 10, or sin
/// and cos of one number.
bool isFromLibm(StringRef name) {
  static constexpr StringLiteral bases[] = {
      "exp",   "log",   "pow",   "erf",       "tanh", "floor", "ceil",   "trunc", "rint",
      "fmod",  "sin",   "cos",   "tan",       "asin", "acos",  "atan",   "sinh",  "cosh",
      "asinh", "acosh", "atanh", "roundeven", "sqrt", "fma",   "fmax",   "fmin",  "exp2",
      "exp10", "ldexp", "log2",  "log10",     "cbrt", "expm1", "sincos", "log1p"};
  return llvm::any_of(bases, [&](StringRef base) {
    StringRef suffix = name;
    return suffix.consume_front(base) && (suffix.empty() || suffix == "f");
  });
}

/// Conversions of f16 where the processor has none: compilers' own libraries have them.
bool isOfHalves(StringRef name) {
  return llvm::is_contained({"__extendhfsf2", "__truncsfhf2", "__truncdfhf2"}, name);
}

} // namespace

FailureOr<std::string> gridloom::codegen::linkSharedObject(Location loc, StringRef object) {
  FailureOr<SmallVector<std::string>> undefined = findUndefined(loc, object);
  if (failed(undefined))
    return failure();
  bool needsLibc = false, needsLibm = false;
  for (StringRef name : *undefined) {
    if (isOfHalves(name))
      return emitError(loc) << "f16 needs a processor that converts it; use --cpu-arch x86-64-v3 "
                               "or newer or, for a model of f32, --precision bf16 or f32";
    if (!isFromLibc(name) && !isFromLibm(name))
      return emitError(loc) << "kernels need the function '" << name
                            << "', which neither libm nor libc has";
    (isFromLibc(name) ? needsLibc : needsLibm) = true;
  }

  TemporaryFolder folder("gridloom-link");
  if (!folder.getError().empty())
    return emitError(loc) << folder.getError();
  std::string input = folder.file("kernels.o"), output = folder.file("kernels.so");
  if (failed(writeFile(loc, input, object)))
    return failure();
  SmallVector<std::string> arguments{
      "-shared", "-s", "--build-id=none", "-z", "now", "--no-as-needed", "-o", output, input};
  auto addNeeded = [&](StringRef library) -> LogicalResult {
    std::string empty = folder.file("empty.o"), path = folder.file(library.str());
    // An empty archive is valid input and, unlike an empty object, needs no assembler.
    if (failed(writeFile(loc, empty, "!<arch>\n")))
      return failure();
    arguments.push_back(path);
    return runLinker(loc,
                     {"-shared", "-m", "elf_x86_64", "-soname", library.str(), "-o", path, empty});
  };
  if ((needsLibm && failed(addNeeded("libm.so.6"))) ||
      (needsLibc && failed(addNeeded("libc.so.6"))) || failed(runLinker(loc, arguments)))
    return failure();
  auto buffer = llvm::MemoryBuffer::getFile(output);
  if (!buffer)
    return emitError(loc) << "cannot read " << output << ": " << buffer.getError().message();
  return (*buffer)->getBuffer().str();
}
