//===- Checkpoint.cpp - a training run on disk ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Checkpoint.h"

#include "runtime/core/Error.h"
#include "runtime/core/Files.h"
#include "runtime/core/SafeTensors.h"
#include "support/FileSwap.h"
#include "support/JsonDepth.h"
#include "support/Sha256.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;
using nlohmann::json;
namespace fs = std::filesystem;

static const char *const kFormat = "gridloom-checkpoint";
static constexpr int64_t kVersion = 1;
static const char *const kManifest = "manifest.json";
static const char *const kStates = "states.safetensors";
static const char *const kStepPrefix = "step-";
/// A manifest has a few hundred bytes, and the name of each state.
static constexpr size_t kMaxManifestBytes = size_t(1) << 26;
static constexpr StateRole kRoles[] = {StateRole::Parameter, StateRole::Slot, StateRole::Run};

static Error refuse(const fs::path &path, const std::string &what) {
  return {ErrorCode::InvalidArgument, "checkpoint " + path.string() + " " + what};
}

static std::string findObstacle(const fs::path &folder);

void Checkpoint::write(const fs::path &folder) const {
  // The folder is removed with all that is in it once the new one is in its place.
  if (std::string obstacle = findObstacle(folder); !obstacle.empty())
    throw Error(ErrorCode::InvalidArgument, "no checkpoint is saved: " + obstacle);
  const SafeTensorsParts data = layOutSafeTensors(states);
  FileParts files;
  const std::vector<std::string_view> &parts = files[kStates] = data.getAll();
  json file = {{"name", kStates}, {"bytes", data.getNumBytes()}, {"sha256", sha256(parts)}};
  json manifest = {{"format", kFormat},
                   {"version", kVersion},
                   {"step", progress.step},
                   {"cursor", progress.cursor},
                   {"samples", progress.numSamples},
                   {"seed", progress.seed},
                   {"files", json::array({file})}};
  if (batch)
    manifest["batch"] = *batch;
  if (isEvaluated)
    manifest["evaluations"]["is_next"] = true;
  if (evaluations.sinceBest)
    manifest["evaluations"]["since_best"] = evaluations.sinceBest;
  if (std::isfinite(evaluations.bestLoss))
    manifest["evaluations"]["best"] = {{"loss", evaluations.bestLoss},
                                       {"step", evaluations.bestStep}};
  if (evaluations.atLastStep)
    manifest["evaluations"]["last"] = {{"step", evaluations.lastStep},
                                       {"count", evaluations.atLastStep}};
  for (const auto &[name, role] : roles)
    manifest["roles"][name] = nameOf(role);
  for (const TiedWeight &tie : ties)
    manifest["ties"].push_back(
        {{"name", tie.name}, {"state", tie.state}, {"transposed", tie.isTransposed}});
  const std::string text = manifest.dump(2) + "\n";
  files[kManifest] = {text};
  if (std::string reason = replaceFolderByParts(folder, files, /*isDurable=*/true); !reason.empty())
    throw Error(ErrorCode::InvalidArgument, "no checkpoint is saved: " + reason);
}

namespace {

/// Reads and checks one folder.
class Reader {
public:
  explicit Reader(const fs::path &folder) : folder(folder) {}

  Checkpoint read() {
    Checkpoint checkpoint;
    checkpoint.files.push_back(open(kManifest));
    json manifest = readManifest(checkpoint.files.front()->getBytes());
    checkpoint.progress.step = getCount(manifest, "step");
    checkpoint.progress.cursor = getCount(manifest, "cursor");
    checkpoint.progress.numSamples = getCount(manifest, "samples");
    checkpoint.progress.seed = getUnsigned(manifest, "seed");
    if (manifest.contains("batch"))
      checkpoint.batch = getCount(manifest, "batch");
    if (manifest.contains("evaluations"))
      readEvaluations(manifest["evaluations"], checkpoint);
    if (!manifest.contains("files") || !manifest["files"].is_array())
      fail(kManifest, "has no list 'files'");
    for (const json &file : manifest["files"])
      readStates(file, checkpoint);
    checkpoint.roles = readRoles(manifest, checkpoint.states);
    if (manifest.contains("ties"))
      checkpoint.ties = readTies(manifest["ties"], checkpoint);
    return checkpoint;
  }

