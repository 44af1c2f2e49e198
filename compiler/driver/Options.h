//===- Options.h - compile options ------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Plain data, free of MLIR: filled by the command line, read by the compiler.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_OPTIONS_H
#define GRIDLOOM_COMPILER_DRIVER_OPTIONS_H

#include "compiler/target/TargetOptions.h"
#include "passes/communicate/CommunicateOptions.h"
#include "passes/train/TrainOptions.h"

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace gridloom {

struct CompileOptions {
  std::string input;                      ///< .onnx, or .mlir with startFrom
  std::string output;                     ///< plan folder; empty: <input>.plan
  std::vector<std::string> dims;          ///< NAME=SIZE[,SIZE]...
  std::vector<std::string> states;        ///< INPUTS=OUTPUTS, each with one * at most
  std::string gradientsOf;                ///< an output to differentiate; empty: none
  std::vector<std::string> withRespectTo; ///< weights and inputs; empty: all float weights
  TrainOptions train;                     ///< a training step beside the model
  int64_t unroll = 8;                     ///< loops of at most this many iterations
  std::string mesh;
  std::string strategy = "auto"; ///< kinds of parallelism, or a file whose name ends in .strategy
  bool seeds = true;             ///< known strategies are among those that auto chooses from
  std::string devices;           ///< COUNT or COUNTxKIND; empty with `cluster`
  std::string cluster;           ///< PRESET, PRESETxN or a file
  std::vector<std::string> shard;
  int64_t microbatches = 0;
  int64_t zero = 0;        ///< 1 to 3: how states of training are split; 0: as they are used
  int64_t chunkMatmul = 0; ///< chunks of a matmul beside a collective; 0: whole
  int64_t bucketSize = kBucketBytes; ///< bytes of gradients in one all_reduce; 0: one for each
  int64_t memoryLimit = 0;           ///< bytes
  int64_t measureBest = 0;           ///< candidates that are run on this machine; 0: none
  bool weighsAll = false;       ///< weighs candidates on the whole program, even if layers repeat
  double planTime = -1;         ///< seconds; below 0: no limit
  int64_t planWork = 0;         ///< steps of the planner; 0: no limit
  bool isInterruptible = false; ///< the first SIGINT while planning takes the best plan so far
  bool certifies = false;       ///< bounds plans as closely as it can
  int64_t jobs = 0; ///< threads that weigh candidates; 0: as many as the machine has, at most 4
  TargetOptions target;
  std::string precision = "f32";    ///< f32, tf32, bf16 or f16
  std::string stopAfter, startFrom; ///< phase names; empty: all
  std::string dumpIr;               ///< folder; empty: only the plan's own
  std::string emitOnnx;             ///< file for the model with its shardings; empty: none
  std::string saveStrategy;         ///< file for the strategy, besides the plan's own; empty: none
  bool remarks = false;
  bool quiet = false;
  bool force = false;
};

/// Compiles. With --stop-after the program goes to `out`; errors, warnings and remarks go to
/// `messages`, a line each; the summary goes to standard output. Returns the exit code: 0, or 1
/// without a plan.
int runCompile(const CompileOptions &options, std::ostream &out = std::cout,
               std::ostream &messages = std::cerr);

/// Reports what would stop a compilation of a model: operators, unbound dimensions. Returns 0 if
/// nothing would.
int runDoctor(const CompileOptions &options);

/// The phase table as text, one phase a line.
std::string listPhases();

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_OPTIONS_H
