//===- Plan.cpp - reading a plan ------------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Plan.h"

#include "runtime/core/Error.h"
#include "runtime/core/Files.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/PlanVerifier.h"
#include "runtime/core/plan.pb.h"
#include "runtime/device/Registry.h"
#include "support/FileSwap.h"
#include "support/Sha256.h"

#include <algorithm>
#include <google/protobuf/stubs/logging.h>
#include <nlohmann/json.hpp>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;
using nlohmann::json;

Plan::Plan() = default;
Plan::~Plan() = default;

static const Argument *findArgument(const std::vector<Argument> &arguments,
                                    const std::string &name) {
  for (const Argument &argument : arguments)
    if (argument.name == name)
      return &argument;
  return nullptr;
}
std::string Argument::describe() const {
  return name + " " + std::string(nameOf(type)) + " " + formatShape(shape);
}

bool EntrySpecialisation::binds(const std::map<std::string, int64_t> &sizes) const {
  return std::ranges::all_of(sizes, [&](const auto &size) {
    auto own = dims.find(size.first);
    return own != dims.end() && own->second == size.second;
  });
}

const TrainingTarget *TrainingInfo::findTarget(const std::string &input) const {
  auto found = std::ranges::find(targets, input, &TrainingTarget::name);
  return found == targets.end() ? nullptr : &*found;
}

const Argument *EntrySpecialisation::findInput(const std::string &name) const {
  return findArgument(inputs, name);
}
const Argument *EntrySpecialisation::findOutput(const std::string &name) const {
  return findArgument(outputs, name);
}

std::string Entry::findMisfit(const std::string &name, const std::vector<int64_t> &shape) const {
  const Argument *first = nullptr;
  std::vector<bool> isFixed(shape.size(), true);
  for (const EntrySpecialisation &specialisation : specialisations) {
    const Argument *input = specialisation.findInput(name);
    if (!input)
      continue;
    if (!first)
      first = input;
    if (input->shape.size() != shape.size())
      return "input '" + name + "' has shape " + formatShape(shape) + ", the plan takes " +
             std::to_string(input->shape.size()) + " dimensions: " + formatShape(input->shape);
    for (size_t i = 0; i < shape.size(); ++i)
      isFixed[i] = isFixed[i] && input->shape[i] == first->shape[i];
  }
  for (size_t i = 0; first && i < shape.size(); ++i)
    if (isFixed[i] && shape[i] != first->shape[i])
      return "input '" + name + "' has " + std::to_string(shape[i]) + " in dimension " +
             std::to_string(i) + ", the plan takes " + std::to_string(first->shape[i]) +
             " there in all specialisations";
  return "";
}

const Entry &Plan::getEntry(const std::string &name) const {
  std::string known;
  for (const Entry &entry : entries) {
    if (entry.name == name)
      return entry;
    known += (known.empty() ? "" : ", ") + entry.name;
  }
  throw Error(ErrorCode::InvalidArgument,
              "the plan has no entry '" + name + "'; its entries are: " + known);
}

const WeightInfo *Plan::findWeight(const std::string &name) const {
  auto found = weightIndex.find(name);
  return found == weightIndex.end() ? nullptr : &weights[found->second];
}

bool Plan::hasState(const std::string &name) const {
  for (const auto &stage : stages)
    for (const schema::State &state : stage->states())
      if (state.name() == name)
        return true;
  return false;
}

bool Plan::drawsStates() const {
  for (const auto &stage : stages)
    for (const schema::State &state : stage->states())
      if (state.has_draw())
        return true;
  return false;
}

std::span<const std::byte> Plan::getKernelCode(const std::string &library) const {
  auto found = kernels.find(library);
  if (found == kernels.end())
    throw Error(ErrorCode::InvalidPlan, "the plan has no kernels/" + library);
  return found->second;
}

namespace {

/// A JSON object of the manifest with the path that names it in messages.
class Node {
public:
  Node(const json &value, std::string path, const std::string &file)
      : value(value), path(std::move(path)), file(file) {}

