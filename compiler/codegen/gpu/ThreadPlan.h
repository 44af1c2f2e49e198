//===- ThreadPlan.h - distribution of work over threads ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_GPU_THREADPLAN_H
#define GRIDLOOM_COMPILER_CODEGEN_GPU_THREADPLAN_H

#include "compiler/codegen/Nest.h"

namespace gridloom::codegen {

/// The distribution of one nest's work over blocks and threads. A kernel may have several nests; a
/// plan::Skeleton names the structure of the whole.
struct ThreadPlan {
  enum class Kind {
    Elements,  // a thread has one vector of outputs
    Row,       // a warp or a block reduces a row
    Column,    // neighbouring threads have neighbouring outputs, others split their reductions
    Transpose, // a block moves a tile through shared memory
    Product,   // threads split sums of products of a few rows and a matrix
  };
  Kind kind = Kind::Elements;
  int64_t width = 1;     // elements of a vector
  int64_t threads = 256; // of a block
  /// Blocks along x, y and z. What they count depends on the kind.
  std::array<int64_t, 3> grid{1, 1, 1};
  /// Units of work. Elements: vectors, along x; with `isByRow` rows, along x, and the blocks of a
  /// row along y. Row: rows. Column: iterations of the loops other than the contiguous one and
  /// `spread`, along x. Product: iterations of the loops that are neither the contiguous one nor
  /// rows, along y; tiles of the contiguous one are along x.
  int64_t items = 1;
  bool isByRow = false;
  int64_t group = 1; // Row: threads of a row. Column, Product: threads that split a reduction
  const Loop *spread = nullptr; // Row, Column: the loop over outputs that the group shares
  llvm::SmallVector<const Loop *, 2> inLine; // Row, Column: unrolled loops
  const Loop *read = nullptr;                // Transpose: the loop along which reads are contiguous
  llvm::SmallVector<NodeId> tiled;           // Transpose: the loads that go through shared memory
  /// Product: the only reduction; the output loops that the matrix does not depend on, all of which
  /// every thread computes; whether vectors run along the sum rather than along outputs; and how
  /// many vectors of the sum a thread loads at once.
  NodeId sum = 0;
  llvm::SmallVector<const Loop *, 2> rows;
  bool isAlongSum = false;
  int64_t batch = 1;

  int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
};

/// Threads of a block in a kernel of several nests.
inline constexpr int64_t kThreads = 256;
/// Rows of threads in a block that transposes.
inline constexpr int64_t kTileRows = 8;

/// Plans a nest for a GPU with `processors` multiprocessors. A nest that is not alone in its kernel
/// gets blocks of kThreads along x.
ThreadPlan planThreads(const Nest &nest, bool isOnly, int64_t processors);

/// True if no index of the nest needs more than 31 bits.
bool hasShortIndices(const Nest &nest);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_GPU_THREADPLAN_H
