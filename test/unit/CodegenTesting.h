//===- CodegenTesting.h - kernels against reference evaluation --*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_CODEGENTESTING_H
#define GRIDLOOM_TEST_UNIT_CODEGENTESTING_H

#include "compiler/codegen/Codegen.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

namespace gridloom::testing {

using loom::ElementKind;
using loom::HostTensor;

inline mlir::MLIRContext &getContext() {
  static mlir::MLIRContext *context = [] {
    mlir::DialectRegistry registry;
    registry
        .insert<mlir::func::FuncDialect, dist::DistDialect, loom::LoomDialect, plan::PlanDialect>();
    auto *result = new mlir::MLIRContext(registry);
    result->loadAllAvailableDialects();
    return result;
  }();
  return *context;
}

/// Parses `text`; its kernels run in place where they can, like those that the compiler forms.
inline mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &getContext());
  if (module)
    for (auto kernel : module->getOps<plan::KernelOp>())
      kernel.recordInPlace();
  return module;
}

/// A loaded shared object.
class LoadedKernels {
public:
  using Function = void (*)(void *const *, int64_t, int64_t);

  explicit LoadedKernels(const std::string &bytes) {
    int file = memfd_create("kernels", 0);
    if (write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()))
      handle = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
    close(file);
    EXPECT_NE(handle, nullptr) << dlerror();
  }
  ~LoadedKernels() {
    if (handle)
      dlclose(handle);
  }
  Function find(const std::string &name) const {
    return reinterpret_cast<Function>(dlsym(handle, name.c_str()));
  }

private:
  void *handle = nullptr;
};

/// Values in the domain of every operation: floats in [-2, 2) or [low, high), integers in [0, 5).
inline HostTensor randomTensor(mlir::RankedTensorType type, std::mt19937 &random, double low,
                               double high) {
  ElementKind kind = *loom::getElementKind(type.getElementType());
  std::vector<double> values(type.getNumElements());
  std::uniform_real_distribution<double> real(low, high);
  std::uniform_int_distribution<int> integer(0, kind == ElementKind::Bool ? 1 : 4);
  for (double &value : values)
    value = loom::isFloatKind(kind) ? real(random) : integer(random);
  return HostTensor::fromDoubles(kind, type.getShape(), values);
}

/// The kernel's outputs by EvaluateInterface, operation by operation.
inline std::vector<HostTensor> evaluate(plan::KernelOp kernel,
                                        const std::vector<HostTensor> &inputs) {
  llvm::DenseMap<mlir::Value, HostTensor> values;
  mlir::Block &block = kernel.getBody().front();
  for (auto [argument, input] : llvm::zip_equal(block.getArguments(), inputs))
    values[argument] = input;
  for (mlir::Operation &op : block.without_terminator()) {
    llvm::SmallVector<HostTensor> operands;
    for (mlir::Value operand : op.getOperands())
      operands.push_back(values[operand]);
    auto results = mlir::cast<loom::EvaluateInterface>(op).evaluate(operands);
    EXPECT_TRUE(mlir::succeeded(results));
    for (auto [value, tensor] : llvm::zip_equal(op.getResults(), *results))
      values[value] = tensor;
  }
  std::vector<HostTensor> outputs;
  for (mlir::Value value : block.getTerminator()->getOperands())
    outputs.push_back(values[value]);
  return outputs;
}

/// Expects |actual - expected| <= tolerance * max(1, |expected|), NaN for NaN.
inline void expectClose(const HostTensor &actual, const HostTensor &expected, double tolerance,
                        const std::string &what) {
  std::vector<double> a = actual.toDoubles(), e = expected.toDoubles();
  ASSERT_EQ(a.size(), e.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    bool same = a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i])) ||
                std::abs(a[i] - e[i]) <= tolerance * std::max(1.0, std::abs(e[i]));
    ASSERT_TRUE(same) << what << ": element " << i << " is " << a[i] << ", not " << e[i];
  }
}

/// Expects equal bits, but for the bits of NaN.
inline void expectSame(const HostTensor &actual, const HostTensor &expected,
                       const std::string &what) {
  std::vector<double> a = actual.toDoubles(), e = expected.toDoubles();
  size_t bytes = actual.getElementSize();
  for (size_t i = 0; i < a.size(); ++i) {
    bool same = !std::memcmp(actual.getData() + i * bytes, expected.getData() + i * bytes, bytes);
    ASSERT_TRUE(same || (std::isnan(a[i]) && std::isnan(e[i])))
        << what << ": element " << i << " is " << a[i] << ", not " << e[i];
  }
}

