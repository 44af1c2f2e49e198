//===- CompileMain.cpp - gridloom-compile: the verbs that need MLIR -------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Presets.h"
#include "compiler/driver/Options.h"
#include "compiler/driver/SimulationVerbs.h"
#include "compiler/driver/Ties.h"
#include "compiler/driver/WhyNotVerb.h"
#include "compiler/interpreter/CheckOptions.h"
#include "compiler/onnx/ModelSummary.h"
#include "passes/train/Clipping.h"
#include "passes/train/Initializers.h"
#include "passes/train/LossScale.h"
#include "passes/train/Losses.h"
#include "passes/train/Optimizers.h"
#include "passes/train/Parameters.h"
#include "support/OutputFormat.h"
#include "support/TemporaryFolder.h"
#include "support/Text.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <limits>
#include <unistd.h>

using namespace gridloom;

static const char *const compileExamples = R"(
Examples:
  gridloom compile model.onnx -o model.plan --dim batch=8 --mesh data=2,model=2
      split the batch over two, the weights over two: four devices
  gridloom compile model.onnx --dim batch=1,8 --devices 4
      let the planner choose among all meshes of four devices; two batch sizes in one plan
  gridloom compile model.onnx --dim batch=8 --devices 4 --measure-best 3
      run the three best candidates on this machine for a moment, and keep the fastest
  gridloom compile model.onnx --cluster HGX-H100x2 --target cuda:sm_90
      the same for two hosts of eight GPUs: NVLink inside, the network between them
  gridloom compile model.onnx --mesh pipe=3 --microbatches 6 --dim batch=12
      three pipeline stages, six micro-batches
  gridloom compile model.onnx --mesh model=4 --shard 'encoder.w=[{},{model}]'
      say how one weight is to be split; the rest follows
  gridloom compile model.onnx --strategy model.plan/plan.strategy --dim batch=16
      split as that plan is, or as the file says after a change by hand, at another size
  gridloom compile model.onnx --mesh model=4 --emit-onnx annotated.onnx
      write the shardings into the model; compiled again it needs no --mesh
  gridloom compile model.onnx --target cuda:sm_90 --precision bf16
      weights, activations and messages of 16 bits, sums in f32
  gridloom compile model.onnx --stop-after partition --dump-ir dumps
      read what the compiler does, phase by phase)";

static const char *const doctorExamples = R"(
Examples:
  gridloom doctor model.onnx
      the model's inputs; sizes that compile where it leaves them open, which of them go
      together and which the exporter has fixed; what cannot be compiled, node by node, or the
      command that compiles it
  gridloom doctor model.onnx --dim batch=8 --dim sequence=128
      the same with these sizes
  gridloom doctor model.onnx --devices 4 --state 'past_*=present_*'
      the same for four devices, with a cache that the session keeps
  gridloom doctor model.onnx --train
      what would be trained, by role, and what would not and why; what an export in evaluation
      mode has lost; weights that were shared; the command that compiles it to be trained
  gridloom doctor model.onnx --train --loss 'mse(y, target)' --param 'embed*: frozen'
      the same for this loss and without the embeddings)";

static const char *const planExamples = R"(
Examples:
  gridloom plan model.onnx --dim batch=8 --mesh data=2,model=2
      how long a step takes on four devices, what it waits for and how much memory each stage
      takes; no plan is written, and files of external weights need not be there
  gridloom plan model.onnx --dim batch=64 --cluster HGX-H100x2 --target cuda:sm_90
      the fastest way to use two hosts, on a machine that has neither
  gridloom plan model.onnx --dim batch=8 --mesh pipe=4 -o planned --trace pipeline.json
      planned/report.json for tools, planned/plan.strategy for compile --strategy; the
      simulated pipeline for https://ui.perfetto.dev)";

static const char *const simulateExamples = R"(
Examples:
  gridloom simulate model.plan
      what a step of a compiled plan takes, by the estimates it was compiled with
  gridloom simulate model.plan --cluster HGX-H200
      the same plan on other devices and links
  gridloom run model.plan --trace run.json && gridloom simulate model.plan --costs run.json
      the same with the times that steps took in a run)";

