//===- PlanWriter.cpp - from allocated programs to a plan folder ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/PlanWriter.h"

#include "compiler/emit/StageBuilder.h"
#include "compiler/target/Target.h"
#include "dialects/dist/Sharding.h"
#include "dialects/loom/Training.h"
#include "support/Sha256.h"

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace gridloom;

static std::string serialize(const schema::Stage &stage) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream output(&bytes);
    google::protobuf::io::CodedOutputStream coded(&output);
    coded.SetSerializationDeterministic(true); // maps are unordered
    stage.SerializeToCodedStream(&coded);
  }
  return bytes;
}

//===----------------------------------------------------------------------===//
// The manifest
//===----------------------------------------------------------------------===//

namespace {
/// An entry's input or output over all stages.
struct GlobalBinding {
  std::string name;
  RankedTensorType type;
  llvm::json::Array dimNames, stages;
  DictionaryAttr indices; ///< loom.indices, or null
  ArrayAttr labels;       ///< loom.labels, or null
};

struct GlobalEntry {
  DictionaryAttr dims;
  llvm::MapVector<StringRef, GlobalBinding> inputs, outputs;
};
} // namespace

static void addBindings(plan::ProgramOp program, const dist::Mesh &mesh, GlobalEntry &entry) {
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
    bool input = buffer.getSpace() == plan::Space::Input;
    if (!input && buffer.getSpace() != plan::Space::Output)
      continue;
    GlobalBinding &binding = (input ? entry.inputs : entry.outputs)[*buffer.getName()];
    if (binding.name.empty()) {
      binding.name = buffer.getName()->str();
      binding.type =
          cast<RankedTensorType>(buffer->getAttrOfType<TypeAttr>(loom::kGlobalType).getValue());
      if (auto names = buffer->getAttrOfType<ArrayAttr>(loom::kDimNames))
        for (auto name : names.getAsRange<StringAttr>())
          binding.dimNames.push_back(name.str());
      binding.indices = buffer->getAttrOfType<DictionaryAttr>(loom::kIndices);
      binding.labels = buffer->getAttrOfType<ArrayAttr>(loom::kLabels);
      while (static_cast<int64_t>(binding.dimNames.size()) < binding.type.getRank())
        binding.dimNames.push_back("");
    }
    binding.stages.push_back(static_cast<int64_t>(program.getStage()));
  }
}

/// The losses that use an input as labels.
static llvm::json::Array describeLabels(ArrayAttr uses) {
  llvm::json::Array list;
  for (auto use : uses.getAsRange<DictionaryAttr>()) {
    llvm::json::Object labels{{"loss", use.getAs<StringAttr>("loss").str()}};
    for (const char *number : {"classes", "ignored"})
      if (auto given = use.getAs<IntegerAttr>(number))
        labels[number] = given.getInt();
    list.push_back(std::move(labels));
  }
  return list;
}

static llvm::json::Array toJson(llvm::MapVector<StringRef, GlobalBinding> &bindings) {
  llvm::json::Array list;
  for (auto &[name, binding] : bindings) {
    list.push_back(llvm::json::Object{{"name", binding.name},
                                      {"type", toManifestType(binding.type.getElementType())},
                                      {"shape", llvm::json::Array(binding.type.getShape())},
                                      {"dim_names", std::move(binding.dimNames)},
                                      {"stages", std::move(binding.stages)}});
    if (binding.labels)
      (*list.back().getAsObject())["labels"] = describeLabels(binding.labels);
    if (!binding.indices)
      continue;
    llvm::json::Object indices{{"node", binding.indices.getAs<StringAttr>("node").str()}};
    for (const char *number : {"size", "first", "last"})
      indices[number] = binding.indices.getAs<IntegerAttr>(number).getInt();
    (*list.back().getAsObject())["indices"] = std::move(indices);
  }
  return list;
}

static llvm::json::Array describeEntries(ModuleOp module, const dist::Mesh &mesh) {
  llvm::MapVector<StringRef, llvm::MapVector<Attribute, GlobalEntry>> entries;
  for (auto program : module.getOps<plan::ProgramOp>()) {
    GlobalEntry &entry = entries[program.getEntry()][program.getDims()];
    entry.dims = program.getDims();
    addBindings(program, mesh, entry);
  }
  llvm::json::Array list;
  for (auto &[name, specialisations] : entries) {
    llvm::json::Array inner;
    for (auto &[key, entry] : specialisations) {
      llvm::json::Object dims;
      for (NamedAttribute dim : entry.dims)
        dims[dim.getName().str()] = cast<IntegerAttr>(dim.getValue()).getInt();
      inner.push_back(llvm::json::Object{{"dims", std::move(dims)},
                                         {"inputs", toJson(entry.inputs)},
                                         {"outputs", toJson(entry.outputs)}});
    }
    list.push_back(llvm::json::Object{{"name", name}, {"specialisations", std::move(inner)}});
  }
  return list;
}

