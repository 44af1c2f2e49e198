//===- Target.cpp - the target of a compilation ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/Target.h"

#include "compiler/target/KernelFiles.h"
#include "support/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

using namespace mlir;
using namespace gridloom;

namespace gridloom {
#define TARGET(NAME) const TargetKind &NAME##Targets();
#include "compiler/target/Targets.def"
#undef TARGET
} // namespace gridloom

ArrayRef<const TargetKind *> gridloom::getTargetKinds() {
  static const TargetKind *const kinds[] = {
#define TARGET(NAME) &NAME##Targets(),
#include "compiler/target/Targets.def"
#undef TARGET
  };
  return kinds;
}

std::string gridloom::listTargets() {
  std::vector<std::string> names;
  for (const TargetKind *kind : getTargetKinds())
    for (StringRef spelling : kind->spellings)
      names.push_back(spelling.str());
  return joinWithOr(names);
}

/// A kind with a given option that does nothing for `chosen`, and the option's name; null if there
/// is none.
static std::pair<const TargetKind *, StringRef> findForeignFlag(const TargetKind &chosen,
                                                                const TargetOptions &options) {
  for (const TargetKind *kind : getTargetKinds())
    for (const TargetFlag &flag : kind->flags)
      if (kind != &chosen && flag.isGiven(options))
        return {kind, flag.name};
  return {};
}

std::unique_ptr<Target> gridloom::parseTarget(const TargetOptions &options, std::string &error) {
  error.clear();
  for (const TargetKind *kind : getTargetKinds()) {
    std::unique_ptr<Target> target = kind->make(options, error);
    if (!target && error.empty())
      continue;
    auto [owner, flag] = findForeignFlag(*kind, options);
    if (!owner)
      return target;
    error =
        (flag + " does nothing for --target " + options.name + "; use --target " + owner->example)
            .str();
    return nullptr;
  }
  error = "unknown --target '" + options.name + "'; write " + listTargets();
  return nullptr;
}

std::string Target::findPrecisionObstacle(StringRef precision) const {
  if (precision != "tf32" || traits.tf32)
    return "";
  std::string other, error;
  for (const TargetKind *kind : getTargetKinds()) {
    TargetOptions options;
    options.name = kind->example;
    std::unique_ptr<Target> target = parseTarget(options, error);
    if (other.empty() && target && target->getTraits().tf32)
      other = target->getName();
  }
  return "--precision tf32 is a format of NVIDIA's tensor cores; add --target " + other +
         ", or use --precision f32 or bf16 on the " + name;
}

llvm::json::Object Target::describe(const KernelFiles &kernels) const {
  return llvm::json::Object{{"kind", traits.kind}, {"arch", traits.arch}};
}

schema::Kernel &KernelFiles::add(const codegen::KernelInfo &info, const Twine &library) {
  schema::Kernel &proto = kernels[info.symbol];
  proto.set_symbol(info.symbol);
  proto.set_library(library.str());
  proto.set_num_pointers(info.numPointers);
  proto.set_skeleton(plan::stringifySkeleton(info.skeleton).str());
  proto.set_flops(info.flops);
  proto.set_bytes(info.bytes);
  return proto;
}
