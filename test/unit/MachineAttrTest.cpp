//===- MachineAttrTest.cpp - machines in IR, and costs on a mesh ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/MachineAttr.h"
#include "cluster/Presets.h"
#include "dialects/dist/Sharding.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"

#include <gmock/gmock.h>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace {

class MachineAttrTest : public testing::Test {
protected:
  MachineAttrTest() { context.loadDialect<DistDialect>(); }
  /// A module with the mesh <["data" = 2, "model" = 8, "micro" = 4]> on the machine.
  OwningOpRef<ModuleOp> makeModule(const std::optional<cluster::Machine> &machine) {
    auto module = parseSourceString<ModuleOp>(
        R"(dist.mesh @mesh <["data" = 2, "model" = 8, "micro" = 4]>)", &context);
    if (machine)
      (*module)->setAttr(kCluster, makeMachineAttr(&context, *machine));
    return module;
  }
  static cluster::Machine place(const std::string &name, int64_t devices) {
    std::string error;
    return cluster::makeMachine(*cluster::findCluster(name, error), devices);
  }

  MLIRContext context;
};

TEST_F(MachineAttrTest, MachinesAreReadAsTheyWereWritten) {
  for (const std::string &name : cluster::listPresets()) {
    cluster::Machine machine = place(name + "x2", int64_t(2) * cluster::findPreset(name)->devices);
    std::string text;
    llvm::raw_string_ostream(text) << makeMachineAttr(&context, machine);
    EXPECT_EQ(parseMachineAttr(mlir::parseAttribute(text, &context)), machine) << text;
  }
}

TEST_F(MachineAttrTest, CoresAreThereWhereTheyAreKnown) {
  cluster::Machine machine = place("cpu", 4);
  std::string text;
  llvm::raw_string_ostream(text) << makeMachineAttr(&context, machine);
  EXPECT_EQ(text.find("cores"), std::string::npos);
  machine.kinds[0].cores = 0.5;
  text.clear();
  llvm::raw_string_ostream(text) << makeMachineAttr(&context, machine);
  EXPECT_NE(text.find("cores = 5.000000e-01"), std::string::npos) << text;
  EXPECT_EQ(parseMachineAttr(mlir::parseAttribute(text, &context)), machine);
  text.replace(text.find("cores = "), strlen("cores = "), "cores = -");
  EXPECT_FALSE(parseMachineAttr(mlir::parseAttribute(text, &context)));
}

TEST_F(MachineAttrTest, WhatIsNoMachineIsRefused) {
  std::string text;
  llvm::raw_string_ostream(text) << makeMachineAttr(&context, place("HGX-H100x2", 16));
  auto isMachine = [&](const std::string &changed) {
    Attribute attr = mlir::parseAttribute(changed, &context);
    return attr && parseMachineAttr(attr).has_value();
  };
  EXPECT_TRUE(isMachine(text));
  EXPECT_FALSE(parseMachineAttr(nullptr));
  EXPECT_FALSE(isMachine("7"));
  EXPECT_FALSE(isMachine("{}"));
  for (auto [from, to] : {std::pair("kinds = [", "kind = ["),
                          {"block = 8", "block = 0"},
                          {"block = 8 : i64", "block = 8 : i32"},
                          {"bytes_per_second = ", "bytes_per_second = -"},
                          {"latency_seconds = ", "latency_seconds = -"},
                          {"launch_seconds = ", "launch = "},
                          {"f32 = ", "f31 = "},
                          {"name = \"H100-80GB\"", "name = 7"},
                          {"array<f64: 1.000000e+00, ", "array<f64: "}}) {
    size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    EXPECT_FALSE(isMachine(std::string(text).replace(at, strlen(from), to))) << from;
  }
}

TEST_F(MachineAttrTest, GroupsAreWhereTheirStridesPutThem) {
  OwningOpRef<ModuleOp> module = makeModule(place("HGX-H100x2", 16));
  Mesh mesh = Mesh::get(*module);
  auto axis = [&](const char *name) { return StringAttr::get(&context, name); };
  double bytes = 1e9, start = 7e-6;
  auto seconds = [&](std::initializer_list<const char *> names) {
    SmallVector<StringAttr> along = llvm::map_to_vector(names, axis);
    return mesh.getSeconds(cluster::Collective::AllGather, bytes, along);
  };
  EXPECT_DOUBLE_EQ(seconds({"model"}), start + 3 * 2e-6 + bytes * 7 / 8 / 360e9);
  EXPECT_DOUBLE_EQ(seconds({"data"}), start + 14e-6 + bytes / 2 / 40e9);
  EXPECT_LT(seconds({"data", "model"}), seconds({"data"}) + seconds({"model"}));
  EXPECT_EQ(seconds({}), 0);
}

TEST_F(MachineAttrTest, WithoutOneRanksAreCpusOfAHost) {
  OwningOpRef<ModuleOp> module = makeModule(std::nullopt);
  Mesh mesh = Mesh::get(*module);
  EXPECT_EQ(mesh.getMachine(), place("cpu", 64));
  StringAttr data = StringAttr::get(&context, "data");
  EXPECT_DOUBLE_EQ(mesh.getSeconds(cluster::Collective::Send, 2e6, {data}), 40e-6 + 40e-6 + 1e-3);
  OwningOpRef<ModuleOp> empty = ModuleOp::create(UnknownLoc::get(&context));
  EXPECT_TRUE(Mesh::get(*empty).getAxes().empty());
}

} // namespace
