//===- TrainingPlan.h - a hand-made training plan -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_TRAININGPLAN_H
#define GRIDLOOM_TEST_RUNTIME_TRAININGPLAN_H

#include "test/runtime/PlanBuilder.h"

namespace gridloom::test {

/// A plan over `data` ranks, which split the batch of 4 and the state w [1, 4]:
///
///   train_step  s = sum of x [4, 4] over the batch, g = mean of ok [4, 1];
///               w += learning_rate * g * s; train/step += g;
///               loss = s[0], count = 4, gradient_norm = learning_rate * g, committed = g
///   eval        loss = w[0] (before), count = 4, seen = s[0];
///               with `hasMetric` also accuracy = s[0] and accuracy.count = s[1]
///
/// With small numbers all sums are exact, and w records the rate at which each sample was used.
class TrainingPlan {
public:
  static constexpr int64_t batch = 4, width = 4;

  explicit TrainingPlan(int data = 1, bool hasMetric = false) : data(data), hasMetric(hasMetric) {
    builder.addAxis("data", data);
    builder.manifest["training"] = {
        {"learning_rate", 0.5}, {"losses", {"sum(x)"}}, {"optimizer", "sum"}};
    PlanBuilder::addState(stage(), "w", {1, width}, {1, width / data}, {{}, {"data"}});
    PlanBuilder::addState(stage(), "train/step", {}, {});
    addTrainStep();
    addEval();
  }

  PlanBuilder builder;

private:
  /// Adds the steps of one entry.
  class Program {
  public:
    Program(TrainingPlan &plan, const std::string &name, const std::vector<std::string> &values,
            bool hasRate)
        : data(plan.data), program(plan.addEntry(name, values, hasRate)),
          block(PlanBuilder::addBlock(program)) {}

    uint32_t add(schema::Space space, const std::vector<int64_t> &shape, uint32_t index = 0) {
      return PlanBuilder::addBuffer(program, space, shape, index);
    }
    uint32_t temporary(const std::vector<int64_t> &shape) {
      offset += 64;
      program.set_registered_bytes(offset);
      return PlanBuilder::addBuffer(program, schema::REGISTERED, shape, 0, offset - 64);
    }
    uint32_t constant(const std::vector<int64_t> &shape, const std::vector<float> &values) {
      uint32_t buffer = add(schema::CONSTANT, shape);
      PlanBuilder::addConstant(program, toBytes(values));
      return buffer;
    }
    void copy(uint32_t from, uint32_t to) { PlanBuilder::addCopy(block, from, to); }
    /// out = lhs [1, k] rhs [k, n], plus `residual` if it is not -1.
    void multiply(uint32_t lhs, uint32_t rhs, uint32_t out, int64_t n, int64_t k,
                  int64_t residual = -1) {
      PlanBuilder::addMatmul(block, lhs, rhs, out, 1, n, k);
      schema::Library &call = *block.mutable_steps(block.steps_size() - 1)->mutable_library();
      if (residual < 0)
        return;
      call.mutable_matmul()->mutable_epilogue()->set_residual(true);
      call.add_inputs(uint32_t(residual));
    }
    void group(schema::Group::Kind kind, uint32_t from, uint32_t to) {
      uint32_t event = program.num_events();
      program.set_num_events(event + 2);
      PlanBuilder::addRecord(block, event, 0);
      PlanBuilder::addWait(block, event, 1);
      PlanBuilder::addGroup(block, kind, {"data"}, {from}, {to}).set_sequence(event / 2);
      PlanBuilder::addRecord(block, event + 1, 1);
      PlanBuilder::addWait(block, event + 1, 0);
    }

    int data;
    schema::Specialisation &program;
    schema::Block &block;

  private:
    uint64_t offset = 0;
  };

  schema::Stage &stage() { return builder.stages[0]; }

  schema::Specialisation &addEntry(const std::string &name, const std::vector<std::string> &values,
                                   bool hasRate) {
    using nlohmann::json;
    std::vector<json> inputs = {PlanBuilder::argument("x", {batch, width}),
                                PlanBuilder::argument("ok", {batch, 1})};
    if (hasRate)
      inputs.push_back(PlanBuilder::argument("learning_rate", {}));
    std::vector<json> outputs;
    schema::Entry &entry = *stage().add_entries();
    entry.set_name(name);
    schema::Specialisation &program = *entry.add_specialisations();
    PlanBuilder::addStream(program, "compute", schema::Stream::COMPUTE);
    PlanBuilder::addStream(program, "comm", schema::Stream::COMMUNICATION);
    int64_t rows = batch / data;
    PlanBuilder::fillBinding(*program.add_inputs(), "x", {rows, width}, {{"data"}, {}});
    PlanBuilder::fillBinding(*program.add_inputs(), "ok", {rows, 1}, {{"data"}, {}});
    if (hasRate)
      PlanBuilder::fillBinding(*program.add_inputs(), "learning_rate", {});
    for (const std::string &value : values) {
      outputs.push_back(PlanBuilder::argument(value, {}));
      PlanBuilder::fillBinding(*program.add_outputs(), value, {});
    }
    json specialisation = {{"dims", {{"batch", batch}}}, {"inputs", inputs}, {"outputs", outputs}};
    builder.manifest["entries"].push_back(
        {{"name", name}, {"specialisations", json::array({specialisation})}});
    return program;
  }

