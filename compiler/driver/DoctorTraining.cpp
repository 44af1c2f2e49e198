//===- DoctorTraining.cpp - report what can be trained --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/DoctorTraining.h"

#include "compiler/driver/Compilation.h"
#include "compiler/driver/Ties.h"
#include "compiler/onnx/TrainingFacts.h"
#include "passes/train/Survey.h"
#include "support/Document.h"
#include "support/OutputFormat.h"
#include "support/Text.h"

#include <set>

using namespace gridloom;
using onnx_import::TrainingFacts;

int Compilation::survey(TrainSurvey &found) {
  options.stopAfter = "simplify";
  mayLackLosses = true;
  if (mlir::failed(checkOptions()) || mlir::failed(load()))
    return 1;
  mlir::PassManager pm(&context);
  addImportVerify(pm);
  addRaisePasses(pm);
  if (mlir::failed(pm.run(*module)))
    return 1;
  mlir::FailureOr<train::TrainSettings> settings = train::readSettings(*module, options.train);
  if (mlir::failed(settings) || mlir::failed(train::surveyTraining(*module, *settings, found)))
    return 1;
  return hadError;
}

namespace {

/// Names of one group, of which the first are printed.
struct Names {
  std::vector<std::string> all;

  std::string join() const {
    constexpr size_t most = 8;
    std::string text;
    for (size_t i = 0; i < std::min(all.size(), most); ++i)
      text += (i ? ", " : "") + ("'" + all[i] + "'");
    if (all.size() > most)
      text += " and " + std::to_string(all.size() - most) + " more";
    return makePrintable(text);
  }
};

/// Totals of the weights with one role.
struct Total {
  int64_t elements = 0;
  uint64_t bytes = 0, slotBytes = 0;
  Names names;

  void add(const TrainSurvey::Weight &weight) {
    elements += weight.elements;
    bytes += uint64_t(weight.bytes);
    slotBytes += uint64_t(weight.slotBytes);
    names.all.push_back(weight.name);
  }
  std::string describe() const {
    size_t count = names.all.size();
    return std::to_string(count) + (count == 1 ? " tensor, " : " tensors, ") +
           countCell(elements).text + " elements, " + bytesCell(bytes).text +
           ", optimizer's states " + bytesCell(slotBytes).text;
  }
};

std::string counted(size_t count, const std::string &singular, const std::string &plural) {
  return std::to_string(count) + " " + (count == 1 ? singular : plural);
}

} // namespace

static void printLine(const std::string &label, const std::string &text) {
  std::string line = "  " + label;
  line.resize(std::max<size_t>(line.size() + 1, 10), ' ');
  std::cout << line << text << "\n";
}

/// Prints trained weights by role, in the order in which roles are met. Returns their number.
static size_t printTrained(const TrainSurvey &survey, const std::string &optimizer) {
  std::vector<std::pair<std::string, Total>> roles;
  Total all;
  for (const TrainSurvey::Weight &weight : survey.weights) {
    if (!weight.obstacle.empty())
      continue;
    auto role = std::find_if(roles.begin(), roles.end(),
                             [&](const auto &each) { return each.first == weight.role; });
    if (role == roles.end())
      role = roles.insert(roles.end(), {weight.role, {}});
    role->second.add(weight);
    all.add(weight);
  }
  for (const auto &[role, total] : roles)
    printLine("trained", role + ": " + total.describe() + "; " + total.names.join());
  if (!roles.empty())
    printLine("trained", "all, with " + makePrintable(optimizer) + ": " + all.describe());
  return all.names.all.size();
}

/// Prints what stays as it is, by reason: weights of the program, then tensors that are only in the
/// file.
static void printFrozen(const TrainSurvey &survey, const TrainingFacts &facts) {
  std::vector<std::pair<std::string, Names>> reasons;
  auto add = [&](const std::string &reason, const std::string &name) {
    auto known = std::find_if(reasons.begin(), reasons.end(),
                              [&](const auto &each) { return each.first == reason; });
    if (known == reasons.end())
      known = reasons.insert(reasons.end(), {reason, {}});
    known->second.all.push_back(name);
  };
  std::set<std::string> known;
  for (const TrainSurvey::Weight &weight : survey.weights) {
    known.insert(weight.name);
    if (!weight.obstacle.empty())
      add(weight.obstacle, weight.name);
  }
  for (const TrainSurvey::Tie &tie : survey.ties)
    known.insert(tie.name);
  for (const TrainingFacts::Tensor &tensor : facts.initializers)
    if (!known.contains(tensor.name))
      add(!tensor.isFloat   ? "integers or quantised"
          : tensor.isScalar ? "a number without dimensions, part of the program"
                            : "no output depends on it",
          tensor.name);
  for (const auto &[reason, names] : reasons)
    printLine("frozen", makePrintable(reason) + ": " +
                            counted(names.all.size(), "tensor", "tensors") + "; " + names.join());
}