/// The options that `compile` and `doctor` share.
static void addTargetOptions(CLI::App &verb, CompileOptions &options) {
  verb.add_option(
          "--dim", options.dims,
          "bind a named dimension: NAME=SIZE, or NAME=SIZE,SIZE for one specialisation each")
      ->type_name("NAME=SIZE[,SIZE]")
      ->allow_extra_args(false);
  verb.add_option("--state", options.states,
                  "inputs that are outputs of the previous call, kept by the session: "
                  "'past_*=present_*'")
      ->type_name("INPUT=OUTPUT")
      ->allow_extra_args(false);
  verb.add_option("--mesh", options.mesh, "mesh axes in rank order, e.g. data=2,model=2,pipe=2")
      ->check(notEmpty());
  auto *devices = verb.add_option(
      "--devices", options.devices,
      "number and kind of devices, e.g. 4 or 8xH100-80GB, on as many of the hosts that they are "
      "usually in; times are estimated for the kind, code is generated for --target; a --mesh "
      "takes the first of them");
  devices->check(notEmpty());
  verb.add_option("--cluster", options.cluster,
                  "devices and links that times are estimated for: a file (docs/clusters.md), or " +
                      cluster::joinNames(cluster::listPresets()) +
                      ", with xN behind it for N hosts; a --mesh takes its first devices, without "
                      "one all are used")
      ->type_name("FILE|PRESET[xN]")
      ->excludes(devices)
      ->check(notEmpty());
  verb.add_option("--target", options.target.name, listTargets())->capture_default_str();
  verb.add_option(
          "--precision", options.precision,
          "precision of the model's f32 values: f32 (unchanged), tf32 (matrix multiplications "
          "on GPUs round their operands to 10 bits), bf16 or f16 (16-bit weights, "
          "activations and messages; sums, positions and the like stay f32, see --remarks)")
      ->check(CLI::IsMember({"f32", "tf32", "bf16", "f16"}))
      ->capture_default_str();
}

static void addTrainOptions(CLI::App &verb, CompileOptions &all) {
  TrainOptions &options = all.train;
  verb.add_flag("--train", options.isOn,
                "make a plan that trains the model: entries train_step, eval and main, with the "
                "weights as states (docs/training.md)");
  verb.add_option("--loss", options.losses,
                  std::string("what training makes smaller: ") + train::kLossGrammar)
      ->type_name("LOSS")
      ->allow_extra_args(false);
  verb.add_option("--metric", options.metrics,
                  std::string("what training and evaluation show besides: ") +
                      train::kMetricGrammar)
      ->type_name("METRIC")
      ->allow_extra_args(false);
  verb.add_option("--optimizer", options.optimizer,
                  "the rule of a step: " + train::getOptimizerGrammar())
      ->type_name("RULE")
      ->check(notEmpty());
  verb.add_option("--clip", options.clip,
                  std::string("limit of the gradients: ") + train::kClipGrammar)
      ->type_name("LIMIT")
      ->check(notEmpty());
  verb.add_option("--loss-scale", options.lossScale,
                  std::string("what the loss is multiplied by before it is differentiated, and "
                              "gradients are divided by: ") +
                      train::kLossScaleGrammar +
                      ". Default: dynamic with --precision f16, else off")
      ->type_name("SCALE")
      ->check(notEmpty());
  verb.add_option("--param", options.parameters,
                  std::string("settings of some weights: ") + train::kParameterGrammar)
      ->type_name("PATTERN: SETTINGS")
      ->allow_extra_args(false);
  verb.add_option("--tie", options.ties,
                  std::string("weights that are one parameter: ") + kTieGrammar)
      ->type_name("A=B")
      ->allow_extra_args(false);
  verb.add_option("--init", options.inits,
                  std::string("what some weights begin with, instead of the model's values: ") +
                      train::kInitGrammar)
      ->type_name("PATTERN: DISTRIBUTION")
      ->allow_extra_args(false);
  verb.add_option("--seed", options.seed,
                  "the seed of what --init draws, 0 by default; train --init-seed takes another "
                  "one. The order of samples has a seed of its own, train --seed");
  verb.add_option("--accumulate", options.accumulate,
                  "the same as --microbatches, with --train, which takes at most 64")
      ->check(CLI::Range(1, 64));
  verb.add_option("--zero", all.zero,
                  "split what training keeps over the axes of data parallelism: 1 the optimizer's "
                  "states, 2 the sums of micro-batches' gradients, too, 3 also the weights, which "
                  "are gathered where they are used")
      ->type_name("LEVEL")
      ->check(CLI::Range(1, 3));
  verb.add_option("--bucket-size", all.bucketSize,
                  "with --train, bytes of gradients that are added up over devices in one message, "
                  "which leaves as soon as the last of them is there, and of weights that --zero 3 "
                  "gathers in one; 0: each by itself; default 25MiB")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::Range(int64_t(0), std::numeric_limits<int64_t>::max()).description(""));
}

