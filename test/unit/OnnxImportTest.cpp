//===- OnnxImportTest.cpp -------------------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Import.h"
#include "compiler/onnx/OpTable.h"
#include "passes/simplify/Simplify.h"

#include "onnx-ml.pb.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <fstream>
#include <random>
#include <unistd.h>

using namespace mlir;
using namespace gridloom;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

void addValue(onnx::ValueInfoProto &value, const std::string &name, std::vector<std::string> dims) {
  value.set_name(name);
  auto &tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(onnx::TensorProto::FLOAT);
  for (const std::string &dim : dims) {
    auto &added = *tensor.mutable_shape()->add_dim();
    if (isdigit(dim[0]))
      added.set_dim_value(std::stoi(dim));
    else
      added.set_dim_param(dim);
  }
}

void addNode(onnx::GraphProto &graph, const std::string &op, std::vector<std::string> inputs,
             const std::string &output) {
  onnx::NodeProto &node = *graph.add_node();
  node.set_op_type(op);
  for (const std::string &input : inputs)
    node.add_input(input);
  node.add_output(output);
}

void addFloats(onnx::GraphProto &graph, const std::string &name, std::vector<int64_t> shape) {
  onnx::TensorProto &tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  std::string data;
  for (int64_t dim : shape)
    tensor.add_dims(dim);
  for (int64_t i = 0, count = loom::countElements(shape); i < count; ++i) {
    float value = static_cast<float>(i) / 8;
    data.append(reinterpret_cast<const char *>(&value), sizeof(value));
  }
  tensor.set_raw_data(data);
}

/// y = relu(reshape(x, [0, -1]) * w + b), with a shape computed from shapes.
onnx::ModelProto makeModel() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto &graph = *model.mutable_graph();
  graph.set_name("test");
  addValue(*graph.add_input(), "x", {"batch", "2", "4"});
  addValue(*graph.add_output(), "y", {"batch", "3"});
  addFloats(graph, "w", {8, 3});
  addFloats(graph, "b", {3});
  addFloats(graph, "main", {1});
  onnx::TensorProto &rest = *graph.add_initializer();
  rest.set_name("rest");
  rest.set_data_type(onnx::TensorProto::INT64);
  rest.add_dims(2);
  rest.add_int64_data(0);
  rest.add_int64_data(-1);
  addNode(graph, "Reshape", {"x", "rest"}, "flat");
  addNode(graph, "MatMul", {"flat", "w"}, "product");
  addNode(graph, "Add", {"product", "b"}, "sum");
  addNode(graph, "Mul", {"sum", "main"}, "scaled");
  addNode(graph, "Relu", {"scaled"}, "y");
  return model;
}

