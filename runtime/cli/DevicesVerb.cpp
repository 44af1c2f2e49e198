//===- DevicesVerb.cpp - gridloom devices ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/comm/Registry.h"
#include "runtime/device/Registry.h"
#include "support/OutputFormat.h"

#include <CLI/CLI.hpp>

using namespace gridloom;
using namespace gridloom::rt;

static const char *const examples = R"(
Examples:
  gridloom devices
      the CPU and its level (compile --cpu-arch), each GPU and its chip (compile --target
      cuda:sm_90), the driver and libraries that plans for GPUs open; see docs/gpu.md
  GRIDLOOM_NCCL=/opt/nccl/lib/libnccl.so.2 gridloom devices
      with a library from elsewhere: GRIDLOOM_CUDA_DRIVER, GRIDLOOM_CUBLASLT, GRIDLOOM_CUDNN and
      GRIDLOOM_NCCL name files)";

static int listDevices(const OutputFormat &format) {
  Document document;
  document.addTable("devices", {"device", "name", "level", "cores", "memory", "free"});
  for (const DeviceKind *kind : getDeviceKinds()) {
    DeviceInventory inventory = kind->takeInventory();
    for (const DeviceInventory::Row &row : inventory.devices)
      document.addRow({row.device, row.model, row.level,
                       row.cores ? Cell(*row.cores) : Cell(nullptr), bytesCell(row.bytes),
                       row.freeBytes ? bytesCell(*row.freeBytes) : Cell(nullptr)});
    for (const auto &[name, value] : inventory.fields)
      document.addField(name, value);
  }
  for (const TransportKind *kind : getTransportKinds())
    if (std::string library = kind->findLibrary(); !library.empty())
      document.addField(kind->getName(), library);
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
