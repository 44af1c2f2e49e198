//===- LibraryVerifier.cpp - bounds of library calls ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/HostArray.h"
#include "runtime/core/Plan.h"
#include "runtime/core/ProgramVerifier.h"

#include <algorithm>

using namespace gridloom;
using namespace gridloom::rt;

using Numbers = google::protobuf::RepeatedField<int64_t>;

static std::vector<int64_t> copy(const Numbers &numbers) {
  return {numbers.begin(), numbers.end()};
}

static std::string spell(schema::DataType type) {
  return isDataType(type) ? std::string(nameOf(DataType(type)))
                          : "type " + std::to_string(int(type));
}

void ProgramVerifier::verifyLibrary(const schema::Library &call, const std::string &name) {
  if (isDerived)
    fail(name + " calls a library; a prologue must not");
  if (int(call.has_matmul()) + int(call.has_convolution()) + int(call.has_attention()) != 1)
    fail(name + " is not one library call; a newer runtime may know it");
  if (!call.has_matmul() && call.fallback())
    fail(name + " falls back to kernel " + std::to_string(call.fallback() - 1) +
         "; only a matrix multiplication does");
  if (call.has_convolution())
    return verifyConvolution(call, name);
  if (call.has_attention())
    return verifyAttention(call, name);
  verifyMatmul(call, name);
}

void ProgramVerifier::verifyWorkspace(uint64_t limit, const std::string &name) {
  constexpr uint64_t most = uint64_t(16) << 30;
  if (limit > most)
    fail(name + " may use " + std::to_string(limit) + " bytes of workspace, at most " +
         std::to_string(most) + " are possible");
}

/// Checks that operands and result of a convolution or attention have its type.
void ProgramVerifier::verifyTypes(const schema::Library &call, schema::DataType type,
                                  const std::string &name) {
  if (type != schema::F32 && type != schema::F16 && type != schema::BF16)
    fail(name + " computes " + spell(type) + ", which its library does not support");
  for (uint32_t index : call.inputs())
    if (getBuffer(index, name).type() != type)
      fail(name + " computes " + spell(type) + " and reads " +
           spell(getBuffer(index, name).type()));
  if (getWritable(call.outputs(0), name).type() != type)
    fail(name + " computes " + spell(type) + " and writes " +
         spell(getBuffer(call.outputs(0), name).type()));
}

void ProgramVerifier::verifyDistinct(const std::vector<int64_t> &sizes, const Numbers &strides,
                                     const std::string &name) const {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 1 && strides.Get(int(i)) == 0)
      fail(name + " writes " + std::to_string(sizes[i]) + " elements to one place");
}

/// Checks that the sizes fit together; the caller checks operands against buffers. Bounds all
/// numbers so that arithmetic on them does not overflow.
void ProgramVerifier::verifyWindow(const schema::Convolution &convolution,
                                   const std::string &name) const {
  constexpr int maxRank = 5;
  constexpr int64_t most = int64_t(1) << 30;
  int rank = convolution.input_size();
  if (rank < 3 || rank > maxRank || convolution.weight_size() != rank ||
      convolution.output_size() != rank)
    fail(name + " convolves " + std::to_string(rank) + " dimensions with " +
         std::to_string(convolution.weight_size()) + " to " +
         std::to_string(convolution.output_size()) + ", needs 3 to " + std::to_string(maxRank));
  auto check = [&](const Numbers &numbers, int count, int64_t least, const char *what) {
    if (numbers.size() != count)
      fail(name + " has " + std::to_string(numbers.size()) + " " + what + " for " +
           std::to_string(rank) + " dimensions");
    for (int64_t number : numbers)
      if (number < least || number > most)
        fail(name + " has " + what + " of " + std::to_string(number));
  };
  for (const Numbers *sizes : {&convolution.input(), &convolution.weight(), &convolution.output()})
    check(*sizes, rank, 1, "sizes");
  check(convolution.strides(), rank - 2, 1, "strides");
  check(convolution.dilations(), rank - 2, 1, "dilations");
  check(convolution.low(), rank - 2, 0, "padding");
  check(convolution.high(), rank - 2, 0, "padding");
  int64_t groups = convolution.groups();
  if (groups < 1 || groups > most || convolution.weight(1) * groups != convolution.input(1) ||
      convolution.weight(0) % groups || convolution.weight(0) != convolution.output(1) ||
      convolution.input(0) != convolution.output(0))
    fail(name + " has " + std::to_string(groups) + " groups of " +
         std::to_string(convolution.weight(1)) + " channels for " +
         std::to_string(convolution.input(1)) + ", and " + std::to_string(convolution.weight(0)) +
         " filters for " + std::to_string(convolution.output(1)) + " channels");
  for (int i = 0; i + 2 < rank; ++i) {
    int64_t room = convolution.input(i + 2) + convolution.low(i) + convolution.high(i) - 1 -
                   (convolution.weight(i + 2) - 1) * convolution.dilations(i);
    if (room < 0 || convolution.output(i + 2) != room / convolution.strides(i) + 1)
      fail(name + " has " + std::to_string(convolution.output(i + 2)) +
           " positions of a window of " + std::to_string(convolution.weight(i + 2)) + " in " +
           std::to_string(convolution.input(i + 2)) + " elements");
  }
}

