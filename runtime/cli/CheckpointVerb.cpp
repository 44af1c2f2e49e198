//===- CheckpointVerb.cpp - gridloom checkpoint ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/arrays/Values.h"
#include "runtime/core/Error.h"
#include "runtime/core/Files.h"
#include "runtime/core/OnnxRewriter.h"
#include "runtime/core/Plan.h"
#include "runtime/core/SafeTensors.h"
#include "runtime/train/Checkpoint.h"
#include "support/FileSwap.h"
#include "support/OutputFormat.h"
#include "support/Sha256.h"
#include "support/Text.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

static const char *const overview = R"(
FOLDER is a checkpoint, or a folder of a run's, of which the latest is taken. A checkpoint is
states.safetensors, every state's whole value by its name, and manifest.json: the step, the place in
the data, each state's role, and the SHA-256 of the file. Nothing of it depends on the mesh.)";

static const char *const inspectExamples = R"(
Every byte is checked against the SHA-256 in the manifest. Roles: a parameter is a weight of the
model; a slot, PARAMETER/SLOT, is what the optimizer keeps of it; 'run' concerns all of them. 'sum'
adds up a state's elements in f64.

Examples:
  gridloom checkpoint inspect checkpoints
  gridloom checkpoint inspect checkpoints/step-0000000100 --json)";

static const char *const exportExamples = R"(
Examples:
  gridloom checkpoint export checkpoints --plan model.plan -o trained.onnx
      the model that the plan was compiled from, with the trained weights
  gridloom checkpoint export checkpoints --model model.onnx -o trained.onnx
      the same from the model itself; nothing but the weights' values differs between the two files
  gridloom checkpoint export checkpoints -o trained.safetensors
      the parameters alone
  gridloom checkpoint export checkpoints --plan model.plan -o trained.safetensors
      all of the model's weights, also those that were not trained: for 'gridloom run --weights'
A model with external data gets a file of its own for it, trained.onnx.data.)";

namespace {

struct CheckpointSettings {
  std::string folder;
  OutputFormat format;
  std::string output, model, plan;
  bool force = false;
};

/// Number of elements and bytes of states of one kind.
struct Total {
  int64_t values = 0;
  uint64_t bytes = 0;
  void add(const HostArray &array) {
    values += array.getNumElements();
    bytes += array.getNumBytes();
  }
};

} // namespace

static double sumElements(const HostArray &array) {
  double sum = 0;
  for (int64_t i = 0; i < array.getNumElements(); ++i)
    sum += getElement(array, i);
  return sum;
}

static void addProgress(Document &document, const fs::path &folder,
                        const TrainingProgress &progress) {
  document.addField("checkpoint", folder.string());
  document.addField("step", progress.step);
  if (progress.numSamples > 0)
    document.addField("epoch", progress.cursor / progress.numSamples);
  document.addField("cursor", progress.cursor);
  document.addField("samples", progress.numSamples);
  document.addField("seed", progress.seed);
}

static void addStates(Document &document, const Checkpoint &checkpoint) {
  Total parameters, others;
  const StateRoles &roles = checkpoint.roles;
  for (const auto &[name, array] : checkpoint.states)
    (roles.at(name) == StateRole::Parameter ? parameters : others).add(array);
  document.addField("parameter_values", countCell(parameters.values));
  document.addField("parameter_bytes", bytesCell(parameters.bytes));
  document.addField("other_bytes", bytesCell(others.bytes));
  document.addTable("states", {"state", "role", "slot", "type", "shape", "bytes", "sum"});
  for (const auto &[name, array] : checkpoint.states) {
    double sum = sumElements(array);
    char text[32];
    snprintf(text, sizeof text, "%.6g", sum);
    document.addRow({name, nameOf(roles.at(name)), getSlot(roles, name), nameOf(array.getType()),
                     Cell(array.getShape(), formatShape(array.getShape())),
                     bytesCell(array.getNumBytes()), Cell(sum, text)});
  }
}

static int inspectCheckpoint(const CheckpointSettings &settings) {
  fs::path folder = findCheckpoint(settings.folder);
  Checkpoint checkpoint = Checkpoint::read(folder);
  Document document;
  addProgress(document, folder, checkpoint.progress);
  addStates(document, checkpoint);
  settings.format.write(document);
  return 0;
}

/// The model that the plan was compiled from; throws if it has changed, or if the output is to be
/// in the plan.
static fs::path findModel(const CheckpointSettings &settings) {
  const std::string &folder = settings.plan;
  std::shared_ptr<const Plan> plan = Plan::load(folder, {.requireTarget = false});
  plan->requireOutside("--output", settings.output);
  const ModelInfo &model = plan->getModel();
  std::string digest = sha256(MappedFile::open(model.path)->getBytes());
  if (digest != model.sha256)
    throw Error(ErrorCode::InvalidArgument,
                model.path.lexically_normal().string() + " has SHA-256 " + digest + ", " + folder +
                    " was compiled from " + model.sha256 + "; give the model with --model");
  return model.path.lexically_normal();
}

static void exportModel(const CheckpointSettings &settings,
                        const std::map<std::string, HostArray> &parameters,
                        const std::string &model) {
  RewrittenModel written = rewriteModel(model, parameters, settings.output, settings.force);
  std::cout << settings.output << ": " << formatBytes(written.bytes, "B") << ", " << model
            << " with " << parameters.size() << " trained weights\n";
  if (!written.data.empty())
    std::cout << written.data.string() << ": " << formatBytes(written.dataBytes, "B")
              << ", its external data\n";
}

