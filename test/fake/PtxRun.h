//===- PtxRun.h - kernels on the host, for tests ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The interpreter without a driver around it, for tests of what the compiler emits. Nothing here
// throws: tests that link MLIR have no exceptions.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_PTXRUN_H
#define GRIDLOOM_TEST_FAKE_PTXRUN_H

#include "test/fake/FakeCuda.h"

#include <memory>
#include <string>
#include <vector>

namespace gridloom::fake {

struct PtxKernel;

/// Memory for a kernel's pointer. It begins at a multiple of `alignment` and of nothing larger, and
/// an access one byte beyond its ends is found.
struct PtxTensor {
  std::vector<std::byte> bytes;
  size_t alignment = 16;
  /// What a kernel reads before it writes it.
  bool isInput = false;
  /// Number of the tensor whose memory this is, or -1.
  int inPlaceOf = -1;
};

struct PtxRun {
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  uint32_t sharedBytes = 0;
  /// 0: a fixed order of blocks, warps and threads; else one drawn from it.
  uint64_t seed = 0;
  /// Other than 0: instructions of stated accuracy err by up to what they may.
  uint64_t inaccuracy = 0;
  /// A launch that takes more instructions of warps than this does not end. 0: any number.
  uint64_t maxInstructions = 0;
};

/// The kernels of a PTX text.
class GRIDLOOM_FAKE_EXPORT PtxProgram {
public:
  explicit PtxProgram(const std::string &text);
  ~PtxProgram();
  PtxProgram(const PtxProgram &) = delete;
  PtxProgram &operator=(const PtxProgram &) = delete;

  /// What of the text is not understood; empty where all is.
  const std::string &getError() const { return error; }
  /// Runs a kernel; the tensors that are no inputs get their values. Returns what it does that it
  /// must not, e.g. leave elements unwritten; empty for nothing.
  std::string run(const std::string &kernel, const PtxRun &launch,
                  std::vector<PtxTensor> &tensors) const;

private:
  struct Kernels;
  std::unique_ptr<Kernels> kernels;
  std::string error;
};

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_PTXRUN_H