static llvm::json::Object describeModel(ModuleOp module, const std::filesystem::path &folder) {
  auto model = module->getAttrOfType<DictionaryAttr>(loom::kModel);
  if (!model)
    return {};
  std::filesystem::path path = model.getAs<StringAttr>("path").str();
  // Lexically, since the folder need not exist yet.
  std::error_code ofModel, ofFolder;
  std::filesystem::path to = std::filesystem::weakly_canonical(path, ofModel);
  std::filesystem::path from =
      std::filesystem::weakly_canonical(std::filesystem::absolute(folder), ofFolder);
  std::filesystem::path relative = to.lexically_relative(from);
  if (!ofModel && !ofFolder && !relative.empty())
    path = relative;
  llvm::json::Object object{{"path", path.string()},
                            {"bytes", model.getAs<IntegerAttr>("bytes").getInt()},
                            {"sha256", model.getAs<StringAttr>("sha256").str()}};
  if (auto files = model.getAs<DictionaryAttr>("data")) {
    llvm::json::Object data;
    for (NamedAttribute file : files)
      data[file.getName().str()] = cast<StringAttr>(file.getValue()).str();
    object["data"] = std::move(data);
  }
  return object;
}

static llvm::json::Object describeMesh(ModuleOp module, const dist::Mesh &mesh) {
  llvm::json::Array axes;
  for (const dist::Mesh::Axis &axis : mesh.getAxes())
    if (axis.name.getValue() != dist::MeshOp::kMicroAxis)
      axes.push_back(llvm::json::Object{{"name", axis.name.str()}, {"size", axis.size}});
  llvm::json::Object object{{"axes", std::move(axes)}};
  if (auto stageAxis = module->getAttrOfType<StringAttr>(dist::kStageAxis))
    object["stage_axis"] = stageAxis.str();
  return object;
}

static llvm::json::Array describeWeights(ModuleOp module, const std::set<std::string> &names) {
  llvm::json::Array list;
  for (auto weight : module.getOps<loom::WeightOp>()) {
    if (!names.count(weight.getSymName().str()))
      continue;
    loom::SourceAttr source = weight.getSource();
    list.push_back(
        llvm::json::Object{{"name", weight.getSymName()},
                           {"type", toManifestType(weight.getTensorType().getElementType())},
                           {"shape", llvm::json::Array(weight.getTensorType().getShape())},
                           {"file", source.getFile()},
                           {"offset", static_cast<int64_t>(source.getOffset())},
                           {"bytes", static_cast<int64_t>(source.getBytes())}});
  }
  return list;
}

/// Inputs that losses compare with, each with the label to ignore, if there is one.
static llvm::json::Array describeTargets(ArrayAttr targets) {
  llvm::json::Array list;
  for (auto target : targets.getAsRange<DictionaryAttr>()) {
    llvm::json::Object entry{{"name", target.getAs<StringAttr>("name").getValue()}};
    if (auto ignored = target.getAs<IntegerAttr>("ignored"))
      entry["ignored"] = ignored.getInt();
    list.push_back(std::move(entry));
  }
  return list;
}

static llvm::json::Object describeTraining(DictionaryAttr training) {
  auto list = [&](const char *name) {
    llvm::json::Array texts;
    if (auto list = training.getAs<ArrayAttr>(name))
      for (auto text : list.getAsRange<StringAttr>())
        texts.push_back(text.getValue());
    return texts;
  };
  llvm::json::Object told{
      {"learning_rate", training.getAs<FloatAttr>("learning_rate").getValueAsDouble()},
      {"losses", list("losses")},
      {"terms", list("terms")},
      {"targets", describeTargets(training.getAs<ArrayAttr>("targets"))},
      {"optimizer", training.getAs<StringAttr>("optimizer").getValue()}};
  if (auto least = training.getAs<FloatAttr>("least_loss_scale"))
    told["least_loss_scale"] = least.getValueAsDouble();
  return told;
}

static llvm::json::Array describeFolded(ModuleOp module) {
  llvm::json::Array list;
  if (auto folded = module->getAttrOfType<ArrayAttr>(loom::kFolded))
    for (auto entry : folded.getAsRange<DictionaryAttr>())
      list.push_back(llvm::json::Object{{"name", entry.getAs<StringAttr>("name").str()},
                                        {"sha256", entry.getAs<StringAttr>("sha256").str()}});
  return list;
}

