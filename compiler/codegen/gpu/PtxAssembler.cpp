//===- PtxAssembler.cpp - PTX to cubins -----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/WriteFile.h"
#include "compiler/codegen/gpu/GpuLowering.h"
#include "support/TemporaryFolder.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

#include <chrono>
#include <csignal>
#include <cstring>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

/// The number before `unit` in a report such as "Used 32 registers, 4 bytes spill stores"; 0 if
/// none.
static int numberBefore(StringRef report, StringRef unit) {
  size_t at = report.find(unit);
  if (at == StringRef::npos)
    return 0;
  StringRef head = report.take_front(at).rtrim();
  StringRef digits = head.take_back(head.size() - head.find_last_not_of("0123456789") - 1);
  int value = 0;
  return digits.getAsInteger(10, value) ? 0 : value;
}

/// The sum of all numbers before `unit`.
static int sumBefore(StringRef report, StringRef unit) {
  int sum = 0;
  while (report.contains(unit)) {
    sum += numberBefore(report, unit);
    report = report.drop_front(report.find(unit) + unit.size());
  }
  return sum;
}

/// Reads a kernel's entry of the report, with spills of functions that were not inlined in it.
static void readReport(StringRef report, CompiledGpuKernel &kernel) {
  const std::string title = "Compiling entry function '";
  report = report.split(title + kernel.info.symbol + "'").second;
  report = report.take_front(report.find(title));
  kernel.registers = numberBefore(report, " registers");
  kernel.spillBytes =
      sumBefore(report, " bytes spill stores") + sumBefore(report, " bytes spill loads");
  kernel.sharedBytes = numberBefore(report, " bytes smem");
}

/// Runs a program to its end and sets the milliseconds of processor time it took. Returns its exit
/// code; -1 with `error` set where it cannot be started or does not end in five minutes.
/// llvm::sys::ExecuteAndWait would limit it by an alarm of the process, which threads cannot share.
static int runProgram(StringRef program, ArrayRef<StringRef> arguments,
                      ArrayRef<std::optional<StringRef>> redirects, double &milliseconds,
                      std::string &error) {
  using Clock = std::chrono::steady_clock;
  bool isMissing = false;
  llvm::sys::ProcessInfo process =
      llvm::sys::ExecuteNoWait(program, arguments, std::nullopt, redirects,
                               /*MemoryLimit=*/0, &error, &isMissing);
  if (isMissing || process.Pid == llvm::sys::ProcessInfo::InvalidPid)
    return -1;
  int status = 0;
  rusage usage{};
  bool isLate = false;
  for (Clock::time_point end = Clock::now() + std::chrono::minutes(5);;) {
    pid_t ended = ::wait4(process.Pid, &status, isLate ? 0 : WNOHANG, &usage);
    if (ended == process.Pid)
      break;
    if (ended < 0 && errno != EINTR) {
      error = strerror(errno);
      return -1;
    }
    if (!isLate && Clock::now() > end) {
      isLate = true;
      ::kill(process.Pid, SIGKILL);
      continue;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (timeval time : {usage.ru_utime, usage.ru_stime})
    milliseconds +=
        static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) * 1e-3;
  if (isLate)
    error = "it did not end in five minutes";
  else if (WIFSIGNALED(status))
    error = "it was ended by signal " + std::to_string(WTERMSIG(status));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

LogicalResult gridloom::codegen::assemblePtx(Location loc, const std::string &ptxas,
                                             const std::string &chip,
                                             MutableArrayRef<CompiledGpuKernel> kernels) {
  TemporaryFolder folder("gridloom-ptxas");
  if (!folder.getError().empty())
    return emitError(loc) << folder.getError();
  std::string input = folder.file("kernels.ptx"), output = folder.file("kernels.cubin");
  std::string log = folder.file("log");
  if (failed(writeFile(loc, input, kernels.front().ptx)))
    return failure();
  std::string architecture = "-arch=" + chip;
  SmallVector<StringRef> arguments{ptxas, architecture, "-v", "-O3", input, "-o", output};
  SmallVector<std::optional<StringRef>> redirects{StringRef(), StringRef(log), StringRef(log)};
  std::string error;
  double milliseconds = 0;
  int code = runProgram(ptxas, arguments, redirects, milliseconds, error);
  auto report = llvm::MemoryBuffer::getFile(log);
  StringRef text = report ? (*report)->getBuffer().trim() : StringRef();
  if (code != 0) {
    InFlightDiagnostic diagnostic = emitError(loc) << "ptxas refuses a kernel among";
    for (const CompiledGpuKernel &kernel : kernels)
      diagnostic << " " << kernel.info.symbol;
    return diagnostic << ": " << (error.empty() ? text : StringRef(error));
  }
  auto cubin = llvm::MemoryBuffer::getFile(output);
  if (!cubin)
    return emitError(loc) << "cannot read " << output << ": " << cubin.getError().message();
  for (CompiledGpuKernel &kernel : kernels) {
    kernel.cubin = (*cubin)->getBuffer().str();
    readReport(text, kernel);
    kernel.milliseconds.cubin = milliseconds / static_cast<double>(kernels.size());
  }
  return success();
}
