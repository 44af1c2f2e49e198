//===- ProgramGenerator.h - random programs of the loom dialect -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_EQUIVALENCE_PROGRAMGENERATOR_H
#define GRIDLOOM_TEST_EQUIVALENCE_PROGRAMGENERATOR_H

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace gridloom::testing {

/// The number of elements in the weight file that all random programs share.
inline constexpr int64_t kNumWeightElements = 1 << 14;

struct RandomInput {
  std::string name;
  std::string element; ///< f32 or i64
  std::vector<int64_t> shape;
  int64_t low = 0, high = 0; ///< values are whole numbers in [low, high]
};

/// An output that may differ between two runs by at most `error`: 0 if all arithmetic before it is
/// exact, like sums and products of small whole numbers.
struct RandomOutput {
  std::string name;
  double error = 0;
};

struct RandomProgram {
  std::string name;
  std::string text; ///< weights and one function
  std::vector<RandomInput> inputs;
  std::vector<RandomOutput> outputs;
  /// Names and ranks of inputs, weights and outputs, which users may shard.
  std::vector<std::pair<std::string, int64_t>> values;
  int64_t numOperations = 0;
};

/// Writes a program of 3 to 12 steps, some of several operations, on tensors of at most 4096
/// elements. With `rows`, all inputs and outputs have a leading dimension that is a multiple of it,
/// and no step mixes rows, so that the program can run on micro-batches.
class ProgramGenerator {
public:
  ProgramGenerator(std::string name, uint64_t seed, int64_t rows);
  RandomProgram generate();

private:
  struct Value {
    std::string name;
    std::string element; ///< f32, i64 or i1
    std::vector<int64_t> shape;
    double bound; ///< of |x|
    double error;
    bool used = false;
  };

  int64_t pick(int64_t low, int64_t high) { return low + int64_t(random() % (high - low + 1)); }
  bool chance(int percent) { return pick(1, 100) <= percent; }
  int64_t pickSize();
  std::vector<int64_t> pickShape(int64_t rank);
  /// The first dimension that a step may change.
  int64_t first() const { return batched ? 1 : 0; }

  Value emit(const std::string &op, const std::string &type, Value result);
  Value unary(const std::string &op, const Value &input, double bound, double error);
  Value binary(const std::string &op, const Value &lhs, const Value &rhs, double bound,
               double error);
  Value splat(const Value &like, double value);
  Value spread(const Value &input, const std::vector<int64_t> &shape, std::vector<int64_t> dims);
  Value addInput(const std::string &element, const std::vector<int64_t> &shape, int64_t low,
                 int64_t high);
  Value addWeight(const std::vector<int64_t> &shape);
  /// A parameter of this shape: a weight, an input, or a literal.
  Value addParameter(const std::vector<int64_t> &shape);
  Value add(const Value &lhs, const Value &rhs);
  Value multiply(const Value &lhs, const Value &rhs);
  Value softmax(const Value &input, int64_t dim);

  size_t pickIndex(const std::string &element);
  Value &use(size_t index) {
    state.values[index].used = true;
    return state.values[index];
  }
  /// Another value of this type, or a new one.
  Value pickLike(const Value &like);
  bool keep(const Value &value);

  bool addStep();
  bool addUnary();
  bool addSmooth();
  bool addBinary();
  bool addDivide();
  bool addSelect();
  bool addInteger();
  bool addBroadcast();
  bool addReshape();
  bool addTranspose();
  bool addSlice();
  bool addConcatenate();
  bool addGather();
  bool addDot();
  bool addReduce();
  bool addSoftmax();
  bool addLayerNorm();
  bool addPosition();
  bool addAttention();
  bool addPerceptron();

  std::mt19937_64 random;
  std::string prefix;
  bool batched;
  int64_t rows, batch = 0;
  struct State {
    int64_t next = 0;
    RandomProgram program;
    std::string weights, body;
    std::vector<Value> values;
  } state;
};

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_EQUIVALENCE_PROGRAMGENERATOR_H
