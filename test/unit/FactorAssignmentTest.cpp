//===- FactorAssignmentTest.cpp - every way to split every operation -------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// For every operation, every assignment of mesh axes to the factors of its rule that shardings can
// express: operands and result are split accordingly, the shard phase must write the assignment as
// the operation's splits, the partitioned operation must have the local shapes of those splits, and
// the program, interpreted on virtual ranks in exact mode, must equal the unsplit one bit by bit.
// Sizes divide in one variant and not in the other. The same where all values are replicated and
// only the operation's splits name axes, as in a program written by hand.
//
//===----------------------------------------------------------------------===//
#include "EquivalenceCases.h"

#include "dialects/dist/Splits.h"
#include "dialects/loom/Halo.h"
#include "passes/communicate/Communicate.h"
#include "passes/partition/Partition.h"
#include "passes/shard/Shard.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/Support/Regex.h"

#include <iostream>
#include <map>
#include <set>

using namespace gridloom;
using namespace gridloom::testing;

namespace {

struct MeshShape {
  const char *name;
  std::vector<int64_t> sizes;
};
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): without it there is no test.
const MeshShape kMeshes[] = {{"2", {2}},      {"3", {3}},      {"4", {4}},
                             {"6", {6}},      {"8", {8}},      {"2x2", {2, 2}},
                             {"2x3", {2, 3}}, {"2x4", {2, 4}}, {"2x2x2", {2, 2, 2}}};

/// The case with sizes that no axis divides: every size in a tensor's type is replaced.
std::string makeUneven(const std::string &text) {
  static const std::map<std::string, std::string> sizes = {
      {"24", "15"}, {"18", "10"}, {"12", "7"}, {"6", "5"}, {"4", "3"}};
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t begin = text.find("tensor<", i);
    if (begin == std::string::npos)
      return result + text.substr(i);
    begin += 7;
    size_t end = text.find('>', begin);
    result += text.substr(i, begin - i);
    llvm::SmallVector<llvm::StringRef> parts;
    llvm::StringRef(text).slice(begin, end).split(parts, 'x');
    for (auto [number, part] : llvm::enumerate(parts)) {
      auto found = sizes.find(part.str());
      result += (number ? "x" : "") + (found == sizes.end() ? part.str() : found->second);
    }
    i = end;
  }
  return result;
}

/// All assignments of each axis to one factor or none, in every order within a factor.
std::vector<std::vector<dist::AxisList>>
enumerateAssignments(size_t factors, llvm::ArrayRef<mlir::StringAttr> axes) {
  std::vector<std::vector<dist::AxisList>> all = {std::vector<dist::AxisList>(factors)};
  for (mlir::StringAttr axis : axes) {
    std::vector<std::vector<dist::AxisList>> next = all;
    for (const auto &assignment : all)
      for (size_t factor = 0; factor < factors; ++factor)
        for (size_t place = 0; place <= assignment[factor].size(); ++place) {
          next.push_back(assignment);
          dist::AxisList &list = next.back()[factor];
          list.insert(list.begin() + place, axis);
        }
    all = std::move(next);
  }
  return all;
}

/// The operation that defines %r.
mlir::Operation *getSubject(mlir::ModuleOp module) {
  auto function = *module.getOps<mlir::func::FuncOp>().begin();
  return function.front().getTerminator()->getOperand(0).getDefiningOp();
}

class FactorAssignment : public ::testing::TestWithParam<Case> {
protected:
  dist::MeshOp insertMesh(mlir::ModuleOp module, const MeshShape &shape) {
    mlir::OpBuilder builder = mlir::OpBuilder::atBlockBegin(module.getBody());
    llvm::SmallVector<mlir::Attribute> list;
    for (auto [i, size] : llvm::enumerate(shape.sizes))
      list.push_back(dist::AxisAttr::get(context.get(), std::string(1, 'x' + i), size));
    return dist::MeshOp::create(builder, builder.getUnknownLoc(), "mesh",
                                builder.getArrayAttr(list));
  }