void ProgramVerifier::verifyConvolution(const schema::Library &call, const std::string &name) {
  const schema::Convolution &convolution = call.convolution();
  verifyWindow(convolution, name);
  const schema::Epilogue &epilogue = convolution.epilogue();
  requireCount(call.inputs(), 2 + int(epilogue.bias()) + int(epilogue.residual()), name, "inputs");
  if (epilogue.activation() != schema::Epilogue::NONE &&
      epilogue.activation() != schema::Epilogue::RELU)
    fail(name + " has activation " + std::to_string(int(epilogue.activation())) +
         "; a convolution has none or relu");
  requireCount(call.outputs(), 1, name, "outputs");
  verifyTypes(call, convolution.type(), name);
  verifyWorkspace(convolution.workspace_limit(), name);
  verifyOperand(copy(convolution.input()), convolution.input_strides(), call.inputs(0),
                name + " input");
  verifyOperand(copy(convolution.weight()), convolution.weight_strides(), call.inputs(1),
                name + " weight");
  std::vector<int64_t> out = copy(convolution.output());
  verifyOperand(out, convolution.output_strides(), call.outputs(0), name + " output");
  verifyDistinct(out, convolution.output_strides(), name);
  int next = 2;
  if (epilogue.bias()) {
    uint64_t given = elements[call.inputs(next++)];
    if (given < uint64_t(out[1]))
      fail(name + " adds a bias of " + std::to_string(given) + " elements to " +
           std::to_string(out[1]) + " channels");
  }
  if (epilogue.residual())
    verifyOperand(out, convolution.output_strides(), call.inputs(next), name + " residual");
}

void ProgramVerifier::verifyAttention(const schema::Library &call, const std::string &name) {
  const schema::Attention &attention = call.attention();
  constexpr int numSizes = 6;
  constexpr int64_t most = int64_t(1) << 30;
  if (attention.sizes_size() != numSizes)
    fail(name + " attends over " + std::to_string(attention.sizes_size()) + " sizes, needs " +
         std::to_string(numSizes));
  for (int64_t size : attention.sizes())
    if (size < 1 || size > most)
      fail(name + " attends over a size of " + std::to_string(size));
  bool masked = attention.mask_size() > 0;
  requireCount(call.inputs(), 3 + int(masked), name, "inputs");
  requireCount(call.outputs(), 1, name, "outputs");
  verifyTypes(call, attention.type(), name);
  verifyWorkspace(attention.workspace_limit(), name);
  auto with = [&](int rows, int columns) {
    return std::vector<int64_t>{attention.sizes(0), attention.sizes(1), attention.sizes(rows),
                                attention.sizes(columns)};
  };
  verifyOperand(with(2, 4), attention.query(), call.inputs(0), name + " query");
  verifyOperand(with(3, 4), attention.key(), call.inputs(1), name + " key");
  verifyOperand(with(3, 5), attention.value(), call.inputs(2), name + " value");
  verifyOperand(with(2, 5), attention.out(), call.outputs(0), name + " out");
  verifyDistinct(with(2, 5), attention.out(), name);
  if (masked)
    verifyOperand(with(2, 3), attention.mask(), call.inputs(3), name + " mask");
}
