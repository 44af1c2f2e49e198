//===- LoomOps.td - all operations of the dialect -----------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_OPS
#define GRIDLOOM_LOOM_OPS

include "dialects/loom/LoomContraction.td"
include "dialects/loom/LoomControl.td"
include "dialects/loom/LoomElementwise.td"
include "dialects/loom/LoomIndexing.td"
include "dialects/loom/LoomShape.td"
include "dialects/loom/LoomWeights.td"
include "dialects/loom/LoomWindow.td"

#endif
