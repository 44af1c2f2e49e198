//===- DevicesVerb.cpp - gridloom devices ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/cli/Document.h"
#include "runtime/core/Error.h"
#include "runtime/device/Device.h"
#include "runtime/device/cpu/ThreadPool.h"

#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <unistd.h>

using namespace gridloom::rt;

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

static int listDevices(bool asJson) {
  Document document;
  document.addTable("devices", {"device", "name", "level", "cores", "memory"});
  uint64_t memory = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  document.addRow({"cpu", readCpuName(), getCpuLevel(), getNumUsableCores(), bytesCell(memory)});
  std::string reason;
  for (int ordinal = 0; reason.empty(); ++ordinal)
    try {
      auto gpu = createCudaDevice(ordinal);
      document.addRow({"cuda:" + std::to_string(ordinal), gpu->getName(), "", nullptr, nullptr});
    } catch (const Error &error) {
      reason = error.what();
      if (ordinal == 0)
        document.addField("no_gpu", reason);
    }
  document.write(std::cout, asJson);
  return 0;
}

Verb gridloom::rt::addDevices(CLI::App &app) {
  auto format = std::make_shared<std::string>("text");
  CLI::App *verb = app.add_subcommand("devices", "List the devices of this machine");
  verb->add_option("--format", *format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  return {verb, [format] { return listDevices(*format == "json"); }};
}