  /// The names of the checkpoint's files, as far as its manifest lists them.
  std::set<std::string> listFiles() {
    std::shared_ptr<const MappedFile> file = open(kManifest);
    json manifest = readManifest(file->getBytes());
    std::set<std::string> names = {kManifest, kStates};
    if (manifest.contains("files") && manifest["files"].is_array())
      for (const json &entry : manifest["files"])
        names.insert(getText(entry, "name"));
    return names;
  }

private:
  [[noreturn]] void fail(const std::string &file, const std::string &what) const {
    throw refuse(folder / file, what);
  }

  std::shared_ptr<const MappedFile> open(const std::string &name) const {
    try {
      return MappedFile::openBeneath(folder, name);
    } catch (const Error &error) {
      throw refuse(folder, std::string("is incomplete: ") + error.what());
    }
  }

  json readManifest(std::span<const std::byte> bytes) const {
    if (bytes.size() > kMaxManifestBytes)
      fail(kManifest, "has " + std::to_string(bytes.size()) + " bytes, more than " +
                          std::to_string(kMaxManifestBytes));
    std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    if (isDeepJson(text))
      fail(kManifest, "has " + describeDeepJson());
    json manifest = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!manifest.is_object() || !manifest.contains("format") || manifest["format"] != kFormat)
      fail(kManifest, "is not the manifest of a checkpoint");
    if (int64_t version = getCount(manifest, "version"); version != kVersion)
      fail(kManifest, "has version " + std::to_string(version) + "; this program reads version " +
                          std::to_string(kVersion));
    return manifest;
  }

  uint64_t getUnsigned(const json &object, const char *key) const {
    if (!object.is_object() || !object.contains(key) || !object[key].is_number_unsigned())
      fail(kManifest, std::string("has no whole number '") + key + "'");
    return object[key].get<uint64_t>();
  }

  int64_t getCount(const json &object, const char *key) const {
    uint64_t value = getUnsigned(object, key);
    if (value > uint64_t(INT64_MAX))
      fail(kManifest, std::string("has too large a '") + key + "': " + std::to_string(value));
    return int64_t(value);
  }

  std::string getText(const json &object, const char *key, const char *what = "a file") const {
    if (!object.is_object() || !object.contains(key) || !object[key].is_string())
      fail(kManifest, std::string("has ") + what + " without '" + key + "'");
    return object[key].get<std::string>();
  }

  void readEvaluations(const json &entry, Checkpoint &checkpoint) const {
    EvaluationHistory &evaluations = checkpoint.evaluations;
    if (!entry.is_object())
      fail(kManifest, "has 'evaluations' that are no object");
    checkpoint.isEvaluated = entry.contains("is_next") && entry["is_next"] == true;
    if (entry.contains("since_best"))
      evaluations.sinceBest = getCount(entry, "since_best");
    if (entry.contains("last")) {
      evaluations.lastStep = getCount(entry["last"], "step");
      evaluations.atLastStep = getCount(entry["last"], "count");
    }
    if (!entry.contains("best"))
      return;
    const json &best = entry["best"];
    evaluations.bestStep = getCount(best, "step");
    if (!best.contains("loss") || !best["loss"].is_number())
      fail(kManifest, "has a best evaluation without a number 'loss'");
    evaluations.bestLoss = best["loss"].get<double>();
  }

