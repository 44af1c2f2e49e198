//===- VerifyImported.cpp - loom-verify-imported -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/Simplify.h"

#include "dialects/loom/Control.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_VERIFYIMPORTED
#include "passes/simplify/Passes.h.inc"
} // namespace gridloom

using namespace gridloom;

static LogicalResult verifyOperation(Operation &op) {
  if (isa<func::ReturnOp>(op))
    return success();
  if (op.getDialect() != op.getContext()->getLoadedDialect<loom::LoomDialect>()) // I-G2
    return op.emitOpError("is not a loom operation");
  if (loom::getNodeName(op.getLoc()).empty()) // I-G3
    return op.emitOpError("has no ONNX node in its location: ") << op.getLoc();
  for (Type type : op.getResultTypes()) { // I-G4
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !tensor.hasStaticShape() || !loom::getElementKind(tensor.getElementType()))
      return op.emitOpError("gives ") << type << ", not a tensor of static shape";
  }
  return success();
}

static LogicalResult verifyFunction(func::FuncOp function) {
  if (!function.getBody().hasOneBlock()) // I-G1
    return function.emitOpError("has ") << function.getBody().getBlocks().size() << " blocks";
  // Only entries name the dimensions of their tensors.
  bool isBody = loom::isBody(function);
  for (StringRef name : {StringRef(loom::kEntry), StringRef(loom::kDims)})
    if (!isBody && !function->hasAttr(name))
      return function.emitOpError("has no attribute ") << name;
  auto isNamed = [&](DictionaryAttr attributes) {
    return attributes && attributes.contains(loom::kName) &&
           (isBody || attributes.contains(loom::kDimNames));
  };
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (!isNamed(function.getArgAttrDict(i)))
      return function.emitOpError("argument ") << i << " has no name or no dimension names";
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (!isNamed(function.getResultAttrDict(i)))
      return function.emitOpError("result ") << i << " has no name or no dimension names";
  for (Operation &op : function.front())
    if (failed(verifyOperation(op)))
      return failure();
  return success();
}

LogicalResult gridloom::verifyImported(ModuleOp module) {
  if (!module->hasAttr(loom::kModel) || !module->hasAttr(loom::kFolded)) // I-G1
    return module.emitOpError("does not name the model it comes from");
  if (module.getOps<func::FuncOp>().empty())
    return module.emitOpError("has no functions");
  for (auto function : module.getOps<func::FuncOp>())
    if (failed(verifyFunction(function)))
      return failure();
  return success();
}

namespace {
struct VerifyImportedPass : gridloom::impl::VerifyImportedBase<VerifyImportedPass> {
  void runOnOperation() override {
    if (failed(verifyImported(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