struct RunOptions {
  double low = -2, high = 2;
  double tolerance = 2e-6;
  bool isExact = false;
  unsigned seed = 1;
  /// Inputs by argument number; the others are random.
  std::map<unsigned, HostTensor> inputs;
};

/// x86-64-v4 if this machine supports it, else empty.
inline std::string getWideArch() { return __builtin_cpu_supports("x86-64-v4") ? "x86-64-v4" : ""; }

/// Compiles all kernels of `text`, runs each on random inputs in several row ranges, and compares.
/// Bytes around the outputs must not change, and code for wider registers must write the same
/// bytes. Returns the compiled kernels.
inline codegen::CompiledKernels checkKernels(const std::string &text, RunOptions options = {}) {
  codegen::CompiledKernels none;
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(text);
  if (!module) {
    ADD_FAILURE() << "cannot parse:\n" << text;
    return none;
  }
  codegen::CpuOptions target;
  target.wideArch = getWideArch();
  auto compiled = codegen::compileCpuKernels(*module, target);
  if (mlir::failed(compiled)) {
    ADD_FAILURE() << "cannot compile:\n" << text;
    return none;
  }
  LoadedKernels loaded(compiled->sharedObject);
  std::optional<LoadedKernels> wide;
  if (!target.wideArch.empty())
    wide.emplace(compiled->wideObject);
  size_t number = 0;
  for (auto kernel : module->getOps<plan::KernelOp>()) {
    const codegen::KernelInfo &info = compiled->kernels[number++];
    EXPECT_EQ(info.symbol, kernel.getSymName());
    std::mt19937 random(options.seed);
    std::vector<HostTensor> inputs;
    for (auto [i, type] : llvm::enumerate(kernel.getBody().front().getArgumentTypes())) {
      auto given = options.inputs.find(i);
      inputs.push_back(given != options.inputs.end()
                           ? given->second
                           : randomTensor(mlir::cast<mlir::RankedTensorType>(type), random,
                                          options.low, options.high));
    }
    std::vector<HostTensor> expected = evaluate(kernel, inputs);
    LoadedKernels::Function function = loaded.find(info.symbol);
    EXPECT_NE(function, nullptr) << info.symbol;
    if (!function)
      continue;
    constexpr size_t kGuard = 64;
    std::vector<std::vector<char>> memory;
    std::vector<void *> pointers;
    for (HostTensor &input : inputs)
      pointers.push_back(const_cast<char *>(input.getData()));
    for (const HostTensor &output : expected)
      memory.emplace_back(output.getNumBytes() + 2 * kGuard, '\x5a');
    for (auto &bytes : memory)
      pointers.push_back(bytes.data() + kGuard);
    EXPECT_EQ(pointers.size(), info.numPointers);
    // Uneven ranges: the first row, nothing, the rest in two.
    int64_t first = std::min<int64_t>(1, info.rows), half = (info.rows + 1) / 2;
    std::vector<std::pair<int64_t, int64_t>> ranges{
        {std::max(half, first), info.rows}, {0, first}, {0, 0}, {first, std::max(half, first)}};
    if (wide)
      for (auto [lo, hi] : ranges)
        wide->find(info.symbol)(pointers.data(), lo, hi);
    std::vector<std::vector<char>> written = memory;
    for (std::vector<char> &bytes : memory)
      std::ranges::fill(bytes, '\x5a');
    for (auto [lo, hi] : ranges)
      function(pointers.data(), lo, hi);
    EXPECT_TRUE(!wide || written == memory) << info.symbol << " of " << target.wideArch;
    for (size_t i = 0; i < expected.size(); ++i) {
      HostTensor actual(expected[i].getKind(), expected[i].getShape());
      std::copy_n(memory[i].data() + kGuard, actual.getNumBytes(), actual.getMutableData());
      std::string what = info.symbol + " output " + std::to_string(i);
      if (options.isExact)
        expectSame(actual, expected[i], what);
      else
        expectClose(actual, expected[i], options.tolerance, what);
      for (size_t j = 0; j < kGuard; ++j)
        EXPECT_TRUE(memory[i][j] == '\x5a' && memory[i][memory[i].size() - 1 - j] == '\x5a')
            << info.symbol << " writes outside output " << i;
    }
  }
  return std::move(*compiled);
}

/// A kernel @k with the given body.
inline std::string kernelText(const std::string &arguments, const std::string &body,
                              const std::string &name = "k") {
  return "plan.kernel @" + name + " {\n^bb0(" + arguments + "):\n" + body + "\n}\n";
}

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_UNIT_CODEGENTESTING_H
