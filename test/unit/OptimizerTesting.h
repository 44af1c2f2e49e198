//===- OptimizerTesting.h - optimizers run step by step ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_OPTIMIZERTESTING_H
#define GRIDLOOM_TEST_UNIT_OPTIMIZERTESTING_H

#include "InterpreterTesting.h"

#include "passes/train/Clipping.h"
#include "passes/train/Optimizers.h"

#include "mlir/IR/Verifier.h"

namespace gridloom::testing {

/// A function whose results are formulas of its arguments.
class Formula {
public:
  struct Value {
    std::string name;
    mlir::RankedTensorType type;
  };
  using Build = llvm::function_ref<llvm::SmallVector<Term>(llvm::ArrayRef<Term>)>;

  explicit Formula(Context &context) : context(context) {}

  /// Results are named out0, out1, ... and are built from the arguments in their order.
  void build(llvm::ArrayRef<Value> arguments, Build build) {
    mlir::OpBuilder builder(context.get());
    mlir::Location loc = builder.getUnknownLoc();
    module = mlir::ModuleOp::create(loc);
    builder.setInsertionPointToEnd(module->getBody());
    auto types = llvm::map_to_vector(arguments, [](const Value &v) { return mlir::Type(v.type); });
    auto function =
        mlir::func::FuncOp::create(builder, loc, "main", builder.getFunctionType(types, {}));
    function->setAttr("loom.entry", builder.getStringAttr("main"));
    function->setAttr("loom.dims", builder.getDictionaryAttr({}));
    mlir::Block *body = function.addEntryBlock();
    builder.setInsertionPointToEnd(body);
    llvm::SmallVector<Term> terms;
    for (auto [i, argument] : llvm::enumerate(arguments)) {
      function.setArgAttr(i, "loom.name", builder.getStringAttr(argument.name));
      terms.emplace_back(builder, loc, body->getArgument(i));
    }
    llvm::SmallVector<mlir::Value> results(
        llvm::map_range(build(terms), [](const Term &term) { return mlir::Value(term); }));
    mlir::func::ReturnOp::create(builder, loc, results);
    function.setFunctionType(builder.getFunctionType(types, mlir::ValueRange(results).getTypes()));
    for (size_t i = 0; i < results.size(); ++i)
      function.setResultAttr(i, "loom.name", builder.getStringAttr("out" + std::to_string(i)));
    EXPECT_TRUE(succeeded(mlir::verify(*module))) << context.takeError();
  }

  /// The results' values.
  std::vector<std::vector<double>> evaluate(const NamedTensors &inputs) {
    auto outputs = run(*module, inputs);
    EXPECT_TRUE(succeeded(outputs)) << context.takeError();
    std::vector<std::vector<double>> values;
    if (succeeded(outputs))
      for (size_t i = 0; i < outputs->size(); ++i)
        values.push_back((*outputs)["out" + std::to_string(i)].toDoubles());
    return values;
  }

  mlir::ModuleOp getModule() { return *module; }

private:
  Context &context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// A parameter and the optimizer's state for it.
class Trainee {
public:
  /// `element` is f64 or f32, also for the learning rate and the step.
  Trainee(const std::string &text, llvm::ArrayRef<int64_t> shape, bool isDouble = true,
          const train::ParameterSettings &settings = {})
      : kind(isDouble ? loom::ElementKind::F64 : loom::ElementKind::F32), shape(shape),
        formula(context) {
    std::string error;
    auto optimizer = train::Optimizer::parse(text, error);
    EXPECT_TRUE(optimizer) << error;
    mlir::Builder types(context.get());
    mlir::FloatType element = isDouble ? mlir::FloatType(types.getF64Type()) : types.getF32Type();
    auto whole = mlir::RankedTensorType::get(shape, element);
    auto scalar = mlir::RankedTensorType::get({}, element);
    slots = optimizer->getSlots(whole);
    numOwn = slots.size();
    slots.append(optimizer->getSharedSlots(element));
    llvm::SmallVector<Formula::Value> arguments = {
        {"parameter", whole}, {"gradient", whole}, {"rate", scalar}, {"step", scalar}};
    for (const train::Slot &slot : slots) {
      arguments.push_back({slot.name, slot.type});
      state.emplace_back(slot.type.getNumElements(), slot.init);
    }
    formula.build(arguments, [&](llvm::ArrayRef<Term> terms) {
      llvm::ArrayRef<Term> kept = terms.drop_front(4);
      llvm::SmallVector<Term> shared = optimizer->updateShared(kept.drop_front(numOwn), terms[3]);
      auto values = optimizer->update(terms[0], terms[1], kept.take_front(numOwn),
                                      {terms[2], terms[3], shared}, settings);
      llvm::SmallVector<Term> results = {values.parameter};
      results.append(values.slots);
      results.append(shared);
      return results;
    });
  }

  /// Runs the step after `step`.
  void advance(llvm::ArrayRef<double> gradient, double rate) {
    NamedTensors inputs;
    inputs["parameter"] = loom::HostTensor::fromDoubles(kind, shape, parameter);
    inputs["gradient"] = loom::HostTensor::fromDoubles(kind, shape, gradient);
    inputs["rate"] = loom::HostTensor::fromDoubles(kind, {}, rate);
    inputs["step"] = loom::HostTensor::fromDoubles(kind, {}, double(++step));
    for (auto [slot, values] : llvm::zip_equal(slots, state))
      inputs[slot.name] = loom::HostTensor::fromDoubles(kind, slot.type.getShape(), values);
    auto results = formula.evaluate(inputs);
    ASSERT_EQ(results.size(), 1 + state.size());
    parameter = results.front();
    state.assign(results.begin() + 1, results.end());
  }

  std::vector<double> &getState(llvm::StringRef name) {
    for (auto [slot, values] : llvm::zip_equal(slots, state))
      if (slot.name == name)
        return values;
    ADD_FAILURE() << "no slot " << name.str();
    return parameter;
  }
  mlir::ModuleOp getModule() { return formula.getModule(); }

  int64_t step = 0; ///< number of steps done
  std::vector<double> parameter;
  llvm::SmallVector<train::Slot> slots; ///< the parameter's own, then shared ones
  std::vector<std::vector<double>> state;

private:
  Context context;
  loom::ElementKind kind;
  llvm::SmallVector<int64_t> shape;
  size_t numOwn = 0;
  Formula formula;
};

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_UNIT_OPTIMIZERTESTING_H