  /// Replicates every value, and puts every operation into one stage.
  static void setWhole(mlir::ModuleOp module) {
    dist::Mesh mesh(dist::getMesh(module));
    auto function = *module.getOps<mlir::func::FuncOp>().begin();
    mlir::Builder builder(module.getContext());
    auto set = [&](mlir::Value value) {
      auto type = mlir::cast<mlir::RankedTensorType>(value.getType());
      dist::setSharding(value, dist::Sharding::replicated(type.getRank()).getAttr(mesh), "test");
    };
    llvm::for_each(function.getArguments(), set);
    for (mlir::Operation &op : function.front()) {
      op.setAttr(dist::kStage, builder.getI64IntegerAttr(0));
      llvm::for_each(op.getResults(), set);
    }
    setOutput(module);
  }

  /// Gives the program's output the sharding of the subject's result.
  static void setOutput(mlir::ModuleOp module) {
    auto function = *module.getOps<mlir::func::FuncOp>().begin();
    function.setResultAttr(0, dist::kSharding, dist::getSharding(getSubject(module)->getResult(0)));
    function.setResultAttr(0, dist::kOrigin, dist::OriginAttr::get(module.getContext(), "test"));
  }

  /// Splits the subject's tensors by the assignment; other values are replicated.
  static void shard(mlir::ModuleOp module, const std::vector<dist::AxisList> &assignment) {
    setWhole(module);
    dist::Mesh mesh(dist::getMesh(module));
    mlir::Operation *subject = getSubject(module);
    dist::ShardingRule rule = mlir::cast<dist::ShardingRuleInterface>(subject).getShardingRule();
    dist::FactorSplits splits(rule.sizes.size());
    splits.axes.assign(assignment.begin(), assignment.end());
    for (auto [i, value] : llvm::enumerate(llvm::concat<const mlir::Value>(
             llvm::to_vector_of<mlir::Value>(subject->getOperands()),
             llvm::to_vector_of<mlir::Value>(subject->getResults()))))
      dist::setSharding(value, dist::project(rule, i, splits, mesh).getAttr(mesh), "test");
    setOutput(module);
  }

  /// Runs the passes of the shard phase that write and verify splits. False if one fails.
  bool chooseSplits(mlir::ModuleOp module) {
    mlir::PassManager manager(context.get());
    manager.addPass(createDeclareStorage());
    manager.addPass(createChooseSplits());
    manager.addPass(createVerifySharded());
    return succeeded(manager.run(module));
  }

  /// Whether the splits on the subject are the assignment.
  static bool isSplit(mlir::ModuleOp module, const std::vector<dist::AxisList> &assignment) {
    auto splits = getSubject(module)->getAttrOfType<dist::SplitsAttr>(dist::kSplits);
    return splits && llvm::equal(splits.getFactors(), assignment,
                                 [](dist::DimShardingAttr factor, const dist::AxisList &axes) {
                                   return factor.getAxes() == llvm::ArrayRef(axes);
                                 });
  }

  /// Writes splits on the subject by hand. False when its rule does not allow them.
  static bool writeSplits(mlir::ModuleOp module, const std::vector<dist::AxisList> &assignment) {
    mlir::Operation *subject = getSubject(module);
    dist::Mesh mesh(dist::getMesh(module));
    dist::ShardingRule rule = mlir::cast<dist::ShardingRuleInterface>(subject).getShardingRule();
    dist::OpSplits splits;
    splits.factors = dist::FactorSplits(rule.sizes.size());
    splits.factors.axes.assign(assignment.begin(), assignment.end());
    subject->setAttr(dist::kSplits, splits.getAttr(module.getContext()));
    if (mlir::isa<loom::GetWeightOp>(subject)) // the storage must match
      dist::setStorage(subject->getResult(0),
                       dist::project(rule, 0, splits.factors, mesh).getAttr(mesh));
    return dist::findFault(rule, splits.factors, mesh).empty();
  }

  /// The shardings of the subject's tensors by its splits: operands, then results.
  static llvm::SmallVector<dist::Sharding> getShardings(mlir::Operation *subject,
                                                        const dist::Mesh &mesh) {
    dist::ShardingRule rule = mlir::cast<dist::ShardingRuleInterface>(subject).getShardingRule();
    auto splits = dist::readSplits(subject, rule, mesh);
    EXPECT_TRUE(succeeded(splits));
    return dist::getSplitShardings(subject, rule, *splits, mesh);
  }

