//===- Target.h - the target of a compilation -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The one place that knows how targets differ: which libraries the passes may call, which layouts
// they choose, what emits the kernels, what the manifest says. All other code asks a Target.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_TARGET_TARGET_H
#define GRIDLOOM_COMPILER_TARGET_TARGET_H

#include "compiler/target/TargetOptions.h"
#include "passes/fuse/Fuse.h"
#include "passes/layout/Layout.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

#include <memory>

namespace gridloom {

struct KernelFiles;

/// The traits of a target.
struct TargetTraits {
  /// The kind of device that runs its plans, as in runtime/device: cpu or cuda.
  llvm::StringRef kind;
  /// The level of that device, as the manifest has it: x86-64-v3, sm_90.
  std::string arch;
  /// The kind of device it usually is, by the name that clusters use: H100-80GB.
  llvm::StringRef machine;
  /// Code runs only on devices of this generation, 90 for sm_90 and sm_90a; 0: there are no
  /// generations.
  unsigned generation = 0;
  /// Multiprocessors, among which kernels' work is divided; 0: the runtime's threads divide it.
  int64_t processors = 0;
  /// Its matrix multiplications can round f32 to TF32.
  bool tf32 = false;
  /// The name of the library of convolutions and attention in manifests; empty: there is none.
  llvm::StringRef neuralLibrary;
  /// Which weights are padded, which products merged, which operations stay whole for a library.
  LayoutOptions layout;
  /// Which libraries and kernels there are, and which epilogues their calls take.
  FuseOptions fuse;
};

class Target {
public:
  Target(std::string name, TargetTraits traits)
      : name(std::move(name)), traits(std::move(traits)) {}
  virtual ~Target() = default;
  Target(const Target &) = delete;
  Target &operator=(const Target &) = delete;

  /// As the command line spells it: cuda:sm_90.
  const std::string &getName() const { return name; }
  const TargetTraits &getTraits() const { return traits; }

  /// Why --precision cannot be `precision`; empty where it can.
  std::string findPrecisionObstacle(llvm::StringRef precision) const;

  /// Compiles all plan.kernel operations of `module`. Emits an error and fails where one cannot be
  /// compiled.
  virtual mlir::LogicalResult emitKernels(mlir::ModuleOp module, KernelFiles &kernels) const = 0;
  /// The manifest's `target`, of a plan with these kernels.
  virtual llvm::json::Object describe(const KernelFiles &kernels) const;

private:
  std::string name;
  TargetTraits traits;
};

/// An option of the command line that only one kind of target uses.
struct TargetFlag {
  llvm::StringRef name; ///< --cuda-toolkit
  bool (*isGiven)(const TargetOptions &options);
};

/// Targets that differ in their architecture only.
struct TargetKind {
  llvm::StringRef name; ///< TargetTraits::kind
  /// Names that help and errors list; `make` may know more. Errors suggest `example`.
  llvm::ArrayRef<llvm::StringRef> spellings;
  llvm::StringRef example;
  llvm::ArrayRef<TargetFlag> flags;
  /// Makes the target `options.name`. Null, with `error` set, if the options cannot be met; null
  /// without an error if the name is not of this kind.
  std::unique_ptr<Target> (*make)(const TargetOptions &options, std::string &error);
};

/// All kinds, in the order of Targets.def.
llvm::ArrayRef<const TargetKind *> getTargetKinds();

/// The target that the options name. Null, with one line in `error`, if there is none or an option
/// does nothing for it.
std::unique_ptr<Target> parseTarget(const TargetOptions &options, std::string &error);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_TARGET_TARGET_H