  [[noreturn]] void fail(const std::string &message) const {
    throw Error(ErrorCode::InvalidPlan, file + ": " + path + " " + message);
  }
  bool has(const char *key) const { return value.is_object() && value.contains(key); }
  Node get(const char *key) const {
    if (!value.is_object())
      fail("is not an object");
    auto found = value.find(key);
    if (found == value.end())
      Node(value, child(key), file).fail("is missing");
    return Node(*found, child(key), file);
  }
  std::vector<Node> getList(const char *key) const {
    Node list = get(key);
    if (!list.value.is_array())
      list.fail("is not a list");
    std::vector<Node> nodes;
    for (size_t i = 0; i < list.value.size(); ++i)
      nodes.emplace_back(list.value[i], list.path + "[" + std::to_string(i) + "]", file);
    return nodes;
  }
  std::vector<std::pair<std::string, Node>> getMembers(const char *key) const {
    Node object = get(key);
    if (!object.value.is_object())
      object.fail("is not an object");
    std::vector<std::pair<std::string, Node>> members;
    for (auto &[name, member] : object.value.items())
      members.emplace_back(name, Node(member, object.path + "." + name, file));
    return members;
  }
  std::string asString() const {
    if (!value.is_string())
      fail("is not a string");
    return value.get<std::string>();
  }
  /// An integer from 0 to 2^62.
  int64_t asSize() const {
    if (!value.is_number_integer())
      fail("is not an integer");
    constexpr uint64_t limit = uint64_t(1) << 62;
    if (!value.is_number_unsigned() || value.get<uint64_t>() > limit)
      fail("is " + value.dump() + ", not in 0 to " + std::to_string(limit));
    return value.get<int64_t>();
  }
  int64_t asInteger() const {
    bool isLarge = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX);
    if (!value.is_number_integer() || isLarge)
      fail("is " + value.dump() + ", not an integer of 64 bits");
    return value.get<int64_t>();
  }
  double asNumber() const {
    if (!value.is_number())
      fail("is not a number");
    return value.get<double>();
  }
  std::string getString(const char *key) const { return get(key).asString(); }
  int64_t getSize(const char *key) const { return get(key).asSize(); }
  std::vector<std::string> getStrings(const char *key) const {
    std::vector<std::string> strings;
    for (const Node &node : getList(key))
      strings.push_back(node.asString());
    return strings;
  }
  std::vector<int64_t> getShape(const char *key) const {
    std::vector<int64_t> shape;
    for (const Node &node : getList(key))
      shape.push_back(node.asSize());
    return shape;
  }
  DataType getType(const char *key) const {
    Node node = get(key);
    std::optional<DataType> type = parseDataType(node.asString());
    if (!type)
      node.fail("is '" + node.asString() + "', which is not an element type");
    return *type;
  }
  std::string getDigest(const char *key) const { return get(key).asDigest(); }
  std::string asDigest() const {
    std::string digest = asString();
    if (digest.size() != 64 || digest.find_first_not_of("0123456789abcdef") != std::string::npos)
      fail("is not a SHA-256 of 64 hexadecimal digits");
    return digest;
  }

private:
  std::string child(const char *key) const { return path.empty() ? key : path + "." + key; }

  const json &value;
  std::string path;
  const std::string &file;
};

} // namespace

namespace gridloom::rt {

/// Fills a Plan from its folder.
class PlanReader {
public:
  PlanReader(std::filesystem::path folder, const PlanOptions &options)
      : options(options), plan(new Plan), manifest((folder / "manifest.json").string()) {
    plan->folder = std::move(folder);
  }
  std::shared_ptr<const Plan> read();

private:
  void readHeader(const Node &root);
  void readModel(const Node &root);
  void readMesh(const Node &root);
  void readEntries(const Node &root);
  Argument readArgument(const Node &node);
  void readWeights(const Node &root);
  void readFiles(const Node &root);
  void readStages();
  [[noreturn]] void fail(const std::string &message) const {
    throw Error(ErrorCode::InvalidPlan, manifest + ": " + message);
  }

  PlanOptions options;
  std::shared_ptr<Plan> plan;
  std::string manifest; // its path, for messages
  std::vector<std::string> stageFiles;
  std::map<std::string, std::vector<std::byte>> stageBytes;
};

} // namespace gridloom::rt

std::shared_ptr<const Plan> Plan::load(const std::filesystem::path &folder,
                                       const PlanOptions &options) {
  return PlanReader(folder, options).read();
}