/// Prints what the export changed for training, as far as the file shows it.
static void printLost(const TrainSurvey &survey, const TrainingFacts &facts) {
  for (const char *op : {"BatchNormalization", "Dropout"}) {
    Names names;
    for (const TrainSurvey::Evaluated &node : survey.evaluated)
      if (node.op == op)
        names.all.push_back(node.node);
    if (names.all.empty())
      continue;
    bool isDropout = std::string(op) == "Dropout";
    printLine("lost", counted(names.all.size(), op, std::string(op) + " nodes") +
                          " in evaluation mode" +
                          (isDropout ? ", which does nothing in training either"
                                     : ", whose statistics training keeps as they are") +
                          ": " + names.join());
  }
  if (facts.biasedConvolutions && !facts.hasBatchNormalization)
    printLine("lost", counted(size_t(facts.biasedConvolutions), "Conv has", "Convs have") +
                          " a bias and the model has no BatchNormalization; if the network has "
                          "some, the exporter has folded them into the convolutions");
  if (!facts.hasDropout)
    printLine("lost", "the model has no Dropout; if the network has some, the exporter has left "
                      "them out, as it does in evaluation mode");
  if (!survey.evaluated.empty() || (facts.biasedConvolutions && !facts.hasBatchNormalization))
    printLine("lost", "to keep these, export in training mode and without constant folding, e.g. "
                      "torch.onnx.export(model.train(), ..., training=TrainingMode.TRAINING, "
                      "do_constant_folding=False)");
}

static void printTies(const TrainSurvey &survey, const TrainingFacts &facts) {
  for (const TrainSurvey::Tie &tie : survey.ties)
    printLine("tied",
              makePrintable("'" + tie.name + "' is " +
                            (tie.isTransposed ? "the transpose of '" : "'") + tie.to + "'"));
  std::set<std::string> trained;
  for (const TrainSurvey::Weight &weight : survey.weights)
    if (weight.obstacle.empty())
      trained.insert(weight.name);
  for (const onnx_import::EqualWeights &pair : facts.equal)
    if (trained.contains(pair.first) && trained.contains(pair.second))
      printLine("tie", makePrintable("'" + pair.first + "' and '" + pair.second + "'") +
                           " hold the same numbers" + (pair.isTransposed ? ", transposed" : "") +
                           "; training changes each by itself, or both together with --tie " +
                           makePrintable(quoteForShell(
                               formatTie(pair.first, pair.second, pair.isTransposed))));
}

/// Prints operations without a derivative, and freezes the weights behind them so that the rest can
/// be trained.
static void printBlocks(const TrainSurvey &survey, CompileOptions &options) {
  for (const TrainSurvey::Block &block : survey.blocks) {
    printLine("stop", "node '" + makePrintable(block.node) + "': " + block.what +
                          " has no derivative yet" +
                          (block.weights.empty()
                               ? ""
                               : "; " + counted(block.weights.size(), "weight", "weights") +
                                     " behind it would have to stay"));
    for (const std::string &weight : block.weights)
      options.train.parameters.push_back(weight + ": frozen");
  }
}

int gridloom::examineTraining(CompileOptions &options, TrainSurvey &survey) {
  if (options.train.optimizer.empty())
    options.train.optimizer = "adamw";
  if (int code = Compilation(options, std::cout, std::cerr).survey(survey))
    return code;
  TrainingFacts facts;
  if (std::string error = readTrainingFacts(options.input, facts); !error.empty()) {
    std::cerr << "error: " << makePrintable(error) << "\n";
    return 1;
  }
  options.train.losses = survey.losses;
  size_t trained = printTrained(survey, options.train.optimizer);
  printFrozen(survey, facts);
  printBlocks(survey, options);
  printLost(survey, facts);
  printTies(survey, facts);
  if (!survey.lossRemark.empty())
    printLine("loss", makePrintable(survey.lossRemark));
  for (const std::string &node : survey.controls)
    printLine("stop",
              "node '" + makePrintable(node) + "' is a loop or branch that is not unrolled");
  if (std::string error = tryFlushOutput(); !error.empty()) {
    std::cerr << "error: " << error << "\n";
    return 1;
  }
  if (trained == 0 && survey.controls.empty()) {
    std::cerr << "error: no weight of the model can be trained\n";
    return 1;
  }
  return 0;
}