/// Further options that `compile` and `plan` share.
static void addStrategyOptions(CLI::App &verb, CompileOptions &options) {
  verb.add_option(
          "--gradients-of", options.gradientsOf,
          "add the gradients of the sum of an output's elements as outputs NAME.grad, by all "
          "float weights that it depends on")
      ->type_name("OUTPUT")
      ->check(notEmpty());
  verb.add_option("--with-respect-to", options.withRespectTo,
                  "differentiate by these weights and inputs instead; * stands for any text")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  addTrainOptions(verb, options);
  verb.add_option("--unroll", options.unroll, "unroll loops of at most this many iterations")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  verb.add_option(
          "--strategy", options.strategy,
          "auto, or dp (data), tp (tensor), sp (sequence, with tp) and pp (pipeline) "
          "joined by '+'; search has a solver split every operation over all axes but pipe, "
          "which has stages; FILE.strategy does as that file says "
          "(docs/strategy-files.md); "
          "random:SEED splits at random, for tests")
      ->capture_default_str();
  verb.add_flag_callback(
      "--no-seeds", [&options] { options.seeds = false; },
      "leave known strategies out of those that --strategy auto chooses from, so that "
      "searches remain, on a mesh that the planner chooses or on all axes of --mesh but "
      "pipe");
  verb.add_option("--shard", options.shard,
                  "sharding of an input, output, weight or node: NAME=[{axis,...},{},...]; "
                  "NAME=stored[...] is how it lies in memory, {unreduced:{axis}} last leaves a "
                  "partial sum")
      ->allow_extra_args(false);
  verb.add_option("--microbatches", options.microbatches,
                  "maximum number of micro-batches; the largest divisor of the batch up to it is "
                  "used; with "
                  "--train the parts in which a step computes its batch, one after another")
      ->check(CLI::Range(1, 1 << 20));
  verb.add_option(
          "--chunk-matmul", options.chunkMatmul,
          "cut matmuls beside a collective into this many chunks, so that one is sent while "
          "the next is computed; only where sizes divide")
      ->check(CLI::Range(2, 1024));
  verb.add_option("--memory-limit", options.memoryLimit,
                  "memory per device, e.g. 16GiB, for weights, states, activations, inputs and "
                  "outputs; libraries' workspaces and NCCL's buffers on GPUs come on top")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::Range(int64_t(1), std::numeric_limits<int64_t>::max()).description(""));
  verb.add_flag("--weigh-all", options.weighsAll,
                "weigh every candidate on the whole program, also where few of its layers tell "
                "that it is slower; the choice is the same");
  verb.add_option("--plan-time", options.planTime,
                  "seconds for the choice of a strategy: after that the best plan found so far is "
                  "taken, of which there is always one that fits; default: as long as it takes. "
                  "Ctrl-C does the same")
      ->type_name("S")
      ->check(numberWithin(0, 1e9));
  verb.add_option("--plan-work", options.planWork,
                  "steps for the choice of a strategy: a step is a candidate weighed or simulated, "
                  "or a round of a search; as many have the same result on any machine; default: "
                  "as many as it takes")
      ->type_name("N")
      ->check(CLI::Range(int64_t(1), std::numeric_limits<int64_t>::max()).description(""));
  verb.add_flag(
      "--certify", options.certifies,
      "also bound plans without micro-batches by a search on every mesh of up to 3 axes, which "
      "takes a second and more for each: the report says how far from the least the "
      "plan can be at most; the choice is the same");
  verb.add_option("--jobs", options.jobs,
                  "threads that weigh candidates, which the choice does not depend on; default: as "
                  "many as the machine has, at most 4")
      ->check(CLI::Range(1, 64));
  verb.add_flag_callback(
      "--no-cudnn", [&options] { options.target.cudnn = false; },
      "compute convolutions and attention on GPUs with matrix multiplications and "
      "kernels instead of cuDNN");
  verb.add_option("--cpu-arch", options.target.cpuArch,
                  "CPU to generate kernels for, by LLVM's name")
      ->check(notEmpty())
      ->capture_default_str();
  verb.add_option("--cuda-toolkit", options.target.toolkit,
                  "CUDA toolkit folder; default: $CUDA_HOME, else /usr/local/cuda")
      ->check(notEmpty());
  verb.add_option("--save-strategy", options.saveStrategy,
                  "file for what is decided about the split, as in the plan's plan.strategy: text "
                  "that --strategy reads again; its name ends in .strategy")
      ->type_name("FILE")
      ->check(notEmpty());
  verb.add_flag("--remarks", options.remarks,
                "print why values are split or not, and what is resharded");
}