  /// The number of permutes in the price of the subject's splits.
  static size_t countWindowMoves(mlir::Operation *subject, const dist::Mesh &mesh) {
    dist::ShardingRule rule = mlir::cast<dist::ShardingRuleInterface>(subject).getShardingRule();
    auto splits = dist::readSplits(subject, rule, mesh);
    llvm::SmallVector<dist::Sharding> shardings = getShardings(subject, mesh);
    llvm::SmallVector<mlir::RankedTensorType> types = dist::getTensorTypes(subject);
    size_t count = 0;
    for (const dist::WindowDim &window : rule.windows) {
      size_t factor = rule.tensors[window.tensor][window.dim].front();
      int64_t parts = mesh.getSize(splits->factors.axes[factor]);
      mlir::RankedTensorType type = types[window.tensor];
      int64_t local =
          dist::getLocalType(type, shardings[window.tensor], mesh).getDimSize(window.dim);
      if (parts == 1 || local == 0)
        continue;
      loom::WindowMoves moves = loom::planWindowMoves(
          window, type.getDimSize(window.dim), local, parts,
          dist::getLocalSize(rule.sizes[factor], parts, splits->factors.granules[factor]));
      count += moves.gathers ? 0 : moves.moved.size();
    }
    return count;
  }

  /// Partitions the module, and checks that its result is computed from the shards that the splits
  /// name. Windows, which are wider, are compared by their number of permutes; results of other
  /// operations than the subject's kind are not compared.
  void partition(mlir::ModuleOp module) {
    dist::Mesh mesh(dist::getMesh(module));
    mlir::Operation *subject = getSubject(module);
    std::string name = subject->getName().getStringRef().str();
    mlir::Location loc = subject->getLoc();
    dist::ShardingRule rule = mlir::cast<dist::ShardingRuleInterface>(subject).getShardingRule();
    llvm::SmallVector<dist::Sharding> shardings = getShardings(subject, mesh);
    llvm::SmallVector<mlir::RankedTensorType> types = dist::getTensorTypes(subject);
    for (auto [type, sharding] : llvm::zip_equal(types, shardings))
      type = dist::getLocalType(type, sharding, mesh);
    dist::ShardingAttr made = shardings[subject->getNumOperands()].getAttr(mesh);
    size_t moves = countWindowMoves(subject, mesh), permutes = 0;
    mlir::PassManager manager(context.get());
    addPartitionPasses(manager);
    ASSERT_TRUE(succeeded(manager.run(module)));
    bool isMade = false;
    module.walk([&](mlir::Operation *op) {
      EXPECT_FALSE(op->hasAttr(dist::kSplits)) << "a local operation is split again";
      permutes += mlir::isa<dist::PermuteOp>(op) && op->getLoc() == loc;
      if (op->getNumResults() == 0 || op->getLoc() != loc ||
          dist::getSharding(op->getResult(0)) != made)
        return;
      isMade = true;
      if (op->getName().getStringRef() != name ||
          op->getNumOperands() + op->getNumResults() != types.size())
        return;
      for (auto [i, type] : llvm::enumerate(dist::getTensorTypes(op)))
        for (int64_t dim = 0; dim < type.getRank(); ++dim)
          if (!rule.isWindow(i, dim))
            EXPECT_EQ(type.getDimSize(dim), types[i].getDimSize(dim)) << name << " tensor " << i;
    });
    EXPECT_TRUE(isMade) << name << " is not made as its splits say";
    if (!rule.windows.empty())
      EXPECT_EQ(permutes, moves) << name;
  }

  /// Partitions and runs the module; the output has to be `expected`.
  void check(mlir::ModuleOp module, const NamedTensors &inputs, const loom::HostTensor &expected,
             llvm::StringRef what) {
    std::string before;
    llvm::raw_string_ostream stream(before);
    module.print(stream);
    partition(module);
    ASSERT_FALSE(HasFailure()) << what.str() << ": " << context.takeError() << "\n" << before;
    mlir::PassManager manager(context.get());
    addCommunicatePasses(manager);
    bool passed = succeeded(manager.run(module));
    ASSERT_TRUE(passed) << what.str() << ": " << context.takeError() << "\n" << before;
    llvm::FailureOr<NamedTensors> outputs = run(module, inputs, exact);
    ASSERT_TRUE(succeeded(outputs)) << what.str() << ": " << context.takeError() << "\n" << before;
    std::string after;
    llvm::raw_string_ostream afterStream(after);
    if (!(*outputs)["out"].isBitwiseEqual(expected))
      module.print(afterStream);
    ASSERT_TRUE((*outputs)["out"].isBitwiseEqual(expected)) << what.str() << "\n"
                                                            << before << after;
  }

