//===- Adjoints.cpp - cotangents of a function's values -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/differentiate/Adjoints.h"

#include "dialects/loom/Training.h"

using namespace mlir;
using namespace gridloom;

#include "passes/differentiate/DerivativeInterface.cpp.inc"

void Adjoints::enter(Location of) { loc = loom::getGradientLocation(of); }

void Adjoints::add(Value value, llvm::function_ref<Value()> make) {
  if (!wants(value))
    return;
  Value more = make();
  assert(more.getType() == value.getType() && "a cotangent has its value's type");
  Value &sum = cotangents[value];
  sum = sum ? Value(term(sum) + term(more)) : more;
}
