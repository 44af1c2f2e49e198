//===- DistOps.cpp - builders, parsing, queries ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Dist.h"

#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace gridloom::dist;

#define GET_OP_CLASSES
#include "dialects/dist/DistOps.cpp.inc"

MeshOp gridloom::dist::getMesh(ModuleOp module) {
  auto meshes = module.getOps<MeshOp>();
  return meshes.empty() ? MeshOp() : *meshes.begin();
}

bool gridloom::dist::isCommunication(Operation *op) {
  return isa<AllReduceOp, AllGatherOp, ReduceScatterOp, AllToAllOp, PermuteOp, SendOp, RecvOp>(op);
}

StringRef gridloom::dist::getCause(Operation *op) {
  auto because = op->getAttrOfType<StringAttr>(kBecause);
  return because ? because.getValue() : StringRef();
}

void gridloom::dist::addCause(Operation *op, StringRef because) {
  StringRef known = getCause(op);
  if (because.empty() || known.contains(because))
    return;
  std::string both = known.empty() ? because.str() : (known + "; " + because).str();
  op->setAttr(kBecause, StringAttr::get(op->getContext(), both));
}

//===----------------------------------------------------------------------===//
// MeshOp: @mesh <["data" = 2, "model" = 4]>
//===----------------------------------------------------------------------===//

ParseResult MeshOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  SmallVector<Attribute> axes;
  auto parseAxis = [&]() -> ParseResult {
    std::string axis;
    int64_t size;
    if (parser.parseString(&axis) || parser.parseEqual() || parser.parseInteger(size))
      return failure();
    axes.push_back(AxisAttr::get(parser.getContext(), axis, size));
    return success();
  };
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name), result.attributes) ||
      parser.parseLess() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseAxis) ||
      parser.parseGreater() || parser.parseOptionalAttrDict(result.attributes))
    return failure();
  result.addAttribute(getAxesAttrName(result.name), ArrayAttr::get(parser.getContext(), axes));
  return success();
}

void MeshOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printSymbolName(getSymName());
  printer << " <[";
  llvm::interleaveComma(getAxes().getAsRange<AxisAttr>(), printer, [&](AxisAttr axis) {
    printer << '"' << axis.getName() << "\" = " << axis.getSize();
  });
  printer << "]>";
  printer.printOptionalAttrDict((*this)->getAttrs(), {getSymNameAttrName(), getAxesAttrName()});
}

int64_t MeshOp::getAxisSize(StringRef name) {
  for (auto axis : getAxes().getAsRange<AxisAttr>())
    if (axis.getName() == name)
      return axis.getSize();
  return 1;
}

bool MeshOp::hasAxis(StringRef name) {
  return llvm::any_of(getAxes().getAsRange<AxisAttr>(),
                      [&](AxisAttr axis) { return axis.getName() == name; });
}

int64_t MeshOp::getNumDevices() {
  int64_t devices = 1;
  for (auto axis : getAxes().getAsRange<AxisAttr>())
    if (axis.getName() != kMicroAxis)
      devices *= axis.getSize();
  return devices;
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

void AllReduceOp::build(OpBuilder &builder, OperationState &state, ValueRange inputs,
                        ArrayRef<StringAttr> axes, ReductionKind reduction) {
  state.addOperands(inputs);
  state.addAttribute(getAxesAttrName(state.name),
                     builder.getArrayAttr(SmallVector<Attribute>(axes.begin(), axes.end())));
  state.addAttribute(getReductionAttrName(state.name),
                     ReductionKindAttr::get(builder.getContext(), reduction));
  state.addTypes(inputs.getTypes());
}

LogicalResult AllReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                            ValueRange operands, DictionaryAttr, OpaqueProperties,
                                            RegionRange, SmallVectorImpl<Type> &types) {
  llvm::append_range(types, operands.getTypes());
  return success();
}