class OnnxImportTest : public testing::Test {
protected:
  void SetUp() override {
    folder =
        std::filesystem::temp_directory_path() / ("gridloom-import-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    context.disableMultithreading();
    context.getDiagEngine().registerHandler(
        [this](Diagnostic &diagnostic) { errors.push_back(diagnostic.str()); });
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  OwningOpRef<ModuleOp> import(const std::string &bytes, std::vector<std::string> dims = {}) {
    std::ofstream(folder / "m.onnx", std::ios::binary) << bytes;
    ImportOptions options;
    for (const std::string &dim : dims)
      EXPECT_EQ(options.addDim(dim), "");
    return importOnnx(context, folder / "m.onnx", options);
  }

  MLIRContext context;
  std::vector<std::string> errors;
  std::filesystem::path folder;
};

TEST_F(OnnxImportTest, WeightsStayInTheFile) {
  auto module = import(makeModel().SerializeAsString(), {"batch=5"});
  ASSERT_TRUE(module) << testing::PrintToString(errors);
  std::ifstream file(folder / "m.onnx", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> names;
  for (auto weight : module->getOps<loom::WeightOp>()) {
    names.push_back(weight.getSymName().str());
    auto source = weight.getSource();
    EXPECT_EQ(source.getFile(), "");
    ASSERT_LE(source.getOffset() + source.getBytes(), bytes.size());
    // Element i is i / 8.
    float second;
    std::memcpy(&second, bytes.data() + source.getOffset() + 4, 4);
    EXPECT_EQ(second, 0.125f);
  }
  // One element is a constant, and is listed.
  EXPECT_THAT(names, ElementsAre("w", "b"));
  auto folded = (*module)->getAttrOfType<ArrayAttr>(loom::kFolded);
  ASSERT_EQ(folded.size(), 2u);
  EXPECT_EQ(cast<DictionaryAttr>(folded[0]).getAs<StringAttr>("name"), "rest");
  EXPECT_EQ(cast<DictionaryAttr>(folded[1]).getAs<StringAttr>("name"), "main");
  for (Attribute entry : folded)
    EXPECT_TRUE(cast<DictionaryAttr>(entry).getAs<StringAttr>("reader"));
  // Of four zero bytes.
  EXPECT_EQ(cast<DictionaryAttr>(folded[1]).getAs<StringAttr>("sha256"),
            "df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119");
}

TEST_F(OnnxImportTest, DescribesModelAndFunction) {
  auto module = import(makeModel().SerializeAsString(), {"batch=5"});
  ASSERT_TRUE(module);
  EXPECT_TRUE(succeeded(verifyImported(*module)));
  auto model = (*module)->getAttrOfType<DictionaryAttr>(loom::kModel);
  EXPECT_EQ(model.getAs<IntegerAttr>("bytes").getInt(),
            static_cast<int64_t>(std::filesystem::file_size(folder / "m.onnx")));
  EXPECT_EQ(model.getAs<StringAttr>("sha256").size(), 64u);
  auto function = *module->getOps<func::FuncOp>().begin();
  // An initializer already has the name `main`.
  EXPECT_EQ(function.getSymName(), "main_");
  EXPECT_EQ(function->getAttrOfType<StringAttr>(loom::kEntry), "main");
  auto names = function.getResultAttrOfType<ArrayAttr>(0, loom::kDimNames);
  EXPECT_EQ(cast<StringAttr>(names[0]), "batch");
  EXPECT_EQ(cast<StringAttr>(names[1]), "");
  for (Operation &op : function.front())
    if (isa<loom::DotGeneralOp>(op))
      EXPECT_EQ(loom::getNodeName(op.getLoc()), "MatMul_1");
}

TEST_F(OnnxImportTest, OneFunctionPerSpecialisation) {
  auto module = import(makeModel().SerializeAsString(), {"batch=1,8"});
  ASSERT_TRUE(module);
  std::vector<std::string> symbols;
  for (auto function : module->getOps<func::FuncOp>()) {
    symbols.push_back(function.getSymName().str());
    int64_t batch =
        cast<IntegerAttr>(function->getAttrOfType<DictionaryAttr>(loom::kDims).get("batch"))
            .getInt();
    EXPECT_EQ(cast<RankedTensorType>(function.getArgumentTypes()[0]).getDimSize(0), batch);
  }
  EXPECT_THAT(symbols, ElementsAre("main_", "main_batch8"));
  PassManager simplify(&context);
  addSimplifyPasses(simplify);
  EXPECT_TRUE(succeeded(simplify.run(*module))) << testing::PrintToString(errors);
  // Both share the weights.
  EXPECT_EQ(llvm::range_size(module->getOps<loom::WeightOp>()), 2);
}

/// Whatever the bytes, the answer is a program that verifies or an error that says something.
TEST_F(OnnxImportTest, DamagedFilesGiveErrors) {
  std::string good = makeModel().SerializeAsString();
  int imported = 0, refused = 0;
  auto attempt = [&](const std::string &bytes) {
    errors.clear();
    if (auto module = import(bytes, {"batch=2"})) {
      ++imported;
      EXPECT_TRUE(succeeded(verify(*module))) << testing::PrintToString(errors);
    } else {
      ++refused;
      ASSERT_FALSE(errors.empty());
      EXPECT_THAT(errors.front(), testing::Not(testing::IsEmpty()));
    }
  };
  for (int part = 0; part < 64; ++part)
    attempt(good.substr(0, good.size() * part / 64));
  EXPECT_EQ(imported, 0);
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (int change = 0; change < 1 + round % 3; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    attempt(bytes);
  }
  for (int round = 0; round < 200; ++round) {
    std::string bytes(random() % 300, '\0');
    for (char &c : bytes)
      c = static_cast<char>(random());
    attempt(bytes);
  }
  EXPECT_GT(refused, 800);
  EXPECT_GT(imported, 100);
}

TEST(OnnxOpTableTest, RowsCoverVersions) {
  using onnx_import::findRule;
  ASSERT_TRUE(findRule("Softmax", 12) && findRule("Softmax", 13));
  EXPECT_NE(findRule("Softmax", 12), findRule("Softmax", 13));
  EXPECT_FALSE(findRule("Gelu", 19));
  EXPECT_TRUE(findRule("Gelu", 20));
  EXPECT_FALSE(findRule("Add", 6));
  EXPECT_FALSE(findRule("Add", onnx_import::kLastOpset + 1));
  EXPECT_FALSE(findRule("NoSuchOperator", 17));
}

} // namespace