static CLI::App *addCompile(CLI::App &app, CompileOptions &options) {
  CLI::App *verb = app.add_subcommand("compile", "Compile an ONNX model into a plan");
  verb->footer(compileExamples);
  verb->add_option("model", options.input, "the model (.onnx), or with --start-from a dump (.mlir)")
      ->required();
  verb->add_option("-o,--output", options.output,
                   "folder to write; default: the model's name with .plan")
      ->check(notEmpty());
  addTargetOptions(*verb, options);
  addStrategyOptions(*verb, options);
  verb->add_option("--measure-best", options.measureBest,
                   "compile the N candidates that are the fastest in the simulator, run each on "
                   "this machine for a moment, and keep the fastest; for the devices at hand")
      ->type_name("N")
      ->check(CLI::Range(2, 64));
  verb->add_option("--stop-after", options.stopAfter,
                   "phase to stop after: the program goes to --dump-ir or standard output")
      ->check(notEmpty());
  verb->add_option("--start-from", options.startFrom,
                   "phase to resume at, from a dump of the phase before it")
      ->check(notEmpty());
  verb->add_option("--dump-ir", options.dumpIr, "folder for one readable .mlir per phase")
      ->check(notEmpty());
  verb->add_option("--emit-onnx", options.emitOnnx,
                   "file for the model with the shardings as ONNX multi-device annotations, which "
                   "compile reads again")
      ->check(notEmpty());
  verb->add_flag("-q,--quiet", options.quiet, "print no summary");
  verb->add_flag("--force", options.force, "replace an output folder that is not a plan");
  return verb;
}

static CLI::App *addPlan(CLI::App &app, CompileOptions &options, OutcomeOptions &outcome) {
  CLI::App *verb = app.add_subcommand(
      "plan", "Decide how to split a model, and simulate it, without compiling it to the end");
  verb->footer(planExamples);
  verb->add_option("model", options.input, "the model (.onnx)")->required();
  addTargetOptions(*verb, options);
  addStrategyOptions(*verb, options);
  addOutcomeOptions(*verb, outcome, /*hasFolder=*/true);
  return verb;
}

static CLI::App *addSimulate(CLI::App &app, SimulateOptions &options, OutcomeOptions &outcome) {
  CLI::App *verb = app.add_subcommand("simulate", "Simulate a compiled plan");
  verb->footer(simulateExamples);
  verb->add_option("plan", options.input,
                   "a plan's folder, or a dump (.mlir) of the phase schedule or allocate")
      ->required();
  verb->add_option("--cluster", options.cluster,
                   "devices and links instead of those it was compiled for: a file "
                   "(docs/clusters.md), or " +
                       cluster::joinNames(cluster::listPresets()) +
                       ", with xN behind it for N hosts")
      ->type_name("FILE|PRESET[xN]")
      ->check(notEmpty());
  addOutcomeOptions(*verb, outcome, /*hasFolder=*/false);
  return verb;
}

