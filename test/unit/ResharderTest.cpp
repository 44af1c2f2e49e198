//===- ResharderTest.cpp - every pair of shardings on small meshes ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/Resharder.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringSet.h"
#include "gtest/gtest.h"

#include <numeric>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace {
constexpr int64_t kSize = 16; // divides by every product of the axes below

/// A device's shard of a kSize x kSize tensor.
struct Shard {
  SmallVector<int64_t> shape, data;
};

/// Runs reshard steps on all devices of a mesh at once, by definition rather than by algorithm.
class Simulator {
public:
  explicit Simulator(const Mesh &mesh) : mesh(mesh) {
    numDevices = 1;
    for (const Mesh::Axis &axis : mesh.getAxes())
      numDevices *= axis.size;
  }

  int64_t coordinate(int64_t device, StringAttr axis) const {
    for (const Mesh::Axis &candidate : llvm::reverse(mesh.getAxes())) {
      if (candidate.name == axis)
        return device % candidate.size;
      device /= candidate.size;
    }
    return 0;
  }

  int64_t position(int64_t device, ArrayRef<StringAttr> axes) const {
    int64_t index = 0;
    for (StringAttr axis : axes)
      index = index * mesh.getSize(axis) + coordinate(device, axis);
    return index;
  }

  /// The members of the device's group, in the order of their positions.
  SmallVector<int64_t> group(int64_t device, ArrayRef<StringAttr> axes) const {
    SmallVector<int64_t> members(mesh.getSize(axes));
    for (int64_t other = 0; other < numDevices; ++other) {
      bool same = llvm::all_of(mesh.getAxes(), [&](const Mesh::Axis &axis) {
        return llvm::is_contained(axes, axis.name) ||
               coordinate(other, axis.name) == coordinate(device, axis.name);
      });
      if (same)
        members[position(other, axes)] = other;
    }
    return members;
  }

  /// What the device holds of a tensor whose element (i, j) is i * kSize + j. The first member of
  /// an unreduced group holds the value less what the others hold.
  Shard make(int64_t device, const Layout &layout) const {
    Shard shard;
    SmallVector<int64_t> start;
    for (const Layout::Dim &dim : layout.dims) {
      shard.shape.push_back(kSize / mesh.getSize(dim.axes));
      start.push_back(position(device, dim.axes) * shard.shape.back());
    }
    int64_t members = mesh.getSize(layout.unreduced), mine = position(device, layout.unreduced);
    for (int64_t i = 0; i < shard.shape[0]; ++i)
      for (int64_t j = 0; j < shard.shape[1]; ++j) {
        int64_t value = (start[0] + i) * kSize + start[1] + j, others = 0;
        for (int64_t member = 1; member < members; ++member)
          others += 1000 * member + value % 7;
        shard.data.push_back(mine == 0 ? value - others : 1000 * mine + value % 7);
      }
    return shard;
  }

  static Shard slice(const Shard &shard, int64_t dim, int64_t part, int64_t parts) {
    Shard result;
    result.shape = shard.shape;
    result.shape[dim] /= parts;
    for (int64_t i = 0; i < result.shape[0]; ++i)
      for (int64_t j = 0; j < result.shape[1]; ++j)
        result.data.push_back(
            shard.data[(i + (dim == 0 ? part * result.shape[0] : 0)) * shard.shape[1] + j +
                       (dim == 1 ? part * result.shape[1] : 0)]);
    return result;
  }

  static Shard concatenate(ArrayRef<Shard> shards, int64_t dim) {
    Shard result;
    result.shape = shards[0].shape;
    result.shape[dim] *= shards.size();
    for (int64_t i = 0; i < result.shape[0]; ++i)
      for (int64_t j = 0; j < result.shape[1]; ++j) {
        const Shard &from = shards[dim == 0 ? i / shards[0].shape[0] : j / shards[0].shape[1]];
        result.data.push_back(from.data[i % from.shape[0] * from.shape[1] + j % from.shape[1]]);
      }
    return result;
  }

  static Shard sum(ArrayRef<Shard> shards) {
    Shard result = shards[0];
    for (const Shard &shard : shards.drop_front())
      for (auto [to, from] : llvm::zip_equal(result.data, shard.data))
        to += from;
    return result;
  }

  std::vector<Shard> run(ArrayRef<ReshardStep> steps, std::vector<Shard> shards) const {
    for (const ReshardStep &step : steps) {
      std::vector<Shard> next;
      int64_t parts = mesh.getSize(step.axes);
      for (int64_t device = 0; device < numDevices; ++device) {
        int64_t mine = position(device, step.axes);
        SmallVector<Shard> members;
        for (int64_t member : group(device, step.axes))
          members.push_back(shards[member]);
        switch (step.kind) {
        case ReshardStep::Slice:
          next.push_back(slice(shards[device], step.dim, mine, parts));
          break;
        case ReshardStep::ReduceScatter:
          next.push_back(slice(sum(members), step.dim, mine, parts));
          break;
        case ReshardStep::AllReduce:
          next.push_back(sum(members));
          break;
        case ReshardStep::AllGather:
          next.push_back(concatenate(members, step.dim));
          break;
        case ReshardStep::AllToAll:
          for (Shard &member : members)
            member = slice(member, step.splitDim, mine, parts);
          next.push_back(concatenate(members, step.dim));
          break;
        }
      }
      shards = std::move(next);
    }
    return shards;
  }

