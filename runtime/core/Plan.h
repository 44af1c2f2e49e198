//===- Plan.h - a loaded plan -----------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The format is docs/plan-format.md. A loaded Plan is complete and verified: checksums, and every
// bound that can be checked without running anything.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_PLAN_H
#define GRIDLOOM_RUNTIME_CORE_PLAN_H

#include "runtime/core/DataType.h"
#include "runtime/core/Mesh.h"
#include "runtime/core/PlanSignature.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gridloom::schema {
class Stage;
class Specialisation;
} // namespace gridloom::schema

namespace gridloom::rt {

class DeviceKind;

/// The use of an input as indices at ONNX node `node`: offsets `first` to `last` are added to its
/// values, and the sums index a dimension of `size`.
struct IndexUse {
  std::string node;
  int64_t size = 0, first = 0, last = 0;
};

/// A loss whose labels are an input: class indices from 0, or `ignored` for rows that do not count.
struct LabelUse {
  std::string loss; // as given to --loss
  int64_t classes = 0;
  std::optional<int64_t> ignored;
};

/// An entry's input or output, with its global shape.
struct Argument {
  std::string name;
  DataType type = DataType::F32;
  std::vector<int64_t> shape;
  std::vector<std::string> dimNames; // "" where a dimension has no name
  std::vector<int> stages;           // that take (inputs) or produce (outputs) it
  std::optional<IndexUse> indices;   // of an input that is used as indices
  std::vector<LabelUse> labels;      // of an input that losses take as labels
  /// "x f32 [8, 4]".
  std::string describe() const;
};

/// One binding of an entry's symbolic dimensions.
struct EntrySpecialisation {
  std::map<std::string, int64_t> dims;
  std::vector<Argument> inputs, outputs;
  const Argument *findInput(const std::string &name) const;
  const Argument *findOutput(const std::string &name) const;
  /// Whether each of these dimensions is bound to this size.
  bool binds(const std::map<std::string, int64_t> &sizes) const;
};

struct Entry {
  std::string name;
  std::vector<EntrySpecialisation> specialisations;
  /// Names a dimension for which no specialisation has the size in `shape`; empty if each dimension
  /// has its size in some specialisation.
  std::string findMisfit(const std::string &input, const std::vector<int64_t> &shape) const;
};

/// A tensor of the model that some stage reads. `file` is relative to the model's folder; empty:
/// the model file.
struct WeightInfo {
  std::string name;
  DataType type = DataType::F32;
  std::vector<int64_t> shape; // global
  std::string file;
  uint64_t offset = 0, bytes = 0;
};

struct FoldedInfo {
  std::string name, sha256;
};

struct ModelInfo {
  std::filesystem::path path; // resolved against the plan's folder
  uint64_t bytes = 0;
  std::string sha256;
  /// Fingerprints (see Files.h) of the files with external data, by name; older plans have none.
  std::map<std::string, std::string> data;
};

/// An input that losses and metrics compare with. They skip rows with the label `ignored`.
struct TrainingTarget {
  std::string name;
  std::optional<int64_t> ignored;
};

/// The training options that a plan was compiled with (`compile --train`).
struct TrainingInfo {
  double learningRate = 0;         // the default for `train`
  std::vector<std::string> losses; // as on the command line
  std::string optimizer;
  /// The outputs that `loss` is the sum of if there are several losses, each a mean over the count
  /// in output NAME.count; else empty.
  std::vector<std::string> terms;
  /// The lower limit of the loss scale; set if the plan has one.
  std::optional<double> leastLossScale;
  std::vector<TrainingTarget> targets;
  /// Null if `input` is no target.
  const TrainingTarget *findTarget(const std::string &input) const;
};

struct PlanOptions {
  /// Refuse a plan whose CPU level this machine lacks. Off for tools that only inspect plans.
  bool requireTarget = true;
  /// Files of public keys (Ed25519, PEM), one of which must have signed the plan. Then all bytes of
  /// the model's files are checked, too, when a session loads them. Empty: any plan is loaded.
  std::vector<std::filesystem::path> requireSignature = {};
};

/// A plan in memory, immutable and shared between the sessions of a process.
class Plan {
public:
  /// Reads and verifies the plan in `folder`. Throws InvalidPlan with one line that names the file,
  /// what is wrong and both numbers.
  static std::shared_ptr<const Plan> load(const std::filesystem::path &folder,
                                          const PlanOptions &options = {});
  ~Plan();

