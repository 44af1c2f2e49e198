//===- InsertMesh.cpp - declare the mesh ------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Shard.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_INSERTMESH
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct InsertMeshPass : public gridloom::impl::InsertMeshBase<InsertMeshPass> {
  using InsertMeshBase::InsertMeshBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (getMesh(module)) {
      module.emitError("the program has a mesh already");
      return signalPassFailure();
    }
    SmallVector<Attribute> list;
    SmallVector<StringRef> parts;
    StringRef(axes).split(parts, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
    for (StringRef part : parts) {
      auto [name, number] = part.split('=');
      int64_t size;
      if (name.empty() || number.getAsInteger(10, size) || size < 1) {
        module.emitError("cannot read mesh axis '")
            << part << "'; write name=size with a size of at least 1";
        return signalPassFailure();
      }
      if (name == MeshOp::kMicroAxis) {
        module.emitError("mesh axis '")
            << name << "' is reserved for micro-batches; give the axis another name";
        return signalPassFailure();
      }
      list.push_back(AxisAttr::get(&getContext(), name, size));
    }
    OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
    MeshOp::create(builder, module.getLoc(), "mesh", builder.getArrayAttr(list));
  }
};
} // namespace