  int64_t numDevices;

private:
  const Mesh &mesh;
};

/// All ways to place every axis on dimension 0, on dimension 1, unreduced or nowhere, in every
/// order.
void enumerateLayouts(ArrayRef<StringAttr> axes, Layout layout, bool partial,
                      std::vector<Layout> &out) {
  out.push_back(layout);
  for (auto [i, axis] : llvm::enumerate(axes)) {
    SmallVector<StringAttr> rest(axes);
    rest.erase(rest.begin() + i);
    for (size_t dim = 0; dim < 2; ++dim) {
      Layout next = layout;
      next.dims[dim].axes.push_back(axis);
      enumerateLayouts(rest, next, partial, out);
    }
    if (partial &&
        (layout.unreduced.empty() || layout.unreduced.back().getValue() < axis.getValue())) {
      Layout next = layout;
      next.unreduced.push_back(axis);
      enumerateLayouts(rest, next, partial, out);
    }
  }
}

std::string print(const Layout &layout, const Mesh &mesh) {
  std::string text;
  llvm::raw_string_ostream(text) << layout.getAttr(mesh);
  return text;
}

std::vector<Layout> withoutRepeats(std::vector<Layout> layouts, const Mesh &mesh) {
  llvm::StringSet<> seen;
  std::vector<Layout> unique;
  for (Layout &layout : layouts)
    if (seen.insert(print(layout, mesh)).second)
      unique.push_back(std::move(layout));
  return unique;
}

class ResharderTest : public ::testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(ResharderTest, EveryPairOfShardings) {
  MLIRContext context;
  context.loadDialect<DistDialect>();
  OpBuilder builder(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder.getUnknownLoc());
  builder.setInsertionPointToStart(module->getBody());
  SmallVector<Attribute> axes;
  SmallVector<StringAttr> names;
  for (auto [i, size] : llvm::enumerate(GetParam())) {
    std::string name(1, static_cast<char>('a' + i));
    axes.push_back(AxisAttr::get(&context, name, size));
    names.push_back(builder.getStringAttr(name));
  }
  Mesh mesh(MeshOp::create(builder, builder.getUnknownLoc(), "mesh", builder.getArrayAttr(axes)));
  Simulator simulator(mesh);
  std::vector<Layout> sources, targets;
  enumerateLayouts(names, Layout::replicated(2), /*partial=*/true, sources);
  enumerateLayouts(names, Layout::replicated(2), /*partial=*/false, targets);
  sources = withoutRepeats(std::move(sources), mesh);
  targets = withoutRepeats(std::move(targets), mesh);

  int64_t pairs = 0, collectives = 0;
  size_t most = 0;
  auto whole = RankedTensorType::get({kSize, kSize}, builder.getF32Type());
  for (const Layout &from : sources) {
    std::vector<Shard> start;
    for (int64_t device = 0; device < simulator.numDevices; ++device)
      start.push_back(simulator.make(device, from));
    for (const Layout &to : targets) {
      FailureOr<SmallVector<ReshardStep>> steps = planReshard(from, to, whole, mesh);
      ASSERT_TRUE(succeeded(steps)) << print(from, mesh) << " to " << print(to, mesh);
      std::vector<Shard> end = simulator.run(*steps, start);
      for (int64_t device = 0; device < simulator.numDevices; ++device)
        ASSERT_EQ(end[device].data, simulator.make(device, to).data)
            << print(from, mesh) << " to " << print(to, mesh) << ", device " << device;
      // Never more than reducing everything, gathering everything and slicing.
      FailureOr<SmallVector<ReshardStep>> naive =
          planReshard(from, Layout::replicated(2), whole, mesh);
      RankedTensorType local = getLocalType(whole, from, mesh);
      EXPECT_LE(getReshardBytes(*steps, local, mesh), getReshardBytes(*naive, local, mesh) + 1e-9)
          << print(from, mesh) << " to " << print(to, mesh);
      size_t count = llvm::count_if(
          *steps, [](const ReshardStep &step) { return step.kind != ReshardStep::Slice; });
      collectives += count;
      most = std::max(most, count);
      ++pairs;
    }
  }
  std::cout << pairs << " pairs, " << double(collectives) / double(pairs)
            << " collectives on average, " << most << " at most\n";
  EXPECT_GT(pairs, 3);
}

INSTANTIATE_TEST_SUITE_P(Meshes, ResharderTest,
                         ::testing::Values(std::vector<int64_t>{2}, std::vector<int64_t>{4},
                                           std::vector<int64_t>{8}, std::vector<int64_t>{2, 2},
                                           std::vector<int64_t>{2, 4}, std::vector<int64_t>{4, 2},
                                           std::vector<int64_t>{2, 2, 2}));
} // namespace
