//===- Job.cpp - a plan, its ranks and its inputs -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Job.h"

#include "runtime/arrays/Generator.h"
#include "runtime/core/Error.h"
#include "runtime/core/PlanQueries.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>

using namespace gridloom;
using namespace gridloom::rt;

static Error usage(const std::string &text) { return {ErrorCode::InvalidArgument, text}; }

std::string gridloom::rt::formatMesh(const Mesh &mesh) {
  std::string text;
  for (const Mesh::Axis &axis : mesh.getAxes())
    text += (text.empty() ? "" : ",") + axis.name + "=" + std::to_string(axis.size);
  return text.empty() ? "one device" : text;
}

void gridloom::rt::addRankOptions(CLI::App &verb, JobSettings &settings) {
  verb.add_option("-n,--ranks", settings.ranks, "number of ranks")->check(CLI::Range(1, 1 << 20));
  verb.add_flag("--in-process", settings.inProcess, "ranks are threads of this process");
  verb.add_option("--timeout", settings.timeout,
                  "seconds without progress after which a rank gives up")
      ->check(numberWithin(0.001, 1e6))
      ->capture_default_str();
  std::vector<std::string> transports;
  std::string summaries;
  for (const TransportKind *kind : getTransportKinds()) {
    transports.push_back(kind->getName());
    summaries +=
        (summaries.empty() ? "" : ", ") + kind->getName() + " (" + kind->getSummary() + ")";
  }
  verb.add_option("--transport", settings.placement.transport,
                  summaries + "; default: by the target")
      ->check(CLI::IsMember(transports));
  verb.add_option("--device", settings.placement.gpu, "the GPU of all ranks; default: one each")
      ->check(CLI::Range(0, 1023));
  verb.add_flag("--copy-engines", settings.placement.copyEngines,
                "have NCCL gather with copy engines, within one NVLink domain");
}

