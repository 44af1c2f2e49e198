//===- PtxRun.h - running kernels on the host, for tests ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The interpreter without a driver, for tests of the compiler's output. Nothing here throws,
// because tests that link MLIR have no exceptions.
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

/// Memory for a kernel's pointer, aligned to `alignment` and no more. An access just outside is
/// found.
struct PtxTensor {
  std::vector<std::byte> bytes;
  size_t alignment = 16;
  /// The kernel may read it without writing it first.
  bool isInput = false;
  /// Index of the tensor whose memory this one shares, or -1.
  int inPlaceOf = -1;
};

struct PtxRun {
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  uint32_t sharedBytes = 0;
  /// 0: a fixed order of blocks, warps and threads; else the seed of a random one.
  uint64_t seed = 0;
  /// If not 0, approximate instructions err by up to their stated accuracy.
  uint64_t inaccuracy = 0;
  /// The limit on warp instructions of a launch, beyond which it counts as endless. 0: none.
  uint64_t maxInstructions = 0;
};

/// The kernels of a PTX text.
class GRIDLOOM_FAKE_EXPORT PtxProgram {
public:
  explicit PtxProgram(const std::string &text);
  ~PtxProgram();
  PtxProgram(const PtxProgram &) = delete;
  PtxProgram &operator=(const PtxProgram &) = delete;

  /// What is not supported in the text; empty if all is.
  const std::string &getError() const { return error; }
  /// Runs a kernel and fills in the tensors that are no inputs. Returns the kernel's error, e.g.
  /// elements left unwritten; empty if there is none.
  std::string run(const std::string &kernel, const PtxRun &launch,
                  std::vector<PtxTensor> &tensors) const;

private:
  struct Kernels;
  std::unique_ptr<Kernels> kernels;
  std::string error;
};

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_PTXRUN_H