static bool hasLibraryFor(Attribute descriptor, const TargetTraits &traits) {
  if (isa<plan::MatmulAttr>(descriptor))
    return true;
  if (traits.neuralLibrary.empty() || traits.fuse.convolutionEpilogues)
    return !traits.neuralLibrary.empty();
  auto convolution = dyn_cast<plan::ConvolutionAttr>(descriptor);
  return convolution && !convolution.getEpilogue().getResidual() &&
         convolution.getEpilogue().getActivation() == plan::Activation::None;
}

/// Calls of a library that the target lacks come from a dump for another target.
static LogicalResult checkLibraries(ModuleOp module, const Target &target) {
  WalkResult result = module.walk([&](plan::LibraryOp op) {
    if (hasLibraryFor(op.getDescriptor(), target.getTraits()))
      return WalkResult::advance();
    op.emitError() << "calls a library of convolutions and attention, which --target "
                   << target.getName() << " does not have; resume with the --target of the dump";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

static llvm::json::Array describeRequirements(ModuleOp module, const TargetTraits &traits) {
  llvm::json::Array list{traits.kind};
  bool collectives = false, pipeline = false;
  module.walk([&](plan::GroupOp group) { (group.getStage() ? pipeline : collectives) = true; });
  if (collectives)
    list.push_back("collectives");
  if (pipeline)
    list.push_back("pipeline");
  bool callsNeural = false;
  module.walk(
      [&](plan::LibraryOp op) { callsNeural |= !isa<plan::MatmulAttr>(op.getDescriptor()); });
  if (callsNeural)
    list.push_back(traits.neuralLibrary);
  return list;
}

FailureOr<PlanFiles> gridloom::emitPlan(ModuleOp module, const std::filesystem::path &folder,
                                        const Target &target, EmitSummary &summary) {
  KernelFiles kernels;
  if (failed(checkLibraries(module, target)) || failed(target.emitKernels(module, kernels)))
    return failure();
  llvm::json::Object described = target.describe(kernels);
  PlanFiles files = std::move(kernels.files);
  summary.compiled = std::move(kernels.compiled);

  std::map<int64_t, StageBuilder> builders;
  for (auto program : module.getOps<plan::ProgramOp>()) {
    auto [it, inserted] = builders.try_emplace(program.getStage(), module, kernels.kernels);
    if (failed(it->second.add(program)))
      return failure();
  }
  llvm::json::Array stages;
  std::set<std::string> sources;
  for (auto &[stage, builder] : builders) {
    sources.insert(builder.getSources().begin(), builder.getSources().end());
    std::string name = "stage" + std::to_string(stage) + ".pb";
    files[name] = serialize(builder.take());
    summary.programBytes += files[name].size();
    stages.push_back(name);
  }
  summary.kernels = kernels.kernels.size();
  llvm::json::Object digests;
  for (const auto &[name, contents] : files) {
    digests[name] = llvm::json::Object{{"bytes", static_cast<int64_t>(contents.size())},
                                       {"sha256", sha256(contents)}};
    if (StringRef(name).starts_with("kernels/"))
      summary.kernelBytes += contents.size();
  }

  dist::Mesh mesh(dist::getMesh(module));
  auto precision = module->getAttrOfType<StringAttr>(loom::kPrecision);
  llvm::json::Object manifest{{"schema", llvm::json::Object{{"major", 2}, {"minor", 0}}},
                              {"producer", "gridloom " GRIDLOOM_VERSION},
                              {"requires", describeRequirements(module, target.getTraits())},
                              {"target", std::move(described)},
                              {"precision", precision ? precision.getValue() : "f32"},
                              {"model", describeModel(module, folder)},
                              {"mesh", describeMesh(module, mesh)},
                              {"microbatches", mesh.getSize(StringAttr::get(
                                                   module.getContext(), dist::MeshOp::kMicroAxis))},
                              {"stages", std::move(stages)},
                              {"entries", describeEntries(module, mesh)},
                              {"weights", describeWeights(module, sources)},
                              {"folded", describeFolded(module)},
                              {"files", std::move(digests)}};
  if (auto training = module->getAttrOfType<DictionaryAttr>(loom::kTraining))
    manifest["training"] = describeTraining(training);
  llvm::raw_string_ostream(files["manifest.json"])
      << llvm::formatv("{0:2}\n", llvm::json::Value(std::move(manifest)));
  return files;
}