static void exportWeights(const CheckpointSettings &settings,
                          const std::map<std::string, HostArray> &parameters,
                          const std::string &model) {
  std::error_code error;
  if (!settings.force && fs::exists(fs::symlink_status(settings.output, error)))
    throw Error(ErrorCode::InvalidArgument,
                settings.output + " exists; choose another name, or --force to replace it");
  std::map<std::string, HostArray> weights = parameters;
  if (!model.empty())
    weights.merge(readInitializers(model)); // keeps the checkpoint's values
  static const char *const reserved = "__metadata__";
  if (weights.contains(reserved))
    throw Error(ErrorCode::InvalidArgument,
                std::string("a weight is called '") + reserved +
                    "', which .safetensors keeps for itself; export an .onnx");
  const SafeTensorsParts contents = layOutSafeTensors(weights);
  if (std::string reason = replaceFile(settings.output, contents.getAll()); !reason.empty())
    throw Error(ErrorCode::InvalidArgument, settings.output + " cannot be written: " + reason);
  std::cout << settings.output << ": " << formatBytes(contents.getNumBytes(), "B") << ", "
            << parameters.size() << " trained weights";
  if (weights.size() > parameters.size())
    std::cout << " and " << weights.size() - parameters.size() << " of " << model;
  std::cout << "\n";
}

/// Refuses to write into a checkpoint's folder, where a file would be taken for a part of it.
static void requireOutside(const fs::path &given, const fs::path &checkpoint) {
  std::error_code error;
  fs::path inner = fs::canonical(checkpoint, error), output = fs::absolute(given, error);
  std::vector<fs::path> folders = {inner};
  for (int64_t step : listCheckpoints(inner.parent_path()))
    folders.push_back(getCheckpointFolder(inner.parent_path(), step));
  // Check the path itself and, if it is a link, its target.
  for (const fs::path &path :
       {fs::weakly_canonical(output.parent_path(), error) / output.filename(),
        fs::weakly_canonical(output, error)})
    for (const fs::path &folder : folders)
      if (std::ranges::mismatch(folder, path).in1 == folder.end())
        throw Error(ErrorCode::InvalidArgument, given.string() + " is inside of the checkpoint " +
                                                    folder.string() +
                                                    ", which stays as it is; choose another name");
}

static int exportCheckpoint(const CheckpointSettings &settings) {
  fs::path folder = findCheckpoint(settings.folder);
  requireOutside(settings.output, folder);
  std::map<std::string, HostArray> parameters = Checkpoint::read(folder).getParameters();
  if (parameters.empty())
    throw Error(ErrorCode::InvalidArgument, folder.string() + " has no parameters to export");
  std::string model = settings.model;
  if (!settings.plan.empty())
    model = findModel(settings).string();
  if (!model.empty())
    requireWeights(model, parameters, "the checkpoint");
  if (fs::path(settings.output).extension() == ".onnx")
    exportModel(settings, parameters, model);
  else
    exportWeights(settings, parameters, model);
  return 0;
}

static void checkExport(const CheckpointSettings &settings) {
  std::string extension = fs::path(settings.output).extension();
  if (extension != ".onnx" && extension != ".safetensors")
    throw CLI::ValidationError("-o " + settings.output + " is neither .onnx nor .safetensors");
  if (extension == ".onnx" && settings.model.empty() && settings.plan.empty())
    throw CLI::ValidationError("an .onnx needs the model that was trained: --model model.onnx, or "
                               "--plan model.plan, which names it");
}

Verb gridloom::rt::addCheckpoint(CLI::App &app) {
  auto settings = std::make_shared<CheckpointSettings>();
  CLI::App *verb = app.add_subcommand("checkpoint", "Show or export what a training run saved");
  verb->require_subcommand(1);
  verb->footer(overview);

  CLI::App *inspect = verb->add_subcommand("inspect", "Check a checkpoint and show its states");
  inspect->footer(inspectExamples);
  inspect->add_option("folder", settings->folder, "a checkpoint, or a folder of them")->required();
  settings->format.addOptions(*inspect);

  CLI::App *exporting =
      verb->add_subcommand("export", "Write trained weights as .onnx or .safetensors");
  exporting->footer(exportExamples);
  exporting->add_option("folder", settings->folder, "a checkpoint, or a folder of them")
      ->required();
  exporting->add_option("-o,--output", settings->output, "trained.onnx or trained.safetensors")
      ->type_name("FILE")
      ->check(notEmpty())
      ->required();
  auto *model = exporting->add_option("--model", settings->model, "the ONNX file that was trained")
                    ->type_name("FILE")
                    ->check(notEmpty());
  exporting->add_option("--plan", settings->plan, "a plan of it, which names that file")
      ->type_name("FOLDER")
      ->check(notEmpty())
      ->excludes(model);
  exporting->add_flag("--force", settings->force, "replace files that exist");
  exporting->parse_complete_callback([settings] { checkExport(*settings); });

  return {verb, [settings, inspect] {
            return inspect->parsed() ? inspectCheckpoint(*settings) : exportCheckpoint(*settings);
          }};
}
