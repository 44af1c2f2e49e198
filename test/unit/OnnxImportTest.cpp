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

  OwningOpRef<ModuleOp> import(const std::string &bytes, std::vector<std::string> dims = {},
                               bool isTraining = false) {
    std::ofstream(folder / "m.onnx", std::ios::binary) << bytes;
    ImportOptions options;
    options.isTraining = isTraining;
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
  // A tensor of one element becomes a constant, and is listed as folded.
  EXPECT_THAT(names, ElementsAre("w", "b"));
  auto folded = (*module)->getAttrOfType<ArrayAttr>(loom::kFolded);
  ASSERT_EQ(folded.size(), 2u);
  EXPECT_EQ(cast<DictionaryAttr>(folded[0]).getAs<StringAttr>("name"), "rest");
  EXPECT_EQ(cast<DictionaryAttr>(folded[1]).getAs<StringAttr>("name"), "main");
  for (Attribute entry : folded)
    EXPECT_TRUE(cast<DictionaryAttr>(entry).getAs<StringAttr>("reader"));
  // The SHA-256 of four zero bytes.
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
  // An initializer is already named `main`.
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
  // Both specialisations share the weights.
  EXPECT_EQ(llvm::range_size(module->getOps<loom::WeightOp>()), 2);
}

//===----------------------------------------------------------------------===//
// Models in training mode
//===----------------------------------------------------------------------===//

/// y = BatchNormalization(x) of `channels` channels, `count` times with the same statistics.
onnx::ModelProto makeBatchNorms(const std::string &channels, int count) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(15);
  onnx::GraphProto &graph = *model.mutable_graph();
  addValue(*graph.add_input(), "x", {"4", channels, "6"});
  addValue(*graph.add_output(), "y" + std::to_string(count), {"4", channels, "6"});
  for (const char *name : {"scale", "bias", "mean", "var"})
    addFloats(graph, name, {std::stoi(channels)});
  for (int i = 0; i < count; ++i) {
    std::string suffix = std::to_string(i + 1);
    addNode(graph, "BatchNormalization",
            {i ? "y" + std::to_string(i) : "x", "scale", "bias", "mean", "var"}, "y" + suffix);
    onnx::NodeProto &node = *graph.mutable_node(i);
    node.add_output("mean" + suffix);
    node.add_output("var" + suffix);
    onnx::AttributeProto &mode = *node.add_attribute();
    mode.set_name("training_mode");
    mode.set_type(onnx::AttributeProto::INT);
    mode.set_i(1);
  }
  return model;
}

/// The weights that results update, "" for other results.
std::vector<std::string> getUpdates(func::FuncOp function) {
  std::vector<std::string> updates;
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    auto name = function.getResultAttrOfType<StringAttr>(i, loom::kUpdates);
    updates.push_back(name ? name.str() : "");
  }
  return updates;
}

TEST_F(OnnxImportTest, RunningStatisticsAreResultsInTraining) {
  std::string bytes = makeBatchNorms("3", 1).SerializeAsString();
  auto plain = import(bytes), trained = import(bytes, {}, /*isTraining=*/true);
  ASSERT_TRUE(plain && trained) << testing::PrintToString(errors);
  // Inference has neither the updates nor their weights.
  EXPECT_THAT(getUpdates(*plain->getOps<func::FuncOp>().begin()), ElementsAre(""));
  auto weightsOf = [](ModuleOp module) {
    std::vector<std::string> names;
    for (auto weight : module.getOps<loom::WeightOp>())
      names.push_back(weight.getSymName().str());
    return names;
  };
  EXPECT_THAT(weightsOf(*plain), ElementsAre("scale", "bias"));
  EXPECT_THAT(weightsOf(*trained), ElementsAre("scale", "bias", "mean", "var"));
  auto function = *trained->getOps<func::FuncOp>().begin();
  EXPECT_THAT(getUpdates(function), ElementsAre("", "mean", "var"));
  EXPECT_TRUE(succeeded(verifyImported(*trained))) << testing::PrintToString(errors);
  // Removing unused values keeps the updates.
  PassManager simplify(&context);
  addSimplifyPasses(simplify);
  ASSERT_TRUE(succeeded(simplify.run(*trained))) << testing::PrintToString(errors);
  EXPECT_THAT(getUpdates(function), ElementsAre("", "mean", "var"));
  for (unsigned i : {1U, 2U})
    EXPECT_EQ(function.getResultTypes()[i], RankedTensorType::get({3}, Float32Type::get(&context)));
}

TEST_F(OnnxImportTest, SharedStatisticsAreUpdatedOneAfterAnother) {
  auto module = import(makeBatchNorms("3", 2).SerializeAsString(), {}, /*isTraining=*/true);
  ASSERT_TRUE(module) << testing::PrintToString(errors);
  auto function = *module->getOps<func::FuncOp>().begin();
  EXPECT_THAT(getUpdates(function), ElementsAre("", "mean", "var"));
  // old * momentum + ..., where old is the other node's sum.
  auto last = function.front().getTerminator()->getOperand(1).getDefiningOp<loom::AddOp>();
  ASSERT_TRUE(last);
  auto kept = last.getLhs().getDefiningOp<loom::MultiplyOp>();
  ASSERT_TRUE(kept);
  auto first = kept.getLhs().getDefiningOp<loom::AddOp>();
  ASSERT_TRUE(first);
  EXPECT_EQ(loom::getNodeName(last.getLoc()), "BatchNormalization_1");
  EXPECT_EQ(loom::getNodeName(first.getLoc()), "BatchNormalization_0");
  auto start = first.getLhs().getDefiningOp<loom::MultiplyOp>();
  ASSERT_TRUE(start && start.getLhs().getDefiningOp<loom::GetWeightOp>());
}