std::string gridloom::rt::findPlanFault(const std::filesystem::path &folder,
                                        const PlanOptions &options) {
  try {
    Plan::load(folder, options);
    return "";
  } catch (const std::exception &error) {
    return error.what();
  }
}

void Plan::requireOutside(const std::string &option, const std::filesystem::path &path) const {
  if (!path.empty() && isInside(path, folder))
    throw Error(ErrorCode::InvalidArgument, option + " " + path.string() + " is inside the plan " +
                                                folder.string() + "; name a place outside of it");
}

void gridloom::rt::requirePlanFolder(const std::filesystem::path &folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw Error(ErrorCode::InvalidPlan,
                folder.string() + ": is not a plan folder; " +
                    (std::filesystem::exists(folder, error) ? "make one with gridloom compile"
                                                            : "nothing has this name"));
  if (!std::filesystem::exists(folder / "manifest.json", error))
    throw Error(ErrorCode::InvalidPlan,
                folder.string() + ": is not a plan folder: it has no manifest.json");
}

std::shared_ptr<const Plan> PlanReader::read() {
  requirePlanFolder(plan->folder);
  std::error_code error;
  uint64_t bytes = std::filesystem::file_size(manifest, error);
  if (error)
    fail("cannot be read: " + error.message());
  constexpr uint64_t maxManifest = uint64_t(1) << 30;
  if (bytes > maxManifest)
    fail("has " + std::to_string(bytes) + " bytes, more than " + std::to_string(maxManifest));
  std::vector<std::byte> text = readFile(manifest, bytes);
  plan->digest = sha256(text);
  if (!options.requireSignature.empty())
    plan->signature = requireSignature(plan->folder, plan->digest, options.requireSignature);
  plan->time = MappedFile::open(manifest)->getTime();
  json parsed = json::parse(reinterpret_cast<const char *>(text.data()),
                            reinterpret_cast<const char *>(text.data()) + text.size(), nullptr,
                            /*allow_exceptions=*/false);
  if (parsed.is_discarded())
    fail("is not JSON; the file is damaged or truncated");
  Node root(parsed, "", manifest);
  readHeader(root);
  readMesh(root);
  readModel(root);
  readEntries(root);
  readWeights(root);
  readFiles(root);
  readStages();
  return plan;
}

/// The features that `requires` may name.
static std::set<std::string> getKnownFeatures() {
  std::set<std::string> known = {"collectives", "pipeline"};
  for (const DeviceKind *kind : getDeviceKinds()) {
    known.insert(kind->getName());
    for (const std::string &feature : kind->getFeatures())
      known.insert(feature);
  }
  return known;
}

/// Major version of the manifest and stage programs; the compiler writes it.
static constexpr int64_t kMajorVersion = 2;

void PlanReader::readHeader(const Node &root) {
  int64_t major = root.get("schema").getSize("major");
  if (major != kMajorVersion)
    fail("has schema version " + std::to_string(major) + ", this runtime reads " +
         std::to_string(kMajorVersion) + "; compile again");
  plan->producer = root.getString("producer");
  static const std::set<std::string> known = getKnownFeatures();
  for (const std::string &feature : root.getStrings("requires"))
    if (!known.count(feature))
      fail("requires feature '" + feature + "', which this runtime lacks; use a newer one");
  Node target = root.get("target");
  plan->targetKind = target.getString("kind");
  plan->targetArch = target.getString("arch");
  if (root.has("precision"))
    plan->precision = root.getString("precision");
  if (target.has("cuda")) {
    plan->cudaVersion = int(target.getSize("cuda"));
    if (plan->cudaVersion < 1000 || plan->cudaVersion > 1000000)
      fail("target.cuda is " + std::to_string(plan->cudaVersion) +
           ", not 1000 times a major version and 10 times a minor one");
  }
  plan->deviceKind = findDeviceKind(plan->targetKind);
  if (!plan->deviceKind)
    fail("target.kind is '" + plan->targetKind + "'; this runtime knows " + listDeviceKinds());
  if (std::string obstacle = plan->deviceKind->findObstacle(plan->targetArch);
      options.requireTarget && !obstacle.empty())
    fail(obstacle);
}