  void readStates(const json &entry, Checkpoint &checkpoint) const {
    std::string name = getText(entry, "name");
    if (!isInnerPath(name))
      fail(kManifest, "names a file outside of its folder: '" + name + "'");
    std::shared_ptr<const MappedFile> file = open(name);
    std::span<const std::byte> bytes = file->getBytes();
    if (uint64_t expected = getUnsigned(entry, "bytes"); bytes.size() != expected)
      fail(name, "has " + std::to_string(bytes.size()) + " bytes; it was saved with " +
                     std::to_string(expected));
    if (sha256(bytes) != getText(entry, "sha256"))
      fail(name, "is damaged: it has another SHA-256 than when it was saved");
    for (const SafeTensor &tensor : readSafeTensors(bytes, (folder / name).string())) {
      const std::byte *data = bytes.data() + tensor.offset;
      HostArray array = HostArray::share(tensor.type, tensor.shape, data, file);
      // Files of other programs may be unaligned.
      if (reinterpret_cast<uintptr_t>(data) % sizeOf(tensor.type) != 0) {
        array = HostArray::allocate(tensor.type, tensor.shape);
        std::memcpy(array.getMutableData(), data, array.getNumBytes());
      }
      if (!checkpoint.states.emplace(tensor.name, array).second)
        fail(name, "has state '" + tensor.name + "' once more");
    }
    checkpoint.files.push_back(file);
  }

  StateRoles readRoles(const json &manifest, const std::map<std::string, HostArray> &states) const {
    if (!manifest.contains("roles"))
      return guessRoles(states);
    const json &entries = manifest["roles"];
    if (!entries.is_object())
      fail(kManifest, "has 'roles' that are no names of states with their roles");
    StateRoles roles;
    for (const auto &[name, text] : entries.items()) {
      if (!states.contains(name))
        fail(kManifest, "has a role for a state '" + name + "', which is not saved");
      const StateRole *role =
          std::ranges::find_if(kRoles, [&](StateRole role) { return text == nameOf(role); });
      if (role == std::end(kRoles))
        fail(kManifest, "has a role for state '" + name + "' that is not parameter, slot or run");
      roles[name] = *role;
    }
    for (const auto &[name, array] : states)
      if (!roles.contains(name))
        fail(kManifest, "has no role for state '" + name + "'");
    return roles;
  }

  std::vector<TiedWeight> readTies(const json &entries, const Checkpoint &checkpoint) const {
    if (!entries.is_array())
      fail(kManifest, "has 'ties' that are no list");
    std::vector<TiedWeight> ties;
    for (const json &entry : entries) {
      TiedWeight tie{getText(entry, "name", "a tie"), getText(entry, "state", "a tie")};
      if (!entry.contains("transposed") || !entry["transposed"].is_boolean())
        fail(kManifest, "does not say whether '" + tie.name + "' is transposed");
      tie.isTransposed = entry["transposed"].get<bool>();
      auto role = checkpoint.roles.find(tie.state);
      if (role == checkpoint.roles.end() || role->second != StateRole::Parameter)
        fail(kManifest, "ties '" + tie.name + "' to '" + tie.state + "', which is no parameter");
      if (tie.isTransposed && checkpoint.states.at(tie.state).getShape().size() != 2)
        fail(kManifest,
             "ties '" + tie.name + "' to the transpose of '" + tie.state + "', which is no matrix");
      bool isKnown = std::ranges::any_of(
          ties, [&](const TiedWeight &other) { return other.name == tie.name; });
      if (isKnown || checkpoint.states.contains(tie.name))
        fail(kManifest, "has '" + tie.name + "' once more");
      ties.push_back(std::move(tie));
    }
    return ties;
  }

  const fs::path &folder;
};

} // namespace