void gridloom::rt::addPlanOptions(CLI::App &verb, JobSettings &settings) {
  verb.add_option("plan", settings.plan, "folder that 'gridloom compile' wrote")->required();
  addRankOptions(verb, settings);
  verb.add_option("--threads", settings.placement.threads,
                  "threads per rank; default: cores / ranks")
      ->check(CLI::Range(1, 4096));
  verb.add_option("--input", settings.inputs, std::string("value of an input: ") + kInputGrammar)
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  verb.add_option("--seed", settings.seed, "seed of the random inputs")
      ->check(wholeNumberFrom(0))
      ->capture_default_str();
  verb.add_option("--entry", settings.entry, "entry of the plan")->capture_default_str();
  verb.add_option("--dim,--dims", settings.dims,
                  "NAME=SIZE[,NAME=SIZE]: which specialisation, if the inputs do not determine it")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb.add_option("--weights", settings.weights,
                  "weights of another .onnx or .safetensors file of the same model, or of a "
                  "checkpoint's folder")
      ->check(notEmpty());
  verb.add_flag("--autotune", settings.autotune,
                "measure which of cuBLASLt's algorithms and cuDNN's engines are fastest, keep them "
                "in PLAN/autotune; they are used from the next load on");
  verb.add_flag("--check-indices", settings.checkIndices,
                "refuse inputs with indices out of range, as ONNX does; default: such an index "
                "takes the nearest one, or zeros where the table is split. Indices that the "
                "program computes are not checked");
  verb.add_flag("--no-graphs", settings.noGraphs,
                "submit steps one by one, not captured; on GPUs, not as CUDA graphs");
  verb.add_flag("-v,--verbose", settings.verbose, "print decisions and their reasons");
  verb.add_flag("--verify-model", settings.verifyModel,
                "check the model file's SHA-256 also where it is large and older than the plan; "
                "files of external data above 32 MiB are compared by samples, unless a signature "
                "is required");
  verb.add_option(
          "--require-signature", settings.requireSignature,
          "a public key: refuse a plan that 'gridloom sign' has not signed with its private "
          "key, or that was changed since; check all bytes of the model's files. May be "
          "repeated: one of the keys is enough")
      ->type_name("PUBLIC.pem")
      ->check(notEmpty())
      ->allow_extra_args(false);
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

static std::optional<World> findWorld(const JobSettings &settings) {
  std::optional<World> world = detectWorld(getProcessEnvironment());
  if (!world)
    return world;
  if (settings.ranks != 0 && settings.ranks != world->size)
    throw usage("-n says " + std::to_string(settings.ranks) + " ranks but " + world->source +
                " says " + std::to_string(world->size) + "; leave -n out or unset the variables");
  if (settings.inProcess && world->size > 1)
    throw usage("--in-process runs all ranks in one process, but " + world->source + " started " +
                std::to_string(world->size) + "; use one of the two");
  return world;
}

void gridloom::rt::preparePlacement(JobSettings &settings, const std::string &kind, int ranks,
                                    const std::string &subject) {
  settings.placement.limits.deadline = std::chrono::milliseconds(int64_t(settings.timeout * 1000));
  const DeviceKind *device = findDeviceKind(kind);
  if (settings.placement.threads && device && !device->hasThreads())
    throw usage("--threads is for CPU ranks, but " + subject + " is for " + device->getPlural());
  std::optional<World> world = findWorld(settings);
  settings.placement.prepare(kind, ranks, !world || world->size == 1, subject);
  settings.inProcess |= settings.placement.kind->sharesDevice();
}

std::string gridloom::rt::describeLoopback(const JobSettings &settings, int ranks) {
  if (!settings.placement.kind->sharesDevice())
    return "";
  return settings.placement.transport + ": " + std::to_string(ranks) + " logical ranks on one GPU";
}

int gridloom::rt::getGivenRanks(const JobSettings &settings) {
  std::optional<World> world = findWorld(settings);
  return world ? world->size : settings.ranks;
}

void gridloom::rt::beforeJoining(const JobSettings &settings, const std::function<void()> &work) {
  try {
    work();
  } catch (const std::exception &error) {
    std::optional<World> world;
    try {
      world = findWorld(settings);
    } catch (const Error &) {
      world.reset(); // the environment is wrong, or contradicts the options: no rank joins
    }
    if (world && world->size > 1)
      throw JoinFailure(
          *world, error.what(),
          std::chrono::milliseconds(int64_t(std::min(settings.timeout, 10.0) * 1000)));
    throw;
  }
}

int gridloom::rt::runRanks(const JobSettings &settings, int ranks, const RankMain &main) {
  LaunchOptions options;
  options.transport.deadline = std::chrono::milliseconds(int64_t(settings.timeout * 1000));
  options.ranksHandleSignals = settings.ranksHandleSignals;
  std::optional<World> world = findWorld(settings);
  if (world && world->size > 1) {
    if (world->rank == 0)
      fprintf(stderr, "%d ranks, started by %s\n", world->size, world->source.c_str());
    bool isCause = true;
    try {
      runRank(*world, options, main, isCause);
    } catch (const Error &) {
      if (isCause)
        throw;
      return 1; // another rank reports the error
    }
    return 0;
  }
  if (!settings.inProcess && ranks > 1)
    return launchRanks(ranks, options, main);
  runThreads(ranks, options, main);
  return 0;
}

//===----------------------------------------------------------------------===//
// Job
//===----------------------------------------------------------------------===//

static std::pair<std::string, std::string>
splitAtEquals(const std::string &text, const std::string &option, const std::string &form) {
  size_t at = text.find('=');
  if (at == 0 || at == std::string::npos || at + 1 == text.size())
    throw usage(option + " '" + text + "' is not " + form);
  return {text.substr(0, at), text.substr(at + 1)};
}

std::map<std::string, std::string>
gridloom::rt::readInputs(const std::vector<std::string> &inputs) {
  std::map<std::string, std::string> specs;
  for (const std::string &text : inputs) {
    auto [name, value] = splitAtEquals(text, "--input", "NAME=VALUE");
    if (!specs.emplace(name, value).second)
      throw usage("input " + name + " is given twice");
  }
  return specs;
}

std::map<std::string, int64_t> gridloom::rt::readDims(const std::vector<std::string> &given) {
  std::map<std::string, int64_t> dims;
  for (const std::string &text : given) {
    auto [name, value] = splitAtEquals(text, "--dim", "NAME=SIZE");
    int64_t size = 0;
    auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (problem != std::errc() || end != value.data() + value.size() || size < 1)
      throw usage("--dim '" + text + "' is not NAME=SIZE");
    dims[name] = size;
  }
  return dims;
}

std::shared_ptr<const Plan> gridloom::rt::loadPlan(JobSettings &settings) {
  PlanOptions options;
  options.requireSignature.assign(settings.requireSignature.begin(),
                                  settings.requireSignature.end());
  std::shared_ptr<const Plan> plan = Plan::load(settings.plan, options);
  int ranks = plan->getMesh().getNumRanks();
  if (int given = getGivenRanks(settings); given != 0 && given != ranks) {
    std::optional<World> world = findWorld(settings);
    throw usage(settings.plan + " is for " + std::to_string(ranks) +
                (ranks == 1 ? " rank (" : " ranks (") + formatMesh(plan->getMesh()) + ") but " +
                (world ? world->source : "-n") + " says " + std::to_string(given) +
                "; compile it for that many, or start as many as it is for");
  }
  preparePlacement(settings, plan->getTargetKind(), ranks, settings.plan);
  return plan;
}

Job::Job(JobSettings given, bool fillInputs)
    : settings(std::move(given)), dims(readDims(settings.dims)),
      specs(readInputs(settings.inputs)) {
  plan = loadPlan(settings);
  chooseSpecialisation(plan->getEntry(settings.entry));
  makeInputs(fillInputs);
}

static std::string describeDims(const std::map<std::string, int64_t> &dims) {
  return dims.empty() ? "no named dimensions" : formatDims(dims);
}

/// A name that is no input's says nothing of which specialisation is meant.
void Job::requireKnown(const Entry &entry) const {
  for (const auto &[name, spec] : specs) {
    std::string wanted;
    bool isKnown = false;
    for (const EntrySpecialisation &candidate : entry.specialisations)
      isKnown |= candidate.findInput(name) != nullptr;
    if (isKnown)
      continue;
    if (plan->hasState(name))
      throw usage("'" + name +
                  "' is a state, which the plan keeps from call to call, and no input");
    for (const Argument &argument : entry.specialisations.front().inputs)
      wanted += (wanted.empty() ? "" : ", ") + argument.describe();
    throw usage("there is no input " + name + "; the plan takes " + wanted);
  }
}

/// The input that fits no specialisation, by a dimension that has one size in all.
std::string Job::findMisfit(const Entry &entry) const {
  for (const auto &[name, array] : inputs)
    if (std::string misfit = entry.findMisfit(name, array.getShape()); !misfit.empty())
      return misfit;
  return "";
}

void Job::chooseSpecialisation(const Entry &entry) {
  for (const auto &[name, spec] : specs) {
    bool known = std::any_of(entry.specialisations.begin(), entry.specialisations.end(),
                             [&](const auto &s) { return s.findInput(name); });
    if (known && !Generator::parse(spec))
      inputs[name] = readInput(spec, &files);
  }
  auto fits = [&](const EntrySpecialisation &candidate) {
    if (!candidate.binds(dims))
      return false;
    for (const auto &[name, array] : inputs)
      if (const Argument *input = candidate.findInput(name);
          input && input->shape != array.getShape())
        return false;
    return true;
  };
  requireKnown(entry);
  std::vector<const EntrySpecialisation *> fitting;
  std::string all;
  for (const EntrySpecialisation &candidate : entry.specialisations) {
    all += (all.empty() ? "" : "; ") + describeDims(candidate.dims);
    if (fits(candidate))
      fitting.push_back(&candidate);
  }
  if (fitting.size() > 1)
    throw usage("entry " + entry.name + " has several specialisations that fit: " + all +
                "; choose with --dim");
  if (fitting.empty() && entry.specialisations.size() == 1 && dims.empty())
    specialisation = &entry.specialisations.front(); // makeInputs reports which shape differs
  else if (std::string misfit = fitting.empty() ? findMisfit(entry) : ""; !misfit.empty())
    throw usage(misfit);
  else if (fitting.empty())
    throw usage("no specialisation of entry " + entry.name + " fits" +
                (dims.empty() ? "" : " --dim " + formatDims(dims)) +
                (!dims.empty() && !inputs.empty() ? " and" : "") +
                (inputs.empty() ? "" : " the shapes of the inputs") + "; there are: " + all);
  else
    specialisation = fitting.front();
  dims = specialisation->dims;
}

void Job::makeInputs(bool fillInputs) {
  std::string wanted, missing;
  for (const Argument &argument : specialisation->inputs)
    wanted += (wanted.empty() ? "" : ", ") + argument.describe();
  for (const auto &[name, spec] : specs)
    if (!specialisation->findInput(name))
      throw usage("there is no input " + name + "; the plan takes " + wanted);

  bool isRandom = false;
  for (const Argument &argument : specialisation->inputs) {
    auto spec = specs.find(argument.name);
    Generator generator{Generator::Constant, 1, 0};
    if (auto file = inputs.find(argument.name); file != inputs.end()) {
      file->second =
          adaptInput(file->second, spec->second, argument.name, argument.type, argument.shape);
      continue;
    }
    if (spec != specs.end()) {
      generator = *Generator::parse(spec->second);
    } else if (!fillInputs) {
      missing += (missing.empty() ? "" : ", ") + argument.name;
      continue;
    } else if (isFloat(argument.type)) {
      generator = {Generator::Normal, 0, 1};
    } // ones are valid indices and masks
    isRandom |= generator.isRandom();
    inputs[argument.name] =
        generate(generator, argument.name, argument.type, argument.shape, settings.seed);
  }
  if (!missing.empty())
    throw usage("missing --input " + missing + "; the plan takes " + wanted);
  if (settings.seed != 0 && !isRandom)
    throw usage("--seed has no effect: no input is random");
}

JobRank gridloom::rt::startRank(const JobSettings &settings,
                                const std::shared_ptr<const Plan> &plan,
                                const std::shared_ptr<WeightCache> &cache, const World &world,
                                Transport &transport, SessionOptions options) {
  JobRank rank;
  Transport *host = plan->getMesh().getNumRanks() > 1 ? &transport : nullptr;
  rank.placement =
      placeRank(settings.placement, world.rank, world.localRank, world.localSize, host);
  Transport *used = rank.placement.deviceTransport ? rank.placement.deviceTransport.get() : host;
  options.weights = settings.weights;
  options.verifyModel = settings.verifyModel;
  options.graphs &= !settings.noGraphs;
  options.inProcess = settings.inProcess;
  options.autotune = settings.autotune;
  options.checkIndices = settings.checkIndices;
  options.warn = [](const std::string &line) { fprintf(stderr, "warning: %s\n", line.c_str()); };
  if (settings.verbose)
    options.remark = [](const std::string &line) { fprintf(stderr, "note: %s\n", line.c_str()); };
  if (settings.inProcess)
    options.cache = cache;
  rank.session = std::make_unique<Session>(plan, *rank.placement.device, used, options);
  return rank;
}

JobRank Job::start(const World &world, Transport &transport, SessionOptions options) const {
  JobRank rank = startRank(settings, plan, cache, world, transport, std::move(options));
  for (const auto &[name, array] : inputs)
    rank.session->bind(name, array);
  return rank;
}

RunStats Job::run(Session &session) const {
  RunStats stats = session.run(settings.entry, dims);
  for (const std::shared_ptr<const MappedFile> &file : files)
    file->requireUnchanged(); // else the outputs may be of what another program was writing
  return stats;
}

int Job::launch(const RankMain &main) const {
  return runRanks(settings, plan->getMesh().getNumRanks(), main);
}
