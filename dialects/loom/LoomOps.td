//===- LoomOps.td - all operations of the dialect -----------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_OPS
#define GRIDLOOM_LOOM_OPS

include "dialects/loom/LoomContraction.td"
include "dialects/loom/LoomElementwise.td"
include "dialects/loom/LoomShape.td"
include "dialects/loom/LoomWeights.td"

#endif
