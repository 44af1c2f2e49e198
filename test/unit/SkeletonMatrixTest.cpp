//===- SkeletonMatrixTest.cpp - every skeleton, type and tail -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Each kernel runs twice: in program order, and in a random order in which approximate instructions
// err by as much as their stated accuracy allows. By default each element type takes some of the
// sizes in turn; GRIDLOOM_EXHAUSTIVE=1 runs every size for every type.
//
//===----------------------------------------------------------------------===//
#include "test/Share.h"
#include "test/unit/SkeletonTable.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

using namespace gridloom;
using namespace gridloom::testing;

namespace {

bool isExhaustive() {
  const char *value = std::getenv("GRIDLOOM_EXHAUSTIVE");
  return value && std::string(value) != "0";
}

/// Without a CUDA toolkit, functions are polynomials and exist for f32 only.
bool hasLibdevice() {
  const char *home = std::getenv("CUDA_HOME");
  return llvm::sys::fs::exists(std::string(home ? home : "/usr/local/cuda") +
                               "/nvvm/libdevice/libdevice.10.bc");
}

bool needsLibdevice(const SkeletonRow &row, const std::string &element) {
  bool isExp = llvm::StringRef(row.name).starts_with("softmax");
  bool isFunction =
      row.name == "round_nearest_even" ||
      (row.skeleton == "elementwise" && row.full > 0 && row.name != "divide" && row.name != "sqrt");
  return isFunction || (isExp && element == "f64");
}

int columnWidth(const std::string &element) {
  return std::max(6, static_cast<int>(element.size()) + 1);
}

std::vector<std::string> words(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ' ', -1, false);
  return {parts.begin(), parts.end()};
}

/// `text` with $E, {N...} and T(...) filled in.
std::string fillIn(llvm::StringRef text, const std::string &element, int64_t size) {
  std::string result;
  bool isTensor = false;
  while (!text.empty()) {
    if (text.consume_front("$E")) {
      result += element;
    } else if (text.consume_front("T(")) {
      isTensor = true;
      result += "tensor<";
    } else if (isTensor && text.consume_front(")")) {
      isTensor = false;
      result += "x" + element + ">";
    } else if (text.consume_front("{N")) {
      int64_t value = size, operand = 0;
      char op = text.front();
      if (op != '}') {
        text = text.drop_front();
        text.consumeInteger(10, operand);
        value = op == '*' ? size * operand : op == '+' ? size + operand : size - operand;
      }
      text.consume_front("}");
      result += std::to_string(value);
    } else {
      result += text.front();
      text = text.drop_front();
    }
  }
  return result;
}

std::string makeText(const SkeletonRow &row, const std::string &element, int64_t size,
                     const std::string &name) {
  // The second result is %n.
  std::string yielded = row.results.find(',') == std::string::npos ? "%r" : "%r, %n";
  std::string body = row.body + "\n  loom.yield " + yielded + " : " + row.results;
  return kernelText(fillIn(row.arguments, element, size), fillIn(body, element, size), name);
}

/// Random values of an argument; `own` is its range from the row, or null.
HostTensor drawTensor(mlir::RankedTensorType type, const Values *own, bool hasSpecials,
                      std::mt19937 &random) {
  ElementKind kind = *loom::getElementKind(type.getElementType());
  size_t count = type.getNumElements();
  if (loom::isFloatKind(kind)) {
    double low = own ? own->low : -2, high = own ? own->high : 2;
    const double specials[] = {0.0,
                               -0.0,
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(),
                               std::nan(""),
                               unitInLastPlace(kind, 0) * 3};
    std::uniform_real_distribution<double> real(low, high);
    std::vector<double> values(count);
    for (size_t i = 0; i < count; ++i)
      values[i] = hasSpecials && random() % 6 == 0 ? specials[random() % 6] : real(random);
    return HostTensor::fromDoubles(kind, type.getShape(), values);
  }
  bool isBounded = own && own->low == std::floor(own->low) && own->high == std::floor(own->high);
  std::vector<int64_t> values(count);
  for (int64_t &value : values) {
    auto bits = static_cast<int64_t>(uint64_t(random()) << 32 | random());
    if (isBounded)
      bits = static_cast<int64_t>(own->low) +
             static_cast<int64_t>(static_cast<uint64_t>(bits) %
                                  static_cast<uint64_t>(own->high - own->low + 1));
    value = kind == ElementKind::Bool ? bits & 1 : bits;
  }
  return HostTensor::fromInts(kind, type.getShape(), values);
}

/// A kernel of the table.
struct Cell {
  const SkeletonRow *row;
  std::string element;
  int64_t size;
};

