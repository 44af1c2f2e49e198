//===- CodegenGpuLaneTest.cpp - sorts, scans and scatters on GPUs ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "test/unit/PtxTesting.h"

using namespace gridloom;
using namespace gridloom::testing;

namespace {

const char *const kElements[] = {"f32", "f64", "f16",  "bf16", "i64",  "i32", "i16",
                                 "i8",  "ui8", "ui16", "ui32", "ui64", "i1"};
/// One element type for each type that kernels compute in.
const char *const kSomeElements[] = {"f32", "bf16", "i64", "ui16", "i1"};

/// Kernels of one operation each, compiled together and run one by one.
class LaneKernels {
public:
  /// `op` as in "argsort %x dim = 0", of arguments such as "%x: tensor<4xf32>".
  void add(const std::string &arguments, const std::string &op, const std::string &types,
           const std::string &result) {
    text +=
        kernelText(arguments, "  %0 = loom." + op + " : " + types + "\n  loom.yield %0 : " + result,
                   "k" + std::to_string(count++));
  }
  void addArgsort(const std::string &element, const std::string &from, const std::string &to,
                  const std::string &how) {
    std::string x = "tensor<" + from + "x" + element + ">", y = "tensor<" + to + "xi64>";
    add("%x: " + x, "argsort %x " + how, "(" + x + ") -> " + y, y);
  }

  /// Runs all kernels, also in place where they may, on `inputs` by argument number and random
  /// values for the rest. Results must match the reference within `exactness`, or, with `asOnCpu`,
  /// the CPU kernels' results.
  void check(const std::map<unsigned, HostTensor> &inputs = {}, const Exactness &exactness = {},
             double low = -2, double high = 2, bool asOnCpu = false) {
    mlir::OwningOpRef<mlir::ModuleOp> module = parse(text);
    ASSERT_TRUE(module) << text;
    codegen::GpuOptions options;
    options.assemble = false;
    auto compiled = codegen::compileGpuKernels(*module, options);
    ASSERT_TRUE(mlir::succeeded(compiled)) << text;
    std::unique_ptr<LoadedKernels> loaded;
    std::vector<codegen::KernelInfo> onCpu;
    if (asOnCpu) {
      auto code = codegen::compileCpuKernels(*module);
      ASSERT_TRUE(mlir::succeeded(code)) << text;
      loaded = std::make_unique<LoadedKernels>(code->sharedObject);
      onCpu = code->kernels;
    }
    std::mt19937 random(static_cast<unsigned>(text.size()));
    size_t number = 0;
    for (auto kernel : module->getOps<plan::KernelOp>()) {
      const codegen::CompiledGpuKernel &code = (*compiled)[number++];
      EXPECT_EQ(code.info.skeleton, plan::Skeleton::Lanes);
      std::vector<HostTensor> given;
      for (auto [i, type] : llvm::enumerate(kernel.getBody().getArgumentTypes())) {
        auto it = inputs.find(i);
        given.push_back(it != inputs.end() ? it->second
                                           : randomTensor(mlir::cast<mlir::RankedTensorType>(type),
                                                          random, low, high));
      }
      std::vector<HostTensor> expected = evaluate(kernel, given);
      if (asOnCpu)
        runOnCpu(*loaded, onCpu[number - 1], given, expected[0]);
      run(code, given, expected, exactness);
    }
  }

private:
  static void runOnCpu(const LoadedKernels &loaded, const codegen::KernelInfo &info,
                       const std::vector<HostTensor> &given, HostTensor &result) {
    std::vector<void *> pointers;
    for (const HostTensor &tensor : given)
      pointers.push_back(const_cast<char *>(tensor.getData()));
    pointers.push_back(result.getMutableData());
    loaded.find(info.symbol)(pointers.data(), 0, info.rows);
  }

