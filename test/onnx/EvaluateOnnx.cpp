//===- EvaluateOnnx.cpp - imports and evaluates ONNX models ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Each argument is a folder with model.onnx, dims (values for --dim, one per line), unroll (the
// most iterations of a loop to unroll; optional) and input_I.bin, the bytes of the I-th input.
// Writes imported_I.bin and simplified_I.bin, the outputs before and after the simplify phase, the
// outputs' names into the file outputs, one per line, and the simplified program into
// simplified.mlir. If a file gradients_of names an output, the simplified outputs include its
// gradients by all float weights, and the imported ones are left out. Prints a line per folder,
// with the outputs' types or the error:
//
//   ok FOLDER 2x3xf32 4xi64
//   error FOLDER: MESSAGE
//
// `--operators` lists the operators that can be imported, one per line.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/Interpreter.h"
#include "compiler/onnx/Import.h"
#include "compiler/onnx/OpTable.h"
#include "passes/simplify/Simplify.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace gridloom;

/// The bytes of a file, or null if it cannot be read.
static std::unique_ptr<llvm::MemoryBuffer> readFile(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? std::move(*buffer) : nullptr;
}

static LogicalResult writeFile(const std::string &path, const loom::HostTensor &tensor) {
  std::error_code error;
  llvm::raw_fd_ostream file(path, error);
  if (error)
    return failure();
  file.write(tensor.getData(), tensor.getNumBytes());
  return success();
}

static FailureOr<NamedTensors> readInputs(func::FuncOp function, const std::string &folder) {
  NamedTensors inputs;
  for (auto [i, argument] : llvm::enumerate(function.getArguments())) {
    auto type = cast<RankedTensorType>(argument.getType());
    auto bytes = readFile(folder + "/input_" + std::to_string(i) + ".bin");
    if (!bytes || static_cast<int64_t>(bytes->getBufferSize()) != loom::getByteSize(type))
      return function.emitError("input ") << i << " is missing or not of type " << type;
    loom::HostTensor tensor(*loom::getElementKind(type.getElementType()), type.getShape());
    if (tensor.getNumBytes())
      std::memcpy(tensor.getMutableData(), bytes->getBufferStart(), tensor.getNumBytes());
    inputs[function.getArgAttrOfType<StringAttr>(i, loom::kName).getValue()] = tensor;
  }
  return inputs;
}

/// Runs the first specialisation and writes its outputs as PREFIX_I.bin. Returns their types.
static FailureOr<std::string> evaluate(ModuleOp module, const std::string &folder,
                                       StringRef prefix) {
  FileWeights weights(folder + "/model.onnx");
  Interpreter interpreter(module, weights);
  Specialisation specialisation = getSpecialisations(module).front();
  func::FuncOp function = specialisation.stages.front();
  FailureOr<NamedTensors> inputs = readInputs(function, folder);
  if (failed(inputs))
    return failure();
  FailureOr<NamedTensors> outputs = interpreter.run(specialisation, *inputs);
  if (failed(outputs))
    return failure();
  std::error_code error;
  llvm::raw_fd_ostream names(folder + "/outputs", error);
  if (error)
    return function.emitError("cannot write into ") << folder;
  std::string types;
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    auto name = function.getResultAttrOfType<StringAttr>(i, loom::kName);
    names << name.getValue() << "\n";
    const loom::HostTensor &tensor = outputs->at(name.getValue());
    for (int64_t dim : tensor.getShape())
      types += std::to_string(dim) + "x";
    types += loom::nameOf(tensor.getKind()).str() + " ";
    if (failed(writeFile(folder + "/" + prefix.str() + "_" + std::to_string(i) + ".bin", tensor)))
      return function.emitError("cannot write into ") << folder;
  }
  return types;
}

static FailureOr<std::string> run(MLIRContext &context, const std::string &folder) {
  ImportOptions options;
  if (auto dims = readFile(folder + "/dims")) {
    SmallVector<StringRef> lines;
    dims->getBuffer().split(lines, '\n', -1, /*KeepEmpty=*/false);
    for (StringRef line : lines)
      if (std::string error = options.addDim(line); !error.empty())
        return emitError(UnknownLoc::get(&context)) << error;
  }
  if (auto unroll = readFile(folder + "/unroll"))
    if (unroll->getBuffer().trim().getAsInteger(10, options.unroll))
      return emitError(UnknownLoc::get(&context)) << folder << "/unroll holds no number";
  SimplifyOptions simplifies;
  if (auto of = readFile(folder + "/gradients_of"))
    simplifies.gradientsOf = of->getBuffer().trim().str();
  options.marksTies = !simplifies.gradientsOf.empty();
  OwningOpRef<ModuleOp> module = importOnnx(context, folder + "/model.onnx", options);
  if (!module || failed(verify(*module)))
    return failure();
  PassManager check(&context), simplify(&context);
  addImportVerify(check);
  addSimplifyPasses(simplify, simplifies);
  if (failed(check.run(*module)))
    return failure();
  FailureOr<std::string> types = std::string();
  if (simplifies.gradientsOf.empty())
    types = evaluate(*module, folder, "imported");
  if (failed(types) || failed(simplify.run(*module)))
    return failure();
  std::error_code error;
  llvm::raw_fd_ostream dump(folder + "/simplified.mlir", error);
  module->print(dump, OpPrintingFlags().enableDebugInfo(true, true));
  FailureOr<std::string> again = evaluate(*module, folder, "simplified");
  if (failed(again))
    return failure();
  if (simplifies.gradientsOf.empty() && *again != *types)
    return module->emitError("simplifying changed the outputs from ") << *types << "to " << *again;
  return again;
}

int main(int argc, char **argv) {
  DialectRegistry registry;
  registry.insert<func::FuncDialect, dist::DistDialect, loom::LoomDialect, plan::PlanDialect>();
  for (int i = 1; i < argc; ++i) {
    if (StringRef(argv[i]) == "--operators") {
      for (StringRef name : onnx_import::getSupportedOperators())
        llvm::outs() << name << "\n";
      continue;
    }
    MLIRContext context(registry, MLIRContext::Threading::DISABLED);
    std::string message;
    context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
        message += (message.empty() ? "" : "; ") + diagnostic.str();
    });
    FailureOr<std::string> types = run(context, argv[i]);
    if (succeeded(types))
      llvm::outs() << "ok " << argv[i] << " " << *types << "\n";
    else
      llvm::outs() << "error " << argv[i] << ": " << message << "\n";
    llvm::outs().flush();
  }
  return 0;
}