  void addTrainStep() {
    Program p(*this, "train_step", {"loss", "count", "gradient_norm", "committed"}, true);
    int64_t rows = batch / data, columns = width / data;
    uint32_t x = p.add(schema::INPUT, {rows, width}), ok = p.add(schema::INPUT, {rows, 1}, 1);
    uint32_t rate = p.add(schema::INPUT, {}, 2);
    uint32_t w = p.add(schema::STATE, {1, columns}, 0), step = p.add(schema::STATE, {}, 1);
    uint32_t ones = p.constant({1, rows}, std::vector<float>(size_t(rows), 1));
    uint32_t parts = p.constant({1, rows}, std::vector<float>(size_t(rows), 1.f / batch));
    uint32_t one = p.constant({}, {1}), first = p.constant({width, 1}, {1, 0, 0, 0});
    uint32_t count = p.constant({}, {float(batch)});
    uint32_t partial = p.temporary({1, width}), partialOk = p.temporary({});
    uint32_t sum = p.temporary({1, width}), mine = p.temporary({1, columns}), g = p.temporary({});
    uint32_t factor = p.temporary({}), newW = p.temporary({1, columns}), newStep = p.temporary({});
    p.multiply(ones, x, partial, width, rows);
    p.multiply(parts, ok, partialOk, 1, rows);
    p.group(schema::Group::ALL_REDUCE, partial, sum);
    p.group(schema::Group::ALL_REDUCE, partialOk, g);
    p.group(schema::Group::REDUCE_SCATTER, partial, mine);
    p.multiply(rate, g, factor, 1, 1);
    p.multiply(factor, mine, newW, columns, 1, w);
    p.multiply(g, one, newStep, 1, 1, step);
    p.copy(newW, w);
    p.copy(newStep, step);
    p.multiply(sum, first, p.add(schema::OUTPUT, {}, 0), 1, width);
    p.copy(count, p.add(schema::OUTPUT, {}, 1));
    p.copy(factor, p.add(schema::OUTPUT, {}, 2));
    p.copy(g, p.add(schema::OUTPUT, {}, 3));
  }

  void addEval() {
    std::vector<std::string> values = {"loss", "count", "seen"};
    if (hasMetric)
      values.insert(values.end(), {"accuracy", "accuracy.count"});
    Program p(*this, "eval", values, false);
    int64_t rows = batch / data, columns = width / data;
    uint32_t x = p.add(schema::INPUT, {rows, width});
    uint32_t w = p.add(schema::STATE, {1, columns}, 0);
    uint32_t ones = p.constant({1, rows}, std::vector<float>(size_t(rows), 1));
    uint32_t first = p.constant({width, 1}, {1, 0, 0, 0});
    uint32_t count = p.constant({}, {float(batch)});
    uint32_t partial = p.temporary({1, width}), sum = p.temporary({1, width});
    uint32_t mine = p.temporary({1, columns}), whole = p.temporary({1, width});
    p.multiply(ones, x, partial, width, rows);
    p.copy(w, mine);
    p.group(schema::Group::ALL_REDUCE, partial, sum);
    p.group(schema::Group::ALL_GATHER, mine, whole);
    p.multiply(whole, first, p.add(schema::OUTPUT, {}, 0), 1, width);
    p.copy(count, p.add(schema::OUTPUT, {}, 1));
    p.multiply(sum, first, p.add(schema::OUTPUT, {}, 2), 1, width);
    if (!hasMetric)
      return;
    uint32_t second = p.constant({width, 1}, {0, 1, 0, 0});
    p.multiply(sum, first, p.add(schema::OUTPUT, {}, 3), 1, width);
    p.multiply(sum, second, p.add(schema::OUTPUT, {}, 4), 1, width);
  }

  int data;
  bool hasMetric;
};

} // namespace gridloom::test

#endif // GRIDLOOM_TEST_RUNTIME_TRAININGPLAN_H