void PlanReader::readModel(const Node &root) {
  Node model = root.get("model");
  std::filesystem::path path = model.getString("path");
  plan->model.path = path.is_absolute() ? path : plan->folder / path;
  plan->model.bytes = uint64_t(model.getSize("bytes"));
  plan->model.sha256 = model.getDigest("sha256");
  if (model.has("data"))
    for (auto &[name, node] : model.getMembers("data"))
      plan->model.data[name] = node.asDigest();
}

void PlanReader::readMesh(const Node &root) {
  Node mesh = root.get("mesh");
  std::vector<Mesh::Axis> axes;
  for (const Node &axis : mesh.getList("axes"))
    axes.push_back({axis.getString("name"), axis.getSize("size")});
  std::string stageAxis = mesh.has("stage_axis") ? mesh.getString("stage_axis") : "";
  try {
    plan->mesh = Mesh(std::move(axes), stageAxis);
  } catch (const Error &error) {
    fail(error.what());
  }
  plan->microbatches = root.getSize("microbatches");
  constexpr int64_t maxMicrobatches = 1 << 20;
  if (plan->microbatches < 1 || plan->microbatches > maxMicrobatches)
    fail("microbatches is " + std::to_string(plan->microbatches) + ", not in 1 to " +
         std::to_string(maxMicrobatches));
  stageFiles = root.getStrings("stages");
  if (int(stageFiles.size()) != plan->mesh.getNumStages())
    fail("lists " + std::to_string(stageFiles.size()) + " stages, the mesh has " +
         std::to_string(plan->mesh.getNumStages()));
}

Argument PlanReader::readArgument(const Node &node) {
  Argument argument;
  argument.name = node.getString("name");
  argument.type = node.getType("type");
  argument.shape = node.getShape("shape");
  try {
    checkedBytes(argument.shape, sizeOf(argument.type), "'" + argument.name + "'");
  } catch (const Error &error) {
    node.fail(error.what());
  }
  if (node.has("dim_names"))
    argument.dimNames = node.getStrings("dim_names");
  argument.dimNames.resize(argument.shape.size());
  if (node.has("indices")) {
    Node use = node.get("indices");
    argument.indices = IndexUse{use.getString("node"), use.getSize("size"), use.getSize("first"),
                                use.getSize("last")};
  }
  if (node.has("labels")) {
    if (isFloat(argument.type) || argument.type == DataType::Bool)
      node.get("labels").fail("are of an input of " + std::string(nameOf(argument.type)) +
                              ", not of integers");
    for (const Node &use : node.getList("labels")) {
      argument.labels.push_back({use.getString("loss"), use.getSize("classes"), std::nullopt});
      if (use.has("ignored"))
        argument.labels.back().ignored = use.get("ignored").asInteger();
    }
  }
  for (const Node &stage : node.getList("stages")) {
    int64_t number = stage.asSize();
    if (number >= plan->mesh.getNumStages())
      stage.fail("is " + std::to_string(number) + ", the plan has " +
                 std::to_string(plan->mesh.getNumStages()) + " stages");
    argument.stages.push_back(int(number));
  }
  return argument;
}

void PlanReader::readEntries(const Node &root) {
  std::set<std::string> names;
  for (const Node &node : root.getList("entries")) {
    Entry entry;
    entry.name = node.getString("name");
    if (!names.insert(entry.name).second)
      node.fail("repeats entry '" + entry.name + "'");
    for (const Node &specialisationNode : node.getList("specialisations")) {
      EntrySpecialisation specialisation;
      for (auto &[name, value] : specialisationNode.getMembers("dims"))
        specialisation.dims[name] = value.asSize();
      auto readAll = [&](const char *key, std::vector<Argument> &arguments) {
        for (const Node &argument : specialisationNode.getList(key)) {
          arguments.push_back(readArgument(argument));
          if (findArgument(arguments, arguments.back().name) != &arguments.back())
            argument.fail("repeats '" + arguments.back().name + "'");
        }
      };
      readAll("inputs", specialisation.inputs);
      readAll("outputs", specialisation.outputs);
      entry.specialisations.push_back(std::move(specialisation));
    }
    if (entry.specialisations.empty())
      node.fail("has no specialisation");
    plan->entries.push_back(std::move(entry));
  }
  if (plan->entries.empty())
    fail("has no entry");
}

