//===- StrategyLookup.cpp - what a strategy file says of a program --------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/StrategyLookup.h"

#include "passes/shard/Spots.h"
#include "support/Text.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace gridloom;

/// The number of problems that are listed; others are only counted.
static constexpr size_t kMaxListed = 20;

/// What the names of a section refer to.
static StringRef describe(StrategySection section) {
  switch (section) {
  case StrategySection::Stages:
  case StrategySection::Nodes:
  case StrategySection::Splits:
    return "node";
  case StrategySection::Inputs:
    return "input";
  case StrategySection::Weights:
    return "weight";
  case StrategySection::Outputs:
    return "output";
  case StrategySection::Storage:
    return "weight or state";
  }
  llvm_unreachable("unknown section");
}

StrategyLookup::Table StrategyLookup::makeTable(const StrategyTable &lines) const {
  Table table{&lines, {}};
  table.names.resize(kNumStrategySections);
  for (StrategySection section : sections) {
    SmallVector<StringRef> keys;
    for (const StrategyLine &line : lines[section])
      keys.push_back(line.key);
    table.names[static_cast<size_t>(section)] = std::make_unique<NameTable>(keys);
  }
  return table;
}

/// "main batch=1" without the sizes: "main batch".
static std::string dropSizes(StringRef specialisation) {
  std::string text;
  for (StringRef part : llvm::split(specialisation, ','))
    text += (text.empty() ? "" : ",") + part.rsplit('=').first.str();
  return text;
}

StrategyLookup::StrategyLookup(const StrategyFile &file, ModuleOp module,
                               ArrayRef<StrategySection> asked)
    : file(file), module(module), sections(asked) {
  common = makeTable(file.common);
  known.resize(kNumStrategySections);
  knownSet.resize(kNumStrategySections);
  llvm::StringSet<> names, forms;
  std::vector<std::string> list;
  for (func::FuncOp func : listSpecialisations(module)) {
    list.push_back(nameSpecialisation(func));
    names.insert(list.back());
    forms.insert(dropSizes(list.back()));
  }
  for (const StrategyException &exception : file.specialisations)
    if (names.contains(exception.name))
      special.try_emplace(exception.name, makeTable(exception.table));
    else if (!forms.contains(dropSizes(exception.name))) // another size is no mistake
      note(exception.line, "unknown specialisation '" + makePrintable(exception.name) + "'" +
                               suggestName(exception.name, list));
}

void StrategyLookup::note(unsigned line, const Twine &text) {
  problems.emplace_back(line, text.str());
}

void StrategyLookup::noteIdle(unsigned line, const Twine &text) {
  idle.try_emplace(line, text.str());
}

const StrategyLine *StrategyLookup::find(StrategySection section, StringRef specialisation,
                                         StringRef full, StringRef base) {
  auto index = static_cast<size_t>(section);
  if (knownSet[index].insert(full).second)
    known[index].push_back(full.str());
  auto look = [&](const Table &table) -> const StrategyLine * {
    const std::vector<StrategyLine> &lines = (*table.lines)[section];
    const StrategyLine *found = nullptr;
    for (unsigned i : table.names[index]->find(full, base)) {
      if (found && found->text != lines[i].text) {
        std::string pair = std::to_string(found->line) + "/" + std::to_string(lines[i].line);
        if (contradicted.insert(pair).second)
          note(lines[i].line, "'" + makePrintable(lines[i].key) + "' says " + lines[i].text +
                                  " of '" + makePrintable(full.str()) + "', and '" +
                                  makePrintable(found->key) + "' (line " + Twine(found->line) +
                                  ") says " + found->text +
                                  "; make them agree, or add a line for '" +
                                  makePrintable(full.str()) + "' alone");
        break;
      }
      found = found ? found : &lines[i];
    }
    return found;
  };
  // Searches both, so that both record which of their lines are used.
  const StrategyLine *usual = look(common);
  auto own = special.find(specialisation);
  const StrategyLine *exception = own == special.end() ? nullptr : look(own->getValue());
  return exception ? exception : usual;
}

/// Whether a key refers to the model: "NODE:broadcast#2", "NODE/body/NODE", "w[0:64]".
bool StrategyLookup::isOfModel(StringRef key) const {
  if (file.modelNames.empty())
    return false;
  auto isName = [&](StringRef name) {
    return file.modelNames.contains(name) ||
           (name.contains('*') && llvm::any_of(file.modelNames, [&](const auto &entry) {
              return matchesPattern(name, entry.getKey());
            }));
  };
  for (StringRef part : {"/body/", "/then/", "/else/"})
    if (size_t at = key.rfind(part); at != StringRef::npos && isOfModel(key.drop_front(at + 6)))
      return true;
  if (isName(key))
    return true;
  for (size_t i = key.size(); i-- > 1;)
    if (StringRef(":#[_").contains(key[i]) && isName(key.take_front(i)))
      return true;
  return false;
}

void StrategyLookup::noteUnused(const Table &table) {
  for (StrategySection section : sections) {
    auto index = static_cast<size_t>(section);
    for (unsigned i : table.names[index]->getUnused().set_bits()) {
      const StrategyLine &line = (*table.lines)[section][i];
      std::string name = "'" + makePrintable(line.key) + "'";
      if (isOfModel(line.key))
        unused.emplace_back(line.line, name);
      else
        note(line.line,
             "unknown " + describe(section) + " " + name + suggestName(line.key, known[index]));
    }
  }
}

LogicalResult StrategyLookup::report() {
  noteUnused(common);
  for (const auto &entry : special)
    noteUnused(entry.getValue());
  llvm::sort(unused);
  if (!unused.empty()) {
    InFlightDiagnostic warning = emitWarning(module.getLoc())
                                 << file.locate(unused.front().first) << ": "
                                 << unused.front().second
                                 << " is not used: the program as compiled here has nothing of "
                                    "that name";
    if (unused.size() > 1)
      warning << "; " << unused.size() - 1 << " more lines are not used";
  }
  if (!idle.empty()) {
    auto [line, text] = *idle.begin();
    InFlightDiagnostic warning = emitWarning(module.getLoc()) << file.locate(line) << ": " << text;
    if (idle.size() > 1)
      warning << "; so it is with " << idle.size() - 1 << " more lines";
  }
  if (problems.empty())
    return success();
  llvm::stable_sort(problems, llvm::less_first());
  InFlightDiagnostic error = module.emitError("the strategy ")
                             << file.locate(problems.front().first) << ": "
                             << problems.front().second;
  for (const auto &[line, text] : llvm::ArrayRef(problems).drop_front().take_front(kMaxListed - 1))
    error.attachNote() << "line " << line << ": " << text;
  if (problems.size() > kMaxListed)
    error.attachNote() << "and " << problems.size() - kMaxListed << " more";
  return error;
}

std::shared_ptr<const StrategyFile> gridloom::readForPass(ModuleOp module,
                                                          const std::string &path) {
  auto file = std::make_shared<StrategyFile>();
  std::vector<std::string> problems = readStrategy(path, *file);
  if (problems.empty())
    return file;
  InFlightDiagnostic error = module.emitError(problems.front());
  for (const std::string &problem : llvm::ArrayRef(problems).drop_front())
    error.attachNote() << problem;
  return nullptr;
}