  void run(const codegen::CompiledGpuKernel &kernel, const std::vector<HostTensor> &given,
           const std::vector<HostTensor> &expected, const Exactness &exactness) {
    fake::PtxProgram program(kernel.ptx);
    ASSERT_EQ(program.getError(), "");
    double worst = 0;
    for (bool inPlace : {false, true}) {
      if (inPlace && kernel.info.inPlace.empty())
        continue;
      fake::PtxRun launch = launchOf(kernel);
      launch.seed = inPlace ? 7 : 0;
      EXPECT_EQ(compareRun(program, kernel, launch,
                           makeMemory(given, expected, kernel.info, inPlace), expected, exactness,
                           worst),
                "")
          << kernel.info.symbol << (inPlace ? " in place" : "") << " of " << text;
    }
  }

  std::string text;
  unsigned count = 0;
};

/// Whole numbers in [-bound, bound], with many duplicates.
std::vector<double> someIntegers(size_t count, int bound) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::uniform_int_distribution<int> draw(-bound, bound);
  std::vector<double> values(count);
  for (double &value : values)
    value = draw(random);
  return values;
}

/// Sums with mixed signs cancel: their errors are measured in units of 1.
Exactness exactnessOf(const std::string &element) { return {element == "bf16" ? 4.0 : 64.0, 1.0}; }

} // namespace

TEST(CodegenGpuLanes, CumulativeOfEveryKindAndType) {
  for (const char *name : kSomeElements)
    for (std::string kind : {"sum", "prod", "max", "min"}) {
      std::string element = name;
      LaneKernels kernels;
      // A thread per lane, with and without a tail; a warp; a block with one tile and with several.
      for (const auto &[shape, how] : {std::pair<std::string, std::string>{"7x3x5", "1 exclusive"},
                                       {"2x21x4200", "1 reverse"},
                                       {"9x130", "1 reverse"},
                                       {"5x128", "1 exclusive"},
                                       {"3x33x2", "1 exclusive reverse"},
                                       {"2x1500", "1"},
                                       {"1", "0 exclusive reverse"}}) {
        if (element != "f32" && kind != "sum" && shape.size() == 9)
          continue;
        std::string type = "tensor<" + shape + "x" + element + ">";
        kernels.add("%x: " + type, "cumulative " + kind + " %x dim = " + how, type, type);
      }
      bool isProduct = kind == "prod";
      kernels.check({}, exactnessOf(element), isProduct ? 0.99 : -1, isProduct ? 1.01 : 1);
    }
}

TEST(CodegenGpuLanes, CumulativeOfNan) {
  std::vector<double> values(200, 1.0);
  values[70] = std::nan("");
  values[30] = INFINITY;
  LaneKernels kernels;
  for (std::string kind : {"sum", "max", "min"})
    kernels.add("%x: tensor<200xf32>", "cumulative " + kind + " %x dim = 0", "tensor<200xf32>",
                "tensor<200xf32>");
  kernels.check({{0, HostTensor::fromDoubles(ElementKind::F32, {200}, values)}}, {1, 1});
}

TEST(CodegenGpuLanes, ScatterOfEveryKindAndType) {
  for (const char *name : kSomeElements) {
    std::string element = name;
    LaneKernels elements, slices;
    for (std::string kind :
         {"", " reduce = sum", " reduce = prod", " reduce = max", " reduce = min"}) {
      std::string x = "tensor<2x7x3x" + element + ">", u = "tensor<2x6x3x" + element + ">";
      elements.add("%x: " + x + ", %i: tensor<2x6x3xi64>, %u: " + u,
                   "scatter %x, %i, %u dim = 1" + kind,
                   "(" + x + ", tensor<2x6x3xi64>, " + u + ") -> " + x, x);
      x = "tensor<30x70x" + element + ">", u = "tensor<4x70x" + element + ">";
      slices.add("%x: " + x + ", %i: tensor<4xi32>, %u: " + u, "scatter %x, %i, %u dim = 0" + kind,
                 "(" + x + ", tensor<4xi32>, " + u + ") -> " + x, x);
    }
    // Repeated indices, and some out of range on both sides. Updates apply in the CPU's order.
    HostTensor repeated = HostTensor::fromInts(
        ElementKind::I64, {2, 6, 3}, {0, 1, 2, 3, 4, 5,  6, -1, 7, 100, 2, 2, 2, 2, 2, 0, 0, 0,
                                      1, 1, 1, 0, 6, -9, 6, 6,  6, 5,   4, 3, 2, 1, 0, 3, 3, 3});
    elements.check({{1, repeated}}, {}, -2, 2, /*asOnCpu=*/true);
    slices.check({{1, HostTensor::fromInts(ElementKind::I32, {4}, {2, 29, -1, 2})}}, {}, -2, 2,
                 /*asOnCpu=*/true);
  }
}