void PlanReader::readWeights(const Node &root) {
  for (const Node &node : root.getList("weights")) {
    WeightInfo weight;
    weight.name = node.getString("name");
    weight.type = node.getType("type");
    weight.shape = node.getShape("shape");
    weight.file = node.getString("file");
    weight.offset = uint64_t(node.getSize("offset"));
    weight.bytes = uint64_t(node.getSize("bytes"));
    int64_t expected = 0;
    try {
      expected = checkedBytes(weight.shape, sizeOf(weight.type), "'" + weight.name + "'");
    } catch (const Error &error) {
      node.fail(error.what());
    }
    if (weight.bytes != uint64_t(expected))
      node.fail("'" + weight.name + "' has " + std::to_string(weight.bytes) + " bytes, shape " +
                formatShape(weight.shape) + " needs " + std::to_string(expected));
    if (weight.file.empty() && weight.offset + weight.bytes > plan->model.bytes)
      node.fail("'" + weight.name + "' ends at byte " +
                std::to_string(weight.offset + weight.bytes) + ", the model has " +
                std::to_string(plan->model.bytes));
    if (!weight.file.empty() && !isInnerPath(weight.file))
      node.fail("is in file '" + weight.file + "', which is outside the model's folder");
    if (!plan->weightIndex.emplace(weight.name, plan->weights.size()).second)
      node.fail("repeats '" + weight.name + "'");
    plan->weights.push_back(std::move(weight));
  }
  if (root.has("training")) {
    Node node = root.get("training");
    TrainingInfo &training = plan->training.emplace();
    training.learningRate = node.get("learning_rate").asNumber();
    training.losses = node.getStrings("losses");
    training.optimizer = node.getString("optimizer");
    if (node.has("terms")) // older plans have none
      training.terms = node.getStrings("terms");
    if (node.has("least_loss_scale"))
      training.leastLossScale = node.get("least_loss_scale").asNumber();
    if (node.has("targets"))
      for (const Node &target : node.getList("targets"))
        training.targets.push_back(
            {target.getString("name"), target.has("ignored")
                                           ? std::optional(target.get("ignored").asInteger())
                                           : std::nullopt});
  }
  for (const Node &node : root.getList("folded"))
    plan->folded.push_back({node.getString("name"), node.getDigest("sha256")});
}

void PlanReader::readFiles(const Node &root) {
  std::set<std::string> stageSet(stageFiles.begin(), stageFiles.end());
  const std::string kernelFolder = "kernels/";
  for (auto &[name, node] : root.getMembers("files")) {
    if (!isInnerPath(name))
      node.fail("is outside the plan's folder");
    std::filesystem::path path = plan->folder / name;
    std::string digest = node.getDigest("sha256");
    std::vector<std::byte> bytes = readFile(path, uint64_t(node.getSize("bytes")));
    if (std::string actual = sha256(bytes); actual != digest)
      throw Error(ErrorCode::InvalidPlan, path.string() + ": has SHA-256 " + actual +
                                              ", the manifest says " + digest +
                                              "; the file is damaged, compile again");
    if (stageSet.count(name))
      stageBytes[name] = std::move(bytes);
    else if (name.starts_with(kernelFolder))
      plan->kernels[name.substr(kernelFolder.size())] = std::move(bytes);
  }
}

void PlanReader::readStages() {
  for (size_t i = 0; i < stageFiles.size(); ++i) {
    auto bytes = stageBytes.find(stageFiles[i]);
    if (bytes == stageBytes.end())
      fail("lists no checksum of '" + stageFiles[i] + "'");
    std::string path = (plan->folder / stageFiles[i]).string();
    auto stage = std::make_unique<schema::Stage>();
    google::protobuf::LogSilencer silence; // our line says it all
    if (bytes->second.size() > size_t(INT32_MAX) ||
        !stage->ParseFromArray(bytes->second.data(), int(bytes->second.size())))
      throw Error(ErrorCode::InvalidPlan, path + ": is not a stage program");
    plan->stages.push_back(std::move(stage));
    verifyStage(*plan, int(i), path);
  }
  verifyTransfers(*plan, manifest);
}