static CLI::App *addCheck(CLI::App &app, CheckOptions &options) {
  CLI::App *verb =
      app.add_subcommand("check", "Show that the split program computes what the unsplit one does");
  addCheckOptions(*verb, options);
  return verb;
}

static int runVerb(int argc, char **argv) {
  CLI::App app("Gridloom's compiler");
  // `gridloom VERB` becomes this program, and users know it by that name.
  app.name(argc > 1 && argv[1][0] != '-' ? "gridloom" : "gridloom-compile");
  app.require_subcommand(0, 1);
  bool phases = false;
  app.add_flag("--list-phases", phases, "list the compiler's phases");
  CompileOptions compile, doctor, planned;
  SimulateOptions simulated;
  OutcomeOptions planOutcome, simulateOutcome;
  CheckOptions check;
  CLI::App *compileVerb = addCompile(app, compile);
  CLI::App *planVerb = addPlan(app, planned, planOutcome);
  CLI::App *simulateVerb = addSimulate(app, simulated, simulateOutcome);
  WhyNotOptions whyNot;
  CLI::App *explainVerb = addWhyNot(app, whyNot);
  CLI::App *checkVerb = addCheck(app, check);
  CLI::App *doctorVerb =
      app.add_subcommand("doctor", "Report whatever would stop a model from compiling");
  doctorVerb->footer(doctorExamples);
  doctorVerb->add_option("model", doctor.input, "the model (.onnx)")->required();
  addTargetOptions(*doctorVerb, doctor);
  addTrainOptions(*doctorVerb, doctor);
  std::string inspected;
  OutputFormat format;
  CLI::App *inspectVerb =
      app.add_subcommand("inspect", "Show an ONNX model's inputs, outputs, operators and weights");
  inspectVerb->add_option("model", inspected, "the model (.onnx)")->required();
  format.addOptions(*inspectVerb);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0)
      return app.exit(error);
    std::cerr << "error: " << describeUsageError(app, error) << "\n";
    return 2;
  }
  if (phases) {
    std::cout << listPhases();
    return 0;
  }
  // Without a terminal nobody waits for the plan: then the signal ends the program.
  compile.isInterruptible = planned.isInterruptible = ::isatty(STDERR_FILENO);
  if (*compileVerb)
    return runCompile(compile);
  PlanOutcome outcome;
  if ((*planVerb && !checkOutcome(planOutcome)) ||
      (*simulateVerb && !checkOutcome(simulateOutcome)))
    return 1;
  if (*planVerb) {
    int code = runPlan(planned, planOutcome.costs, outcome);
    return code ? code : showOutcome(outcome, planOutcome);
  }
  if (*simulateVerb) {
    simulated.costs = simulateOutcome.costs;
    int code = runSimulate(simulated, outcome);
    return code ? code : showOutcome(outcome, simulateOutcome);
  }
  if (*explainVerb)
    return runWhyNot(whyNot);
  check.compileUnsplit = [](const std::string &dump, const std::string &plan) {
    CompileOptions unsplit;
    unsplit.input = dump;
    unsplit.output = plan;
    unsplit.startFrom = "shard";
    unsplit.quiet = true;
    return runCompile(unsplit) == 0;
  };
  if (*checkVerb)
    return runCheck(check);
  if (*doctorVerb)
    return runDoctor(doctor);
  if (*inspectVerb) {
    Document document;
    if (std::string error = onnx_import::summarizeModel(inspected, document); !error.empty()) {
      std::cerr << "error: " << error << "\n";
      return 1;
    }
    format.write(document);
    return 0;
  }
  std::cout << app.help();
  return 2;
}

int main(int argc, char **argv) {
  prepareFiles();
  TemporaryFolder::removeOnSignals();
  int code = 1;
  try {
    code = runVerb(argc, argv);
  } catch (const std::exception &error) { // of the standard library; the compiler throws none
    std::cerr << "error: " << makePrintable(error.what()) << "\n";
  }
  if (code != 0)
    return code;
  // Printed text may be the result that was asked for. A failure to print the summary was only a
  // warning.
  if (std::string error = tryFlushOutput(); !error.empty()) {
    std::cerr << "error: " << error << "\n";
    return 1;
  }
  return 0;
}