  const std::filesystem::path &getFolder() const { return folder; }
  /// Throws InvalidArgument if `path`, which `option` names, is the plan's folder or inside of it:
  /// a plan that is compiled again is replaced as a whole, with what else is in it. Ignores an
  /// empty path.
  void requireOutside(const std::string &option, const std::filesystem::path &path) const;
  const std::string &getProducer() const { return producer; }
  /// "cpu" or "cuda", and the level: "x86-64-v3", "sm_90".
  const std::string &getTargetKind() const { return targetKind; }
  const std::string &getTargetArch() const { return targetArch; }
  /// The kind of devices that its ranks run on.
  const DeviceKind &getDeviceKind() const { return *deviceKind; }
  /// The CUDA version that the driver must support, 1000 * major + 10 * minor; 0: the plan does not
  /// say.
  int getCudaVersion() const { return cudaVersion; }
  /// The precision that the compiler was allowed to use for the model's f32: "f32", "tf32", "bf16"
  /// or "f16".
  const std::string &getPrecision() const { return precision; }
  const ModelInfo &getModel() const { return model; }
  const Mesh &getMesh() const { return mesh; }
  int64_t getMicrobatches() const { return microbatches; }
  int getNumStages() const { return int(stages.size()); }
  const schema::Stage &getStage(int stage) const { return *stages[stage]; }
  const std::vector<Entry> &getEntries() const { return entries; }
  /// Throws InvalidArgument listing the entries there are.
  const Entry &getEntry(const std::string &name) const;
  const std::vector<WeightInfo> &getWeights() const { return weights; }
  const WeightInfo *findWeight(const std::string &name) const;
  /// Whether some stage keeps a state of this name from call to call.
  bool hasState(const std::string &name) const;
  /// Whether some state is initialised with random numbers.
  bool drawsStates() const;
  /// Absent for plans that do not train.
  const std::optional<TrainingInfo> &getTraining() const { return training; }
  const std::vector<FoldedInfo> &getFolded() const { return folded; }
  bool hasKernelCode(const std::string &library) const { return kernels.contains(library); }
  /// The bytes of kernels/<library>, as checked.
  std::span<const std::byte> getKernelCode(const std::string &library) const;
  /// SHA-256 of the manifest, which holds the other files' checksums: two ranks with equal digests
  /// run the same plan.
  const std::string &getDigest() const { return digest; }
  /// The signature that PlanOptions required; absent if they required none.
  const std::optional<PlanSignature> &getSignature() const { return signature; }
  /// When the manifest was written, in nanoseconds since 1970.
  int64_t getTime() const { return time; }

private:
  friend class PlanReader;
  Plan();

  std::filesystem::path folder;
  std::string producer, targetKind, targetArch, digest;
  std::string precision = "f32";
  const DeviceKind *deviceKind = nullptr;
  int cudaVersion = 0;
  int64_t time = 0;
  ModelInfo model;
  Mesh mesh;
  int64_t microbatches = 1;
  std::vector<std::unique_ptr<schema::Stage>> stages;
  std::vector<Entry> entries;
  std::vector<WeightInfo> weights;
  std::map<std::string, size_t> weightIndex;
  std::optional<TrainingInfo> training;
  std::vector<FoldedInfo> folded;
  std::map<std::string, std::vector<std::byte>> kernels; // by library
  std::optional<PlanSignature> signature;
};

/// Throws InvalidPlan, as Plan::load does, if `folder` is not a folder or has no manifest.
void requirePlanFolder(const std::filesystem::path &folder);

/// The error of Plan::load for the plan in `folder`; empty if it loads. For callers without
/// exceptions.
std::string findPlanFault(const std::filesystem::path &folder, const PlanOptions &options = {});

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_PLAN_H