class Matrix {
public:
  void run(const SkeletonRow &row, size_t number) {
    std::vector<Cell> cells = chooseCells(row, number);
    if (cells.empty())
      return;
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i)
      text += makeText(row, cells[i].element, cells[i].size, "k" + std::to_string(i));
    mlir::OwningOpRef<mlir::ModuleOp> module = parse(text);
    if (!module)
      return fail(row, "cannot be parsed: " + text);
    codegen::GpuOptions options;
    options.assemble = false;
    auto compiled = codegen::compileGpuKernels(*module, options);
    if (mlir::failed(compiled))
      return fail(row, "cannot be compiled");
    std::map<std::string, std::unique_ptr<fake::PtxProgram>> programs;
    size_t i = 0;
    for (auto kernel : module->getOps<plan::KernelOp>()) {
      const codegen::CompiledGpuKernel &made = (*compiled)[i];
      std::unique_ptr<fake::PtxProgram> &program = programs[made.library];
      if (!program)
        program = std::make_unique<fake::PtxProgram>(made.ptx);
      check(cells[i++], kernel, made, *program);
    }
  }

  void print() {
    std::printf("%-12s", "");
    std::vector<std::string> elements = words(std::string(kAll) + " " + kFloats8);
    for (const std::string &element : elements)
      std::printf("%*s", columnWidth(element), element.c_str());
    std::printf("\n");
    size_t total = 0;
    for (const auto &[skeleton, counts] : counted) {
      std::printf("%-12s", skeleton.c_str());
      for (const std::string &element : elements) {
        size_t count = counts.count(element) ? counts.at(element) : 0;
        total += count;
        std::printf("%*zu", columnWidth(element), count);
      }
      std::printf("\n");
    }
    if (leftOut > 0)
      std::printf("functions of %zu element types left out: set CUDA_HOME to a CUDA toolkit\n",
                  leftOut);
    std::printf(
        "%zu kernels, %zu runs equal to the reference; largest errors, of those allowed, in "
        "units in the last place:\n",
        total, runs);
    for (const auto &[name, errors] : worst)
      std::printf("  %-34s %s\n", name.c_str(), errors.c_str());
  }

  size_t countKernels() const {
    size_t total = 0;
    for (const auto &[skeleton, counts] : counted)
      for (const auto &[element, count] : counts)
        total += count;
    return total;
  }

private:
  std::vector<Cell> chooseCells(const SkeletonRow &row, size_t number) {
    constexpr size_t taken = 2;
    std::vector<std::string> sizes = words(row.sizes);
    std::vector<Cell> cells;
    size_t next = number;
    for (const std::string &element : words(row.elements)) {
      if (needsLibdevice(row, element) && !hasLibdevice()) {
        ++leftOut;
        continue;
      }
      size_t count = isExhaustive() ? sizes.size() : std::min(taken, sizes.size());
      for (size_t i = 0; i < count; ++i) {
        size_t at = isExhaustive() ? i : next++ % sizes.size();
        cells.push_back({&row, element, std::stoll(sizes[at])});
      }
    }
    return cells;
  }

  void fail(const SkeletonRow &row, const std::string &what) {
    ADD_FAILURE() << row.skeleton << ", " << row.name << ": " << what;
  }

  void check(const Cell &cell, plan::KernelOp kernel, const codegen::CompiledGpuKernel &made,
             const fake::PtxProgram &program) {
    const SkeletonRow &row = *cell.row;
    std::mt19937 random(static_cast<unsigned>(cell.size));
    std::vector<HostTensor> inputs;
    for (auto [i, type] : llvm::enumerate(kernel.getBody().front().getArgumentTypes())) {
      const Values *own = nullptr;
      for (const Values &values : row.values)
        if (values.argument == i)
          own = &values;
      inputs.push_back(
          drawTensor(mlir::cast<mlir::RankedTensorType>(type), own, row.hasSpecials, random));
    }
    std::vector<HostTensor> expected = evaluate(kernel, inputs);
    ElementKind kind = expected[0].getKind();
    double ulps = kind == ElementKind::F32   ? row.single
                  : kind == ElementKind::F64 ? row.full
                                             : row.narrow;
    Exactness exactness{ulps, row.floor, row.ignoresZeroSign};
    double error = 0;
    uint64_t last = isExhaustive() ? 4 : 1;
    for (uint64_t seed = 0; seed <= last; ++seed)
      for (bool inPlace : {false, true}) {
        if (inPlace && made.info.inPlace.empty())
          continue;
        fake::PtxRun run = launchOf(made);
        run.seed = run.inaccuracy = seed;
        std::string wrong =
            compareRun(program, made, run, makeMemory(inputs, expected, made.info, inPlace),
                       expected, exactness, error);
        if (!wrong.empty())
          return fail(row, cell.element + ", size " + std::to_string(cell.size) + ", seed " +
                               std::to_string(seed) + (inPlace ? ", in place" : "") + ": " + wrong);
        ++runs;
      }
    if (row.skeleton == "in place" && made.info.inPlace.empty())
      fail(row, cell.element + " is not computed in place");
    ++counted[row.skeleton][cell.element];
    if (ulps > 0)
      note(row, cell.element, error, ulps);
  }

  void note(const SkeletonRow &row, const std::string &element, double error, double allowed) {
    std::string name = row.skeleton + ", " + row.name;
    double &most = errors[{name, element}];
    most = std::max(most, error);
    std::string text;
    for (const std::string &other : words(kFloats))
      if (auto known = errors.find({name, other}); known != errors.end()) {
        char part[64];
        std::snprintf(part, sizeof(part), "%s %.2f  ", other.c_str(), known->second);
        text += part;
      }
    worst[name] = text;
  }

  std::map<std::string, std::map<std::string, size_t>> counted;
  std::map<std::pair<std::string, std::string>, double> errors;
  std::map<std::string, std::string> worst;
  size_t runs = 0, leftOut = 0;
};

} // namespace

TEST(SkeletonMatrix, EveryKernelEqualsTheReference) {
  Matrix matrix;
  const char *filter = std::getenv("GRIDLOOM_SKELETON");
  std::vector<std::pair<SkeletonRow, size_t>> rows;
  for (SkeletonRow &row : allSkeletonRows())
    if (!filter || (row.skeleton + ", " + row.name).find(filter) != std::string::npos)
      rows.emplace_back(std::move(row), rows.size());
  Share share;
  share.order(rows);
  size_t run = 0;
  for (const auto &[row, number] : rows)
    if (share.hasTime() && ++run)
      matrix.run(row, number);
  matrix.print();
  std::printf("seed %llu: %zu of %zu rows of the table had time\n",
              static_cast<unsigned long long>(share.getSeed()), run, rows.size());
  EXPECT_GT(matrix.countKernels(), filter ? 0 : 1000);
}
