//===- PtxMutationTest.cpp - planted faults in GPU kernels ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Tests that the PTX interpreter detects faults. Each barrier, bound, vector access, shuffle,
// shared address, branch and access width of real kernels is made wrong, one at a time. A fault is
// caught when the text is refused, the run is stopped or the result differs. A fault that is not
// caught must leave every thread's values unchanged, which a probe in its place checks: a bound
// between two multiples of four, or a lane with the same value. Any other fault fails the test.
//
//===----------------------------------------------------------------------===//
#include "test/unit/PtxTesting.h"

#include "llvm/ADT/StringExtras.h"

using namespace gridloom;
using namespace gridloom::testing;

namespace {

struct Range {
  double low, high;
};

/// A kernel, the value ranges of its runs, one run each, and its tolerance.
struct Specimen {
  const char *name;
  std::string text;
  double ulps = 0;
  std::vector<Range> ranges = {{-2, 2}};
};

std::string one(const std::string &arguments, const std::string &op, const std::string &type) {
  return kernelText(arguments, "  %r = loom." + op + "\n  loom.yield %r : " + type);
}

std::vector<Specimen> makeSpecimens() {
  // Sums do not cancel. With large values a softmax by a wrong maximum is wrong in some row.
  const std::vector<Range> positive = {{0.5, 1.5}}, far = {{-2, 2}, {-1e6, 1e6}, {-1e6, 1e6}};
  std::string rows = "tensor<9x132xf32>", row = "tensor<16x2052xf32>";
  std::string scan = "tensor<2x2048xf32>";
  return {
      {"add", one("%x: tensor<300xf32>, %y: tensor<300xf32>", "add %x, %y : tensor<300xf32>",
                  "tensor<300xf32>")},
      {"bytes", one("%x: tensor<1031xi8>, %y: tensor<1031xi8>", "add %x, %y : tensor<1031xi8>",
                    "tensor<1031xi8>")},
      {"halves", one("%x: tensor<516xbf16>, %y: tensor<516xbf16>",
                     "multiply %x, %y : tensor<516xbf16>", "tensor<516xbf16>")},
      {"softmax of a warp", one("%x: " + rows, "softmax %x dim = 1 : " + rows, rows), 16, far},
      {"softmax of a block", one("%x: " + row, "softmax %x dim = 1 : " + row, row), 16, far},
      {"sum of a block",
       one("%x: tensor<2x4099xf32>",
           "reduce sum %x dims = [1] : (tensor<2x4099xf32>) -> tensor<2xf32>", "tensor<2xf32>"),
       16, positive},
      {"sums of columns",
       one("%x: tensor<70x36xf32>",
           "reduce sum %x dims = [0] : (tensor<70x36xf32>) -> tensor<36xf32>", "tensor<36xf32>"),
       16, positive},
      {"product along sums",
       one("%x: tensor<2x522xf32>, %w: tensor<5x522xf32>",
           "dot_general %x, %w batch = [] x [] contract = [1] x [1] : (tensor<2x522xf32>, "
           "tensor<5x522xf32>) -> tensor<2x5xf32>",
           "tensor<2x5xf32>"),
       16, positive},
      {"product across sums",
       one("%x: tensor<2x70xf32>, %w: tensor<70x36xf32>",
           "dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x70xf32>, "
           "tensor<70x36xf32>) -> tensor<2x36xf32>",
           "tensor<2x36xf32>"),
       16, positive},
      {"transpose",
       one("%x: tensor<70x45xf32>",
           "transpose %x [1, 0] : (tensor<70x45xf32>) -> tensor<45x70xf32>", "tensor<45x70xf32>")},
      {"concatenate",
       one("%x: tensor<3x33xf32>, %y: tensor<3x5xf32>",
           "concatenate %x, %y dim = 1 : (tensor<3x33xf32>, tensor<3x5xf32>) -> tensor<3x38xf32>",
           "tensor<3x38xf32>")},
      {"gather",
       one("%t: tensor<10x36xf32>, %i: tensor<7xi64>",
           "gather %t, %i dim = 0 : (tensor<10x36xf32>, tensor<7xi64>) -> tensor<7x36xf32>",
           "tensor<7x36xf32>")},
      {"scan of a block", one("%x: " + scan, "cumulative sum %x dim = 1 : " + scan, scan), 16,
       positive},
      {"argsort",
       one("%x: tensor<2x512xf32>", "argsort %x dim = 1 : (tensor<2x512xf32>) -> tensor<2x512xi64>",
           "tensor<2x512xi64>")},
  };
}

enum Kind { Barrier, Bound, Vector, Shuffle, Shared, Branch, Width, NumKinds };
const char *const kKindNames[NumKinds] = {
    "barrier removed", "bound off by one", "vector misplaced",  "shuffle of another lane",
    "shared address",  "branch removed",   "width of an access"};

/// A text with one wrong line.
struct Mutant {
  Kind kind;
  size_t line;
  std::string replacement;
};

/// `line` with `bytes` added to the offset in its brackets.
std::string moveAddress(const std::string &line, int64_t bytes) {
  size_t open = line.find('['), close = line.find(']');
  llvm::StringRef address = llvm::StringRef(line).slice(open + 1, close);
  auto [base, offset] = address.split('+');
  int64_t old = 0;
  offset.getAsInteger(10, old);
  return line.substr(0, open + 1) + base.str() + "+" + std::to_string(old + bytes) +
         line.substr(close);
}

/// The last operand of a comparison, if it is an integer.
std::optional<int64_t> boundOf(llvm::StringRef line) {
  if (!line.contains("setp.") || line.contains(".f32") || line.contains(".f64"))
    return std::nullopt;
  int64_t value = 0;
  if (line.rsplit(',').second.trim(" ;").getAsInteger(0, value))
    return std::nullopt;
  return value;
}

void addMutants(std::vector<Mutant> &mutants, size_t number, const std::string &text) {
  llvm::StringRef line = llvm::StringRef(text).trim();
  auto add = [&](Kind kind, std::string replacement) {
    mutants.push_back({kind, number, std::move(replacement)});
  };
  auto replace = [&](const std::string &from, const std::string &to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return changed;
  };
  bool isAccess = (line.starts_with("ld.") || line.starts_with("st.") || line.starts_with("@%p")) &&
                  (line.contains("ld.global") || line.contains("ld.shared") ||
                   line.contains("st.global") || line.contains("st.shared"));
  if (line.starts_with("bar.sync") || line.starts_with("barrier.sync") ||
      line.starts_with("bar.warp.sync"))
    add(Barrier, "");
  if (std::optional<int64_t> bound = boundOf(line))
    for (int64_t by : {-1, 1})
      add(Bound, text.substr(0, text.rfind(',')) + ", " + std::to_string(*bound + by) + ";");
  if (isAccess && (line.contains(".v2.") || line.contains(".v4.") || line.contains(".v8.")))
    add(Vector, moveAddress(text, 4));
  if (line.starts_with("shfl.sync")) {
    llvm::SmallVector<llvm::StringRef> operands;
    line.split(operands, ',');
    int64_t lane = 0;
    if (!operands[2].trim().getAsInteger(0, lane))
      add(Shuffle, (operands[0] + "," + operands[1] + ", " + std::to_string(lane ? lane / 2 : 1) +
                    "," + operands[3] + "," + operands[4])
                       .str());
    add(Shuffle,
        (operands[0] + "," + operands[1] + "," + operands[2] + "," + operands[3] + ", 2147483647;")
            .str());
  }
  if (isAccess && line.contains(".shared"))
    add(Shared, moveAddress(text, line.contains("b64") ? 8 : 4));
  if (line.starts_with("@") && line.contains("bra"))
    add(Branch, "");
  if (isAccess)
    for (const auto &[from, to] : {std::pair<std::string, std::string>{".b32", ".b16"},
                                   {".b64", ".b32"},
                                   {".b16", ".b8"},
                                   {".b8", ".b16"}})
      if (line.contains(from + " ") || line.contains(from + "\t")) {
        add(Width, replace(from, to));
        break;
      }
}

//===----------------------------------------------------------------------===//
// Faults that change nothing
//===----------------------------------------------------------------------===//

const char *const kProbeRegisters = "\t.reg .pred %probe<2>;\n\t.reg .b16 %probeh<9>;\n"
                                    "\t.reg .b32 %probew<9>;\n\t.reg .b64 %probed<9>;\n";

/// A probe register as wide as `name`.
std::string probeFor(llvm::StringRef name, size_t number) {
  const char *stem = name.starts_with("%rd")   ? "%probed"
                     : name.starts_with("%rs") ? "%probeh"
                                               : "%probew";
  return stem + std::to_string(number);
}

/// The line with the fault, writing to probe registers, then `line`, then traps where the registers
/// of `list`, the results of `line`, differ from the probes.
std::string probeResults(llvm::StringRef list, const std::string &line, std::string changed) {
  llvm::SmallVector<llvm::StringRef> names;
  list.split(names, ',');
  std::string after;
  for (auto [i, name] : llvm::enumerate(names)) {
    name = name.trim();
    std::string probe = probeFor(name, i);
    size_t at = changed.find(name.str());
    changed.replace(at, name.size(), probe);
    std::string bits = name.starts_with("%rd") ? "64" : name.starts_with("%rs") ? "16" : "32";
    after +=
        "\tsetp.ne.b" + bits + " %probe0, " + probe + ", " + name.str() + ";\n\t@%probe0 trap;\n";
  }
  return changed + "\n" + line + "\n" + after;
}

/// Lines in place of the original's that trap where the fault changes what the instruction gives to
/// any thread; empty if no probe can tell.
std::string makeProbe(const Mutant &mutant, const std::string &line) {
  llvm::StringRef text = llvm::StringRef(line).trim();
  auto [opcode, operands] = text.split('\t');
  std::string first = operands.split(',').first.trim().str();
  if (mutant.kind == Bound && !text.starts_with("@")) {
    std::string changed = mutant.replacement;
    changed.replace(changed.find(first), first.size(), "%probe0");
    return changed + "\n" + line + "\n\txor.pred %probe1, %probe0, " + first +
           ";\n\t@%probe1 trap;";
  }
  if (mutant.kind == Branch)
    return "\t" + text.split('\t').first.str().substr(0, text.find_first_of(" \t")) + " trap;\n" +
           line;
  if (mutant.kind == Shuffle && !llvm::StringRef(first).contains("|"))
    return probeResults(first, line, mutant.replacement);
  if (mutant.kind == Width && text.starts_with("ld.")) {
    llvm::StringRef list = operands.trim().starts_with("{")
                               ? operands.split('{').second.split('}').first
                               : llvm::StringRef(first);
    return probeResults(list, line, mutant.replacement);
  }
  return "";
}

/// Why a fault is harmless although threads behave differently; empty if there is no reason.
std::string excuse(const Specimen &specimen, const Mutant &mutant,
                   const std::vector<std::string> &lines) {
  llvm::StringRef line = llvm::StringRef(lines[mutant.line]).trim();
  bool isBound = mutant.kind == Bound;
  if (isBound && (line.starts_with("setp.eq") || line.starts_with("setp.ne")) &&
      line.ends_with(", 0;") && llvm::StringRef(mutant.replacement).ends_with(" 1;"))
    return "another thread of the group does it, with the same values";
  if (isBound && specimen.name == llvm::StringRef("bytes") && line.starts_with("setp.lt"))
    return "a thread writes its last element twice";
  if (isBound && specimen.name == llvm::StringRef("argsort") && line.starts_with("setp.eq.b64"))
    return "elements are compared with themselves once more";
  auto isLoad = [](const std::string &other) {
    return llvm::StringRef(other).contains("ld.global");
  };
  bool isBeforeLoads = llvm::none_of(llvm::ArrayRef(lines).take_front(mutant.line), isLoad);
  if (mutant.kind == Branch && specimen.name == llvm::StringRef("argsort") && isBeforeLoads)
    return "what is filled for missing elements is overwritten: none are missing";
  return "";
}

/// The replacement that leaves the instruction out; empty if the fault itself does that.
std::string removalOf(const Mutant &mutant) { return mutant.kind == Branch ? "" : "\t"; }

/// True if no thread uses shared memory after the barrier.
bool isLast(const std::vector<std::string> &lines, size_t barrier) {
  for (size_t i = barrier + 1; i < lines.size(); ++i) {
    llvm::StringRef line = lines[i];
    if (line.contains(".shared"))
      return false;
    llvm::StringRef label = line.contains("bra") ? line.rsplit('$').second.rtrim(" ;") : "";
    for (size_t before = 0; !label.empty() && before < barrier; ++before)
      if (llvm::StringRef(lines[before]).starts_with(("$" + label + ":").str()))
        return false;
  }
  return true;
}

class Mutation {
public:
  void run(const Specimen &specimen) {
    mlir::OwningOpRef<mlir::ModuleOp> module = parse(specimen.text);
    codegen::GpuOptions options;
    options.assemble = false;
    auto compiled = codegen::compileGpuKernels(*module, options);
    ASSERT_TRUE(mlir::succeeded(compiled) && compiled->size() == 1) << specimen.text;
    auto kernel = *module->getOps<plan::KernelOp>().begin();
    const codegen::CompiledGpuKernel &made = compiled->front();
    std::vector<std::vector<HostTensor>> inputs, expected;
    for (const Range &range : specimen.ranges) {
      std::mt19937 random(static_cast<unsigned>(inputs.size()));
      std::vector<HostTensor> &drawn = inputs.emplace_back();
      for (mlir::Type type : kernel.getBody().front().getArgumentTypes())
        drawn.push_back(
            randomTensor(mlir::cast<mlir::RankedTensorType>(type), random, range.low, range.high));
      expected.push_back(evaluate(kernel, drawn));
    }
    auto judge = [&](const std::vector<std::string> &lines) {
      fake::PtxProgram program(llvm::join(lines, "\n"));
      std::string wrong = program.getError();
      for (size_t i = 0; wrong.empty() && i < inputs.size(); ++i) {
        fake::PtxRun run = launchOf(made);
        run.maxInstructions = 1 << 20;
        double error = 0;
        wrong = compareRun(program, made, run, makeMemory(inputs[i], expected[i], made.info, false),
                           expected[i], {specimen.ulps}, error);
      }
      return wrong;
    };
    llvm::SmallVector<llvm::StringRef> split;
    llvm::StringRef(made.ptx).split(split, '\n');
    const std::vector<std::string> lines(split.begin(), split.end());
    ASSERT_EQ(judge(lines), "") << specimen.name;
    std::vector<Mutant> mutants;
    for (size_t i = 0; i < lines.size(); ++i)
      addMutants(mutants, i, lines[i]);
    for (const Mutant &mutant : mutants) {
      std::vector<std::string> changed = lines;
      changed[mutant.line] = mutant.replacement;
      ++total[mutant.kind];
      if (!judge(changed).empty()) {
        ++caught[mutant.kind];
        continue;
      }
      if (mutant.kind == Barrier && isLast(lines, mutant.line)) {
        ++equal[mutant.kind];
        continue;
      }
      // The fault is harmless if every thread gets the same value, or if the instruction can be
      // left out.
      *llvm::find(changed, "{") += std::string("\n") + kProbeRegisters;
      std::string difference = "it orders accesses";
      for (const std::string &probe : {makeProbe(mutant, lines[mutant.line]), removalOf(mutant)})
        if (mutant.kind != Barrier && !difference.empty()) {
          changed[mutant.line] = probe;
          difference = probe.empty() ? "there is no probe for it" : judge(changed);
        }
      if (difference.empty()) {
        ++equal[mutant.kind];
        continue;
      }
      std::string why = excuse(specimen, mutant, lines);
      if (!why.empty()) {
        ++excused[mutant.kind];
        std::printf("survives in %s: '%s': %s\n", specimen.name,
                    split[mutant.line].trim().str().c_str(), why.c_str());
        continue;
      }
      ADD_FAILURE() << "survives in " << specimen.name << ": " << kKindNames[mutant.kind] << ": '"
                    << split[mutant.line].trim().str() << "' became '"
                    << llvm::StringRef(mutant.replacement).trim().str() << "'; " << difference;
    }
  }

  void print() const {
    for (int kind = 0; kind < NumKinds; ++kind) {
      std::printf("%-26s %4d of %4d caught, %d give every thread the same, %d excused\n",
                  kKindNames[kind], caught[kind], total[kind], equal[kind], excused[kind]);
      EXPECT_GT(total[kind], 0) << kKindNames[kind];
    }
  }

private:
  int total[NumKinds] = {}, caught[NumKinds] = {}, equal[NumKinds] = {}, excused[NumKinds] = {};
};

} // namespace

TEST(PtxMutation, PlantedFaultsAreCaught) {
  Mutation mutation;
  for (const Specimen &specimen : makeSpecimens())
    mutation.run(specimen);
  mutation.print();
}
