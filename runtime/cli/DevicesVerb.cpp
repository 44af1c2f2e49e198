//===- DevicesVerb.cpp - gridloom devices ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/cli/OutputFormat.h"
#include "runtime/comm/nccl/NcclLibrary.h"
#include "runtime/core/Error.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "runtime/device/cuda/CudaDevice.h"

#include <CLI/CLI.hpp>

#include <fstream>
#include <functional>
#include <iostream>
#include <unistd.h>

using namespace gridloom::rt;

static const char *const examples = R"(
Examples:
  gridloom devices
      the CPU and its level (compile --cpu-arch), each GPU and its chip (compile --target
      cuda:sm_90), the driver and libraries that plans for GPUs open; see docs/gpu.md
  GRIDLOOM_NCCL=/opt/nccl/lib/libnccl.so.2 gridloom devices
      with a library from elsewhere: GRIDLOOM_CUDA_DRIVER, GRIDLOOM_CUBLASLT, GRIDLOOM_CUDNN and
      GRIDLOOM_NCCL name files)";

static std::string readCpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

/// The highest level of the x86-64 psABI that this CPU has.
static std::string getCpuLevel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4"))
    return "x86-64-v4";
  if (__builtin_cpu_supports("x86-64-v3"))
    return "x86-64-v3";
  return __builtin_cpu_supports("x86-64-v2") ? "x86-64-v2" : "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

/// What a CUDA library here says its version is, or "missing".
static std::string findLibrary(const char *variable, std::initializer_list<std::string> names,
                               const std::function<std::string(const DynamicLibrary &)> &read) {
  try {
    if (std::string given = getEnvironment(variable, ""); !given.empty())
      return read(DynamicLibrary({given}, "it is named by a variable"));
    return read(DynamicLibrary(names, "it is optional"));
  } catch (const Error &) {
    return "missing";
  }
}

/// `call` returns 10000 * major + 100 * minor + patch.
static std::string readVersion(const DynamicLibrary &library, const char *call) {
  size_t (*getVersion)() = nullptr;
  if (!library.find(getVersion, call))
    return "found";
  size_t version = getVersion();
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

static std::string findNccl() {
  try {
    return formatNcclVersion(NcclLibrary().getVersionCode());
  } catch (const Error &) {
    return "missing";
  }
}

static void addLibraries(Document &document) {
  document.addField("nccl", findNccl());
  document.addField("cublaslt",
                    findLibrary("GRIDLOOM_CUBLASLT", {"libcublasLt.so.13", "libcublasLt.so.12"},
                                [](const DynamicLibrary &library) {
                                  return readVersion(library, "cublasLtGetVersion");
                                }));
  document.addField(
      "cudnn", findLibrary("GRIDLOOM_CUDNN", {"libcudnn.so.9"}, [](const DynamicLibrary &library) {
        return readVersion(library, "cudnnGetVersion");
      }));
}

static int listDevices(const OutputFormat &format) {
  Document document;
  document.addTable("devices", {"device", "name", "level", "cores", "memory", "free"});
  uint64_t memory = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  document.addRow(
      {"cpu", readCpuName(), getCpuLevel(), getNumUsableCores(), bytesCell(memory), nullptr});
  int driver = 0;
  try {
    for (int ordinal = 0;; ++ordinal) {
      CudaDevice gpu(ordinal);
      const CudaContext &context = *gpu.getContext();
      DeviceMemory own = gpu.getMemory().value_or(DeviceMemory());
      document.addRow({"cuda:" + std::to_string(ordinal), context.getModel(),
                       "sm_" + std::to_string(context.getArchitecture()), nullptr,
                       bytesCell(own.total), bytesCell(own.free)});
      driver = context.use().getVersion();
    }
  } catch (const Error &error) {
    if (driver == 0)
      document.addField("no_gpu", std::string(error.what()));
  }
  if (driver)
    document.addField("driver", "CUDA " + cuda::formatVersion(driver));
  addLibraries(document);
  format.write(document);
  return 0;
}

Verb gridloom::rt::addDevices(CLI::App &app) {
  auto format = std::make_shared<OutputFormat>();
  CLI::App *verb = app.add_subcommand("devices", "List the devices of this machine");
  verb->footer(examples);
  format->addOptions(*verb);
  return {verb, [format] { return listDevices(*format); }};
}
