//===- Meshes.cpp - meshes that a planner tries ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Meshes.h"

#include "dialects/dist/Sharding.h"
#include "support/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

#include <numeric>
#include <set>

using namespace mlir;
using namespace gridloom;

std::string gridloom::print(const MeshSpec &mesh) {
  return llvm::join(
      llvm::map_range(
          mesh, [](const AxisSpec &axis) { return axis.name + "=" + std::to_string(axis.size); }),
      ",");
}

FailureOr<MeshSpec> gridloom::parseMesh(ModuleOp module, StringRef text) {
  MeshSpec mesh;
  int64_t devices = 1;
  for (StringRef part : llvm::split(text, ',')) {
    if (text.empty()) // one device
      continue;
    auto [name, number] = part.split('=');
    name = name.trim();
    int64_t size;
    bool isText = llvm::json::isUTF8(name) && makePrintable(name.str()) == name;
    if (name.empty() || !isText || number.trim().getAsInteger(10, size) || size < 1) {
      module.emitError("cannot read '")
          << part << "' in --mesh; write name=size, e.g. data=2,model=2";
      return failure();
    }
    if (size > dist::kMaxDevices) {
      module.emitError("--mesh has an axis '")
          << name << "' of " << size << " devices; the most are " << dist::kMaxDevices;
      return failure();
    }
    if (name == dist::MeshOp::kMicroAxis) {
      module.emitError("--mesh names axis '")
          << name << "', which is reserved for micro-batches; give the axis another name";
      return failure();
    }
    if (llvm::any_of(mesh, [&](const AxisSpec &axis) { return axis.name == name; })) {
      module.emitError("--mesh names axis '") << name << "' twice";
      return failure();
    }
    mesh.push_back({name.str(), size});
    devices *= size;
    if (devices > dist::kMaxDevices) {
      module.emitError("--mesh ") << text << " has " << devices << " devices or more; the most are "
                                  << dist::kMaxDevices;
      return failure();
    }
  }
  return mesh;
}

int64_t gridloom::countDevices(const MeshSpec &mesh) {
  int64_t count = 1;
  for (const AxisSpec &axis : mesh)
    count *= axis.size;
  return count;
}

std::vector<MeshSpec> gridloom::enumerateMeshes(int64_t count, StringRef strategy) {
  // A strategy of one kind uses all axes for it, so a second axis would change nothing.
  bool twoAxes = strategy == "auto" || (strategy.contains("tp") && strategy.contains('+'));
  std::vector<MeshSpec> meshes;
  for (int64_t data = 1; data <= count; ++data) {
    if (count % data)
      continue;
    for (int64_t model = 1; model <= count / data; ++model) {
      if (count / data % model)
        continue;
      for (int64_t second : {1, 2, 4}) {
        if (model % second || (second > 1 && (!twoAxes || model / second < second)))
          continue;
        MeshSpec mesh;
        for (auto [name, size] :
             {std::pair("data", data), std::pair("model", model / second),
              std::pair("tensor", second), std::pair("pipe", count / data / model)})
          if (size > 1)
            mesh.push_back({name, size});
        meshes.push_back(mesh);
      }
    }
  }
  return meshes;
}

int64_t gridloom::getFastBlock(const cluster::Machine &machine, int64_t count) {
  int64_t block = machine.levels.size() < 2 ? count : std::gcd(machine.levels.front().block, count);
  return block > 1 ? block : count;
}

/// "x=4,y=2"; leaves out axes of one device.
static MeshSpec nameAxes(ArrayRef<int64_t> sizes) {
  MeshSpec mesh;
  for (int64_t size : sizes)
    if (size > 1)
      mesh.push_back({std::string(1, "xyzw"[mesh.size()]), size});
  return mesh;
}