/// Why no checkpoint may replace what is at `folder`; empty if there is nothing, an empty folder or
/// a checkpoint with no file of another program in it.
static std::string findObstacle(const fs::path &folder) {
  std::error_code error;
  if (!fs::exists(folder, error) ||
      (fs::is_directory(folder, error) && fs::is_empty(folder, error)))
    return "";
  const char *remedy = "; name another folder, or remove it";
  std::set<std::string> own;
  try {
    own = Reader(folder).listFiles();
  } catch (const Error &error) {
    return "'" + folder.string() + "' exists and is not a checkpoint" + remedy + ": " +
           error.what();
  }
  std::set<std::string> foreign;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder, error))
    if (std::string name = entry.path().filename().string(); !own.contains(name))
      foreign.insert(name);
  if (foreign.empty())
    return "";
  return "'" + folder.string() + "' holds '" + *foreign.begin() + "' beside a checkpoint" + remedy;
}

Checkpoint Checkpoint::read(const fs::path &folder) { return Reader(folder).read(); }

std::map<std::string, HostArray> Checkpoint::getParameters() const {
  std::map<std::string, HostArray> parameters;
  for (const auto &[name, array] : states)
    if (auto role = roles.find(name); role != roles.end() && role->second == StateRole::Parameter)
      parameters.emplace(name, array);
  addTiedWeights(ties, parameters);
  return parameters;
}

void Checkpoint::requireFits(const std::map<std::string, Wanted> &wanted) const {
  const std::string elsewhere = "; the checkpoint is of another model or optimizer";
  for (const auto &[name, want] : wanted) {
    auto found = states.find(name);
    if (found == states.end())
      throw Error(ErrorCode::InvalidArgument,
                  "the checkpoint lacks the plan's state '" + name + "'" + elsewhere);
    const HostArray &have = found->second;
    if (have.getType() != want.type || have.getShape() != want.shape)
      throw Error(ErrorCode::InvalidArgument,
                  "state '" + name + "' is " + std::string(nameOf(have.getType())) +
                      formatShape(have.getShape()) + " in the checkpoint and " +
                      std::string(nameOf(want.type)) + formatShape(want.shape) + " in the plan" +
                      elsewhere);
  }
  for (const auto &[name, array] : states)
    if (!wanted.contains(name))
      throw Error(ErrorCode::InvalidArgument,
                  "the checkpoint has a state '" + name + "' that the plan lacks" + elsewhere);
}

void Checkpoint::requireUnchanged() const {
  for (const std::shared_ptr<const MappedFile> &file : files)
    file->requireUnchanged();
}

fs::path gridloom::rt::getCheckpointFolder(const fs::path &run, int64_t step) {
  std::string digits = std::to_string(step);
  digits.insert(0, std::max<size_t>(digits.size(), 10) - digits.size(), '0');
  return run / (kStepPrefix + digits);
}

/// The step in a folder's name; nothing if getCheckpointFolder did not make that name.
static std::optional<int64_t> readStep(const std::string &name) {
  int64_t step = 0;
  if (!name.starts_with(kStepPrefix))
    return std::nullopt;
  std::string_view digits = std::string_view(name).substr(std::string_view(kStepPrefix).size());
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  bool isOurs =
      error == std::errc() && step >= 0 && getCheckpointFolder("", step) == fs::path(name);
  return isOurs ? std::optional(step) : std::nullopt;
}

std::vector<int64_t> gridloom::rt::listCheckpoints(const fs::path &run) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(run, error), end; !error && entry != end;
       entry.increment(error))
    if (std::optional<int64_t> step = readStep(entry->path().filename().string()))
      steps.push_back(*step);
  std::ranges::sort(steps);
  return steps;
}

fs::path gridloom::rt::findCheckpoint(const fs::path &path) {
  std::error_code error;
  if (fs::exists(path / kManifest, error))
    return path;
  fs::directory_iterator entries(path, error);
  if (error)
    throw refuse(path, "cannot be read: " + error.message());
  std::vector<int64_t> steps = listCheckpoints(path);
  if (steps.empty())
    throw Error(ErrorCode::InvalidArgument,
                path.string() + " is not a checkpoint: it has neither manifest.json nor a "
                                "folder step-NUMBER");
  return getCheckpointFolder(path, steps.back());
}