  void runAll(const Case &test, mlir::ModuleOp module, int64_t indexLimit) {
    NamedTensors inputs = makeCaseInputs(test, module, indexLimit);
    auto expected = run(module, inputs, exact);
    ASSERT_TRUE(succeeded(expected)) << context.takeError();
    size_t factors =
        mlir::cast<dist::ShardingRuleInterface>(getSubject(module)).getShardingRule().sizes.size();
    for (const MeshShape &shape : kMeshes) {
      llvm::SmallVector<mlir::StringAttr> axes;
      for (size_t i = 0; i < shape.sizes.size(); ++i)
        axes.push_back(mlir::StringAttr::get(context.get(), std::string(1, 'x' + i)));
      for (const auto &assignment : enumerateAssignments(factors, axes)) {
        mlir::OwningOpRef<mlir::ModuleOp> split = module.clone();
        insertMesh(*split, shape);
        mlir::OwningOpRef<mlir::ModuleOp> written = split->clone();
        shard(*split, assignment);
        ASSERT_TRUE(chooseSplits(*split)) << shape.name << ": " << context.takeError();
        if (!isSplit(*split, assignment))
          continue; // shardings cannot express it
        check(*split, inputs, (*expected)["out"], shape.name);
        if (HasFatalFailure())
          return;
        ++count;
        setWhole(*written);
        ASSERT_TRUE(writeSplits(*written, assignment)) << shape.name;
        ASSERT_TRUE(chooseSplits(*written)) << shape.name << ": " << context.takeError();
        ASSERT_TRUE(isSplit(*written, assignment)) << shape.name;
        check(*written, inputs, (*expected)["out"], std::string(shape.name) + ", by hand");
        if (HasFatalFailure())
          return;
      }
    }
  }

  Context context;
  InterpreterOptions exact{.exact = true, .observer = {}};
  int64_t count = 0;
};

TEST_P(FactorAssignment, SplitIsUnsplit) {
  const Case &test = GetParam();
  std::string text = makeText(test);
  auto module = context.parse(text);
  ASSERT_TRUE(module);
  runAll(test, *module, 12);
  if (HasFatalFailure())
    return;
  std::string uneven = makeUneven(text);
  mlir::OwningOpRef<mlir::ModuleOp> other;
  if (uneven != text)
    other = mlir::parseSourceString<mlir::ModuleOp>(uneven, context.get());
  context.takeError();
  EXPECT_GT(count, 0) << "no assignment is legal";
  if (other)
    runAll(test, *other, 7);
  std::cout << "equivalence: " << getSubject(*module)->getName().getStringRef().str() << ": "
            << count << " cases" << (other ? "" : ", with the sizes of the text only") << "\n";
}

INSTANTIATE_TEST_SUITE_P(Operations, FactorAssignment, ::testing::ValuesIn(kCases),
                         [](const auto &info) { return std::string(info.param.name); });

/// Loops and branches have bodies, not factors: test/python/test_control_flow.py splits the values
/// that they carry.
bool hasBody(mlir::RegisteredOperationName name) {
  return name.getStringRef() == "loom.while" || name.getStringRef() == "loom.if";
}

/// Every operation with a rule is the subject of some case.
TEST(FactorAssignmentCoverage, EveryOperationHasACase) {
  Context context;
  std::set<std::string> covered;
  for (const Case &test : kCases)
    if (auto module = context.parse(makeText(test)))
      covered.insert(getSubject(*module)->getName().getStringRef().str());
  for (mlir::RegisteredOperationName name : context.get()->getRegisteredOperationsByDialect("loom"))
    if (name.hasInterface<dist::ShardingRuleInterface>() && !hasBody(name))
      EXPECT_TRUE(covered.contains(name.getStringRef().str()))
          << name.getStringRef().str() << " is the last operation of no case";
}

} // namespace