TEST(CodegenGpuLanes, ScatterOfManyUpdates) {
  std::vector<int64_t> indices;
  for (double value : someIntegers(3000, 40))
    indices.push_back(static_cast<int64_t>(value) + 39);
  LaneKernels kernels;
  for (std::string kind : {"", " reduce = sum"})
    kernels.add("%x: tensor<80xf32>, %i: tensor<3000xi64>, %u: tensor<3000xf32>",
                "scatter %x, %i, %u dim = 0" + kind,
                "(tensor<80xf32>, tensor<3000xi64>, tensor<3000xf32>) -> tensor<80xf32>",
                "tensor<80xf32>");
  kernels.check({{1, HostTensor::fromInts(ElementKind::I64, {3000}, indices)}}, {}, -2, 2,
                /*asOnCpu=*/true);
}

TEST(CodegenGpuLanes, ArgsortOfEveryType) {
  for (const char *element : kElements) {
    LaneKernels kernels;
    for (const auto &[from, to, how] :
         {std::tuple<std::string, std::string, std::string>{"5x37x3", "5x37x3", "dim = 1"},
          {"3x200", "3x7", "dim = 1 descending"},
          {"1", "1", "dim = 0"},
          {"64x2", "64x2", "dim = 0 descending"},
          {"700x3", "700x1", "dim = 1"},
          {"1300", "1300", "dim = 0"}})
      kernels.addArgsort(element, from, to, how);
    kernels.check();
  }
}

TEST(CodegenGpuLanes, ArgsortOrdersSpecialFloats) {
  double inf = INFINITY, nan = std::nan("");
  std::vector<double> values{0.0,  -0.0, 1,     nan,    -inf, inf,  -1,
                             -nan, 0.0,  1e-45, -1e-45, inf,  -0.0, 3e38};
  for (const auto &[kind, element] : {std::pair<ElementKind, std::string>{ElementKind::F32, "f32"},
                                      {ElementKind::F64, "f64"},
                                      {ElementKind::F16, "f16"},
                                      {ElementKind::BF16, "bf16"}}) {
    LaneKernels kernels;
    for (std::string order : {"dim = 0", "dim = 0 descending"})
      for (std::string taken : {"3", "14"})
        kernels.addArgsort(element, "14", taken, order);
    kernels.check({{0, HostTensor::fromDoubles(kind, {14}, values)}});
  }
}

/// Lanes that do not fit in shared memory, of which few, many or all elements are taken.
TEST(CodegenGpuLanes, ArgsortOfLongLanes) {
  std::vector<double> values = someIntegers(9000, 2000), rising(9000);
  for (auto [i, value] : llvm::enumerate(rising))
    value = static_cast<double>(i);
  for (const auto &[kind, element] :
       {std::pair<ElementKind, std::string>{ElementKind::F32, "f32"}, {ElementKind::F64, "f64"}}) {
    LaneKernels few, all;
    few.addArgsort(element, "9000", "50", "dim = 0 descending");
    few.addArgsort(element, "9000", "1000", "dim = 0");
    few.addArgsort(element, "9000", "5000", "dim = 0 descending");
    all.addArgsort(element, "9000", "9000", "dim = 0");
    all.addArgsort(element, "4500x2", "4500x2", "dim = 0 descending");
    few.check({{0, HostTensor::fromDoubles(kind, {9000}, values)}});
    // Rising values: each element displaces another.
    few.check({{0, HostTensor::fromDoubles(kind, {9000}, rising)}});
    all.check({}, {}, -1000, 1000);
  }
}
