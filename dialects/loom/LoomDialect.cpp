//===- LoomDialect.cpp - attributes and registration ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Loom.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace gridloom::loom;

#include "dialects/loom/LoomDialect.cpp.inc"
#include "dialects/loom/LoomEnums.cpp.inc"
#include "dialects/loom/LoomInterfaces.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/loom/LoomAttrs.cpp.inc"

void LoomDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/loom/LoomAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/loom/LoomOps.cpp.inc"
      >();
}

static void collectNodeNames(Location loc, llvm::SetVector<StringRef> &names) {
  if (auto name = dyn_cast<NameLoc>(loc)) {
    names.insert(name.getName().getValue());
  } else if (auto fused = dyn_cast<FusedLoc>(loc)) {
    for (Location part : fused.getLocations())
      collectNodeNames(part, names);
  } else if (auto call = dyn_cast<CallSiteLoc>(loc)) {
    collectNodeNames(call.getCallee(), names);
  }
}

std::string gridloom::loom::getNodeName(Location loc) {
  llvm::SetVector<StringRef> names;
  collectNodeNames(loc, names);
  return llvm::join(names, " + ");
}

std::string gridloom::loom::describeWithNode(const Diagnostic &diagnostic, StringRef whole) {
  std::string node = getNodeName(diagnostic.getLocation()), text = diagnostic.str();
  if (node.empty() || node == whole || StringRef(text).contains("'" + node + "': "))
    return text;
  for (StringRef what : {"node", "input", "output", "state"})
    if (StringRef(text).contains((what + " '" + node + "'").str()))
      return text;
  return "node '" + node + "': " + text;
}
