//===- DevicesVerb.cpp - gridloom devices ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/cli/Measure.h"
#include "runtime/comm/Registry.h"
#include "runtime/device/Registry.h"
#include "support/OutputFormat.h"
#include "support/Usage.h"

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
      GRIDLOOM_NCCL name files
  gridloom devices --measure -o cluster.json
      times kernels, matrix multiplications, convolutions and collectives of CPU ranks here, in
      about a minute (--quick: ten seconds), for gridloom compile --cluster cluster.json
  gridloom devices --measure -o cluster.json --ranks 4
      for plans of up to four ranks, also where the machine has fewer cores)";

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

namespace {
struct Settings {
  OutputFormat format;
  bool measures = false;
  MeasureSettings measurement;
};
} // namespace

static void addMeasureOptions(CLI::App &verb, Settings &settings) {
  MeasureSettings &measurement = settings.measurement;
  CLI::Option *measure =
      verb.add_flag("--measure", settings.measures,
                    "measure this machine, and write it as a cluster (docs/clusters.md)");
  CLI::Option *output = verb.add_option("-o,--output", measurement.output, "the file to write")
                            ->type_name("FILE")
                            ->check(notEmpty())
                            ->needs(measure);
  measure->needs(output);
  verb.add_option("--ranks", measurement.ranks,
                  "ranks of the cluster; default: one per core, from 2 to 16")
      ->check(CLI::Range(1, 256))
      ->needs(measure);
  verb.add_option("--device", measurement.device, "kind of devices to measure")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str()
      ->needs(measure);
  verb.add_flag("--quick", measurement.quick, "fewer sizes, f32 only, for about ten seconds")
      ->needs(measure);
  verb.add_flag("--force", measurement.force, "replace a file that exists")->needs(measure);
}

Verb gridloom::rt::addDevices(CLI::App &app) {
  auto settings = std::make_shared<Settings>();
  CLI::App *verb = app.add_subcommand("devices", "List the devices of this machine, or measure it");
  verb->footer(examples);
  settings->format.addOptions(*verb);
  addMeasureOptions(*verb, *settings);
  return {verb, [settings] {
            return settings->measures ? measureMachine(settings->measurement, settings->format)
                                      : listDevices(settings->format);
          }};
}