TEST_F(OnnxImportTest, VectorsOfOneElementAreWeightsInTraining) {
  std::string bytes = makeBatchNorms("1", 1).SerializeAsString();
  auto plain = import(bytes), trained = import(bytes, {}, /*isTraining=*/true);
  ASSERT_TRUE(plain && trained) << testing::PrintToString(errors);
  EXPECT_TRUE(plain->getOps<loom::WeightOp>().empty());
  EXPECT_EQ(llvm::range_size(trained->getOps<loom::WeightOp>()), 4);
  EXPECT_THAT(getUpdates(*trained->getOps<func::FuncOp>().begin()), ElementsAre("", "mean", "var"));
}

/// y = Dropout(Dropout(x)), both of `ratio`; the first with `seed`, if given.
onnx::ModelProto makeDropouts(float ratio, std::optional<int64_t> seed = std::nullopt) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(13);
  onnx::GraphProto &graph = *model.mutable_graph();
  addValue(*graph.add_input(), "x", {"4", "6"});
  addValue(*graph.add_output(), "y", {"4", "6"});
  onnx::TensorProto &given = *graph.add_initializer();
  given.set_name("ratio");
  given.set_data_type(onnx::TensorProto::FLOAT);
  given.add_dims(1);
  given.set_raw_data(std::string(reinterpret_cast<const char *>(&ratio), sizeof(ratio)));
  onnx::TensorProto &mode = *graph.add_initializer();
  mode.set_name("mode");
  mode.set_data_type(onnx::TensorProto::BOOL);
  mode.set_raw_data(std::string(1, '\1'));
  addNode(graph, "Dropout", {"x", "ratio", "mode"}, "first");
  addNode(graph, "Dropout", {"first", "ratio", "mode"}, "y");
  for (int i = 0; seed && i < 2; ++i) {
    onnx::AttributeProto &attribute = *graph.mutable_node(i)->add_attribute();
    attribute.set_name("seed");
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(*seed);
  }
  return model;
}

std::vector<std::pair<int64_t, int64_t>> getSeedsAndStreams(ModuleOp module) {
  std::vector<std::pair<int64_t, int64_t>> result;
  module.walk([&](loom::RandomBitsOp op) {
    EXPECT_FALSE(op.getIteration());
    result.emplace_back(op.getSeed(), op.getStream());
  });
  return result;
}

TEST_F(OnnxImportTest, DropoutsDrawBitsOfTheirOwn) {
  for (bool isTraining : {false, true}) {
    auto named = import(makeDropouts(0.25).SerializeAsString(), {}, isTraining);
    ASSERT_TRUE(named) << testing::PrintToString(errors);
    auto seeds = getSeedsAndStreams(*named);
    ASSERT_EQ(seeds.size(), 2u);
    EXPECT_NE(seeds[0].first, seeds[1].first);
    EXPECT_EQ(seeds, getSeedsAndStreams(*import(makeDropouts(0.25).SerializeAsString())));
    // LLVM's hash tables reserve extreme keys in some types.
    for (int64_t seed : {int64_t(0), INT64_MAX, INT64_MIN, int64_t(-1)}) {
      auto seeded = import(makeDropouts(0.25, seed).SerializeAsString(), {}, isTraining);
      ASSERT_TRUE(seeded) << testing::PrintToString(errors);
      EXPECT_THAT(getSeedsAndStreams(*seeded),
                  ElementsAre(std::pair(seed, int64_t(0)), std::pair(seed, int64_t(1))));
      PassManager simplify(&context);
      addSimplifyPasses(simplify);
      EXPECT_TRUE(succeeded(simplify.run(*seeded))) << testing::PrintToString(errors);
      EXPECT_EQ(getSeedsAndStreams(*seeded).size(), 2u);
    }
  }
}

TEST_F(OnnxImportTest, DropoutRatios) {
  auto none = import(makeDropouts(0).SerializeAsString());
  ASSERT_TRUE(none);
  auto function = *none->getOps<func::FuncOp>().begin();
  EXPECT_EQ(function.front().getTerminator()->getOperand(0), function.getArgument(0));
  for (float ratio : {1.0F, -0.5F, 2.0F, std::numeric_limits<float>::quiet_NaN()}) {
    errors.clear();
    EXPECT_FALSE(import(makeDropouts(ratio).SerializeAsString()));
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_THAT(errors[0], HasSubstr("Dropout 'Dropout_0': ratio is"));
    EXPECT_THAT(errors[0], HasSubstr("expected at least 0 and below 1"));
  }
}

/// Damaged bytes give a program that verifies or an error with text.
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

TEST_F(OnnxImportTest, DamagedTrainingModelsGiveErrors) {
  std::mt19937 random(12);
  int imported = 0, refused = 0;
  for (const onnx::ModelProto &model : {makeBatchNorms("3", 2), makeDropouts(0.25, 5)}) {
    std::string good = model.SerializeAsString();
    for (int round = 0; round < 300; ++round) {
      std::string bytes = good;
      bytes[random() % bytes.size()] = static_cast<char>(random());
      errors.clear();
      auto module = import(bytes, {}, /*isTraining=*/round % 2);
      ++(module ? imported : refused);
      if (module)
        EXPECT_TRUE(succeeded(verify(*module))) << testing::PrintToString(errors);
      else
        EXPECT_FALSE(errors.empty());
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(imported, 50);
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
