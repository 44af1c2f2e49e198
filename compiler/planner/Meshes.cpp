//===- Meshes.cpp - meshes that a planner tries ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Meshes.h"

#include "dialects/dist/Sharding.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

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
    if (part.empty())
      continue;
    auto [name, number] = part.split('=');
    int64_t size;
    if (name.empty() || number.getAsInteger(10, size) || size < 1) {
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
  // A strategy of one kind uses every axis for it as it is.
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

MeshSpec gridloom::makeSearchMesh(const cluster::Machine &machine, int64_t count, size_t mostAxes) {
  int64_t block = machine.levels.empty() ? count : machine.levels.front().block;
  if (block <= 1 || block >= count || count % block != 0)
    block = count;
  std::vector<int64_t> sizes(block == count ? mostAxes : mostAxes - 1, 1);
  for (int64_t rest = block, factor = block; rest > 1; rest /= factor) {
    // The largest prime left, to the smallest axis.
    factor = 1;
    for (int64_t i = 2, left = rest; left > 1; ++i)
      for (; left % i == 0; left /= i)
        factor = i;
    *std::min_element(sizes.begin(), sizes.end()) *= factor;
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sizes.insert(sizes.begin(), count / block);
  MeshSpec mesh;
  for (int64_t size : sizes)
    if (size > 1)
      mesh.push_back({std::string(1, "xyzw"[mesh.size()]), size});
  return mesh;
}