MeshSpec gridloom::makeSearchMesh(const cluster::Machine &machine, int64_t count, size_t mostAxes) {
  int64_t block = getFastBlock(machine, count);
  SmallVector<int64_t> sizes(block == count ? mostAxes : mostAxes - 1, 1);
  for (int64_t rest = block, factor = block; rest > 1; rest /= factor) {
    // The largest prime factor left goes to the smallest axis.
    factor = 1;
    for (int64_t i = 2, left = rest; left > 1; ++i)
      for (; left % i == 0; left /= i)
        factor = i;
    *std::min_element(sizes.begin(), sizes.end()) *= factor;
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sizes.insert(sizes.begin(), count / block);
  return nameAxes(sizes);
}

using Sizes = SmallVector<int64_t, 4>;

/// All ways to write a number as a product of `factors` factors from 2 to `most`, the largest
/// first. Products with a small first factor come first.
static std::vector<Sizes> listProducts(int64_t number, size_t factors, int64_t most) {
  if (factors == 0)
    return number == 1 ? std::vector<Sizes>(1) : std::vector<Sizes>();
  std::vector<Sizes> all;
  for (int64_t first = 2; first <= std::min(number, most); ++first) {
    if (number % first != 0)
      continue;
    for (const Sizes &rest : listProducts(number / first, factors - 1, first)) {
      all.push_back({first});
      llvm::append_range(all.back(), rest);
    }
  }
  return all;
}

namespace {
/// The axes of a mesh: those between blocks of the fastest links, then those within.
struct Axes {
  Sizes between, within;

  MeshSpec name() const {
    Sizes all = between;
    llvm::append_range(all, within);
    return nameAxes(all);
  }
};
} // namespace

/// The meshes of exactly `axes` axes, those with the most axes within blocks first. They can
/// express every split of a mesh with fewer axes.
static std::vector<Axes> listMeshes(int64_t blocks, int64_t block, size_t axes) {
  std::vector<Axes> all;
  for (size_t outer = blocks > 1 ? 1 : 0; outer <= axes; ++outer)
    for (const Sizes &between : listProducts(blocks, outer, blocks))
      for (const Sizes &within : listProducts(block, axes - outer, block))
        all.push_back({between, within});
  return all;
}

/// Products of all subsets of the sizes, 1 included.
static std::set<int64_t> listShares(ArrayRef<int64_t> sizes) {
  std::set<int64_t> shares = {1};
  for (int64_t size : sizes)
    for (int64_t share : std::set<int64_t>(shares))
      shares.insert(share * size);
  return shares;
}

/// The numbers of devices that subsets of a mesh's axes have together.
static std::set<int64_t> listShares(const Axes &mesh) {
  Sizes all = mesh.between;
  llvm::append_range(all, mesh.within);
  return listShares(all);
}

/// Whether `rows` can be split over axes so that the other axes stay within a block or cover a
/// whole one.
static bool splitsRows(const Axes &mesh, int64_t rows) {
  int64_t blocks = 1;
  for (int64_t size : mesh.between)
    blocks *= size;
  return listShares(mesh.between).contains(rows) ||
         (rows % blocks == 0 && listShares(mesh.within).contains(rows / blocks));
}

std::vector<MeshSpec> gridloom::makeSearchMeshes(const cluster::Machine &machine, int64_t count,
                                                 int64_t rows, size_t mostAxes, size_t mostMeshes) {
  int64_t block = getFastBlock(machine, count);
  std::vector<Axes> all;
  for (size_t axes = mostAxes; all.empty() && axes > 0; --axes)
    all = listMeshes(count / block, block, axes);
  bool hasForRows = llvm::any_of(all, [&](const Axes &axes) { return splitsRows(axes, rows); });
  std::vector<MeshSpec> meshes;
  std::set<int64_t> said;
  while (meshes.size() < mostMeshes) {
    const Axes *best = nullptr;
    size_t most = 0;
    for (const Axes &axes : all) {
      if (meshes.empty() && hasForRows && !splitsRows(axes, rows))
        continue;
      std::set<int64_t> shares = listShares(axes);
      size_t added = llvm::count_if(shares, [&](int64_t share) { return !said.contains(share); });
      if (added > most) {
        best = &axes;
        most = added;
      }
    }
    if (!best)
      break;
    said.merge(listShares(*best));
    meshes.push_back(best->name());
  }
  return meshes;
}

size_t gridloom::countPrimes(int64_t number) {
  size_t primes = 0;
  for (int64_t factor = 2; number > 1; ++factor)
    for (; number % factor == 0; number /= factor)
      ++primes;
  return primes;
}

std::vector<MeshSpec> gridloom::listFinestMeshes(int64_t devices, size_t mostAxes) {
  size_t count = std::min(mostAxes, countPrimes(devices));
  std::vector<MeshSpec> meshes;
  Sizes sizes;
  auto extend = [&](auto &self, int64_t rest) -> void {
    if (sizes.size() == count) {
      if (rest == 1)
        meshes.push_back(nameAxes(sizes));
      return;
    }
    for (int64_t size = 2; size <= rest; ++size) {
      if (rest % size)
        continue;
      sizes.push_back(size);
      self(self, rest / size);
      sizes.pop_back();
    }
  };
  extend(extend, devices);
  return meshes;
}
