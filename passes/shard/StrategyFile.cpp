//===- StrategyFile.cpp - the shard phase's decisions as text -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/StrategyFile.h"

#include "dialects/dist/Limits.h"
#include "dialects/dist/Sharding.h"
#include "support/Text.h"
#include "support/Usage.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/YAMLParser.h"
#include "llvm/Support/YAMLTraits.h"

using namespace gridloom;
using llvm::StringRef;
using llvm::Twine;

static constexpr int64_t kVersion = 1;
static constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
static constexpr llvm::StringLiteral kMicroAxis = "micro";
static constexpr llvm::StringLiteral kUnreduced = "unreduced";

std::string StrategyFile::getMesh() const {
  return llvm::join(llvm::map_range(mesh,
                                    [](const StrategyAxis &axis) {
                                      return axis.name + "=" + std::to_string(axis.size);
                                    }),
                    ",");
}

int64_t StrategyFile::getNumStages() const {
  for (const StrategyAxis &axis : mesh)
    if (axis.name == stageAxis)
      return axis.size;
  return 1;
}

std::string StrategyFile::locate(unsigned line) const {
  return "'" + path + "'" + (line ? " line " + std::to_string(line) : "");
}

std::string gridloom::suggestName(StringRef name, const std::vector<std::string> &known) {
  // Each unknown name is compared with all known ones.
  constexpr size_t kMaxKnown = 20000, kMaxLength = 256;
  if (known.size() > kMaxKnown || name.size() > kMaxLength)
    return "";
  return suggest(name.str(), known);
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {
namespace yaml = llvm::yaml;

/// Reads one text. Syntax errors end it; other problems are collected.
class Reader {
public:
  Reader(StringRef text, StrategyFile &file)
      : stream((sources.setDiagHandler(keep, this), text), sources, /*ShowColors=*/false),
        file(file) {}
  std::vector<std::string> run();

private:
  using Visit = llvm::function_ref<bool(StringRef key, unsigned line, yaml::Node *value)>;

  static void keep(const llvm::SMDiagnostic &diagnostic, void *reader) {
    auto &self = *static_cast<Reader *>(reader);
    if (self.malformed.empty())
      self.malformed =
          "line " + std::to_string(diagnostic.getLineNo()) + ": " + diagnostic.getMessage().str();
  }
  unsigned getLine(yaml::Node *node) {
    return sources.getLineAndColumn(node->getSourceRange().Start).first;
  }
  void note(unsigned line, const Twine &text) {
    problems.push_back(("line " + Twine(line) + ": " + text).str());
  }
  /// Notes a problem and stops.
  bool stop(unsigned line, const Twine &text) {
    note(line, text);
    return false;
  }
  bool forEach(yaml::Node *node, unsigned line, const Twine &what, Visit visit);
  std::optional<std::string> readText(yaml::Node *node);
  bool readText(yaml::Node *node, unsigned line, StringRef what, std::string &text);
  bool readNumber(yaml::Node *node, unsigned line, StringRef what, int64_t least, int64_t most,
                  int64_t &number);
  bool readTop(StringRef key, unsigned line, yaml::Node *value);
  bool readVersion(unsigned line, yaml::Node *value);
  bool readModel(unsigned line, yaml::Node *value);
  bool readMesh(unsigned line, yaml::Node *value);
  bool readUnpack(unsigned line, yaml::Node *value);
  bool readSection(StrategySection section, unsigned line, yaml::Node *value, StrategyTable &table);
  bool readSpecialisations(unsigned line, yaml::Node *value);
  bool readSplit(unsigned line, yaml::Node *value, StrategyLine &entry);
  bool readFactors(unsigned line, yaml::Node *value, std::vector<FactorSplit> &factors);
  bool readDim(yaml::Node *value, DimSplit &dim, std::vector<std::string> *unreduced = nullptr);
  void check();
  void checkSplit(const StrategyLine &line);
  void checkAxes(const StrategyLine &line, const std::vector<std::string> &axes,
                 std::vector<StringRef> *seen);

  llvm::SourceMgr sources;
  yaml::Stream stream;
  StrategyFile &file;
  std::string malformed; ///< the first YAML error
  std::vector<std::string> problems;
  int64_t version = 0;
  unsigned stageAxisLine = 0;
};
} // namespace

/// The text of a scalar; nullopt for other nodes.
std::optional<std::string> Reader::readText(yaml::Node *node) {
  auto *scalar = llvm::dyn_cast_or_null<yaml::ScalarNode>(node);
  if (!scalar)
    return std::nullopt;
  llvm::SmallString<64> storage;
  return scalar->getValue(storage).str();
}

bool Reader::readText(yaml::Node *node, unsigned line, StringRef what, std::string &text) {
  std::optional<std::string> found = readText(node);
  if (!found)
    return stop(line, what + " is not a text");
  text = *found;
  return true;
}

bool Reader::readNumber(yaml::Node *node, unsigned line, StringRef what, int64_t least,
                        int64_t most, int64_t &number) {
  std::optional<std::string> text = readText(node);
  if (!text || StringRef(*text).getAsInteger(10, number))
    return stop(line, what + " is not a whole number");
  if (number < least || number > most)
    return stop(line, what + " is " + Twine(number) + "; it is from " + Twine(least) + " to " +
                          Twine(most));
  return true;
}

/// Visits the keys of a mapping, each with its line; duplicate keys are errors.
bool Reader::forEach(yaml::Node *node, unsigned line, const Twine &what, Visit visit) {
  if (llvm::isa_and_nonnull<yaml::NullNode>(node))
    return true; // a section with nothing in it
  auto *mapping = llvm::dyn_cast_or_null<yaml::MappingNode>(node);
  if (!mapping)
    return stop(line, what + " is not a list of names with a colon behind each");
  llvm::StringMap<unsigned> lines;
  for (yaml::KeyValueNode &entry : *mapping) {
    yaml::Node *keyNode = entry.getKey();
    std::optional<std::string> key = readText(keyNode);
    if (stream.failed())
      return false;
    if (!key)
      return stop(keyNode ? getLine(keyNode) : line, what + " has a key that is not a name");
    unsigned at = getLine(keyNode);
    auto [known, isNew] = lines.try_emplace(*key, at);
    if (!isNew)
      return stop(at, "'" + Twine(makePrintable(*key)) + "' is there twice, first in line " +
                          Twine(known->second));
    yaml::Node *value = entry.getValue();
    if (stream.failed() || !value || !visit(*key, at, value))
      return false;
  }
  return !stream.failed();
}

bool Reader::readVersion(unsigned line, yaml::Node *value) {
  return readNumber(value, line, "the version ('strategy')", 1, INT32_MAX, version);
}

bool Reader::readModel(unsigned line, yaml::Node *value) {
  return forEach(value, line, "'model'", [&](StringRef key, unsigned at, yaml::Node *node) {
    if (key == "name")
      return readText(node, at, "the model's name", file.model);
    if (key == "graph")
      return readText(node, at, "the graph's digest", file.graph);
    return stop(at,
                "'model' has no '" + Twine(makePrintable(key.str())) + "'; it has name and graph");
  });
}

bool Reader::readMesh(unsigned line, yaml::Node *value) {
  if (llvm::isa<yaml::NullNode>(value))
    return true;
  std::string text;
  if (!readText(value, line, "the mesh", text))
    return false;
  int64_t devices = 1;
  for (StringRef part : llvm::split(text, ',')) {
    auto [name, number] = part.split('=');
    StrategyAxis axis{name.trim().str(), 0};
    if (axis.name.empty() || number.trim().getAsInteger(10, axis.size) || axis.size < 1)
      return stop(line, "cannot read '" + Twine(makePrintable(part.str())) +
                            "' in the mesh; write name=size, e.g. data=2,model=2");
    if (axis.name == kMicroAxis)
      return stop(line, "the mesh names axis '" + Twine(kMicroAxis) +
                            "', which is reserved for micro-batches");
    if (llvm::any_of(file.mesh, [&](const StrategyAxis &known) { return known.name == axis.name; }))
      return stop(line, "the mesh names axis '" + Twine(makePrintable(axis.name)) + "' twice");
    if (axis.size > dist::kMaxDevices || devices * axis.size > dist::kMaxDevices)
      return stop(line, "the mesh has more than " + Twine(dist::kMaxDevices) + " devices");
    devices *= axis.size;
    file.mesh.push_back(std::move(axis));
  }
  return true;
}

bool Reader::readUnpack(unsigned line, yaml::Node *value) {
  auto *list = llvm::dyn_cast<yaml::SequenceNode>(value);
  if (!list)
    return stop(line, "'unpack' is not a list of nodes");
  for (yaml::Node &node : *list) {
    std::optional<std::string> name = readText(&node);
    if (stream.failed())
      return false;
    if (!name)
      return stop(line, "'unpack' is not a list of nodes");
    StrategyLine &entry = file.unpack.emplace_back();
    entry.key = *name;
    entry.line = getLine(&node);
  }
  return true;
}

/// One dimension: "{}", "{data, model}", "{model: 64}"; or, with `unreduced`, the axes of partial
/// sums: "{unreduced: {model}}".
bool Reader::readDim(yaml::Node *value, DimSplit &dim, std::vector<std::string> *unreduced) {
  auto *mapping = llvm::dyn_cast<yaml::MappingNode>(value);
  if (!mapping)
    return false;
  bool isLast = false;
  for (yaml::KeyValueNode &entry : *mapping) {
    std::optional<std::string> axis = readText(entry.getKey());
    if (!axis || stream.failed() || isLast)
      return false;
    yaml::Node *granule = entry.getValue();
    if (!granule)
      return false;
    if (unreduced && dim.axes.empty() && *axis == kUnreduced &&
        llvm::isa<yaml::MappingNode>(granule)) {
      DimSplit sums;
      if (!readDim(granule, sums) || sums.axes.empty() || sums.granule != 1)
        return false;
      *unreduced = std::move(sums.axes);
      isLast = true;
      continue;
    }
    dim.axes.push_back(*axis);
    if (llvm::isa<yaml::NullNode>(granule))
      continue;
    std::optional<std::string> text = readText(granule);
    if (!text || StringRef(*text).getAsInteger(10, dim.granule) || dim.granule < 1 ||
        dim.granule > dist::kMaxGranule)
      return false;
    isLast = true; // the granule of the dimension follows its last axis
  }
  return !stream.failed();
}

bool Reader::readSplit(unsigned line, yaml::Node *value, StrategyLine &entry) {
  auto malformedSplit = [&] {
    return !stream.failed() &&
           stop(line, "cannot read the split; write one {} for each dimension, with the axes that "
                      "split it, e.g. [{data}, {}, {model}], or {model: 64} for multiples of 64");
  };
  auto *list = llvm::dyn_cast<yaml::SequenceNode>(value);
  if (!list)
    return malformedSplit();
  for (yaml::Node &node : *list) {
    DimSplit dim;
    if (!entry.unreduced.empty() || !readDim(&node, dim, &entry.unreduced))
      return malformedSplit();
    if (entry.unreduced.empty())
      entry.dims.push_back(std::move(dim));
  }
  return !stream.failed();
}

/// "{d0: {data}, in0.d1: {model: 64}}"
bool Reader::readFactors(unsigned line, yaml::Node *value, std::vector<FactorSplit> &factors) {
  auto *mapping = llvm::dyn_cast<yaml::MappingNode>(value);
  bool isRead = mapping != nullptr;
  if (mapping)
    for (yaml::KeyValueNode &entry : *mapping) {
      std::optional<std::string> name = readText(entry.getKey());
      yaml::Node *split = name && !stream.failed() ? entry.getValue() : nullptr;
      isRead = split && llvm::none_of(
                            factors, [&](const FactorSplit &known) { return known.name == *name; });
      if (!isRead)
        break;
      FactorSplit &factor = factors.emplace_back();
      factor.name = *name;
      isRead = readDim(split, factor.split);
      if (!isRead)
        break;
    }
  if (stream.failed())
    return false;
  return isRead || stop(line, "cannot read the split of a node's work; write the axes of each "
                              "dimension, e.g. {d0: {data}, in0.d1: {model}}");
}

bool Reader::readSection(StrategySection section, unsigned line, yaml::Node *value,
                         StrategyTable &table) {
  StringRef name = kStrategySections[static_cast<size_t>(section)];
  return forEach(value, line, "'" + name + "'", [&](StringRef key, unsigned at, yaml::Node *node) {
    StrategyLine &entry = table[section].emplace_back();
    entry.key = key.str();
    entry.line = at;
    if (section == StrategySection::Splits) {
      bool isRead = readFactors(at, node, entry.factors);
      entry.text = printFactors(entry.factors);
      return isRead;
    }
    if (section != StrategySection::Stages) {
      bool isRead = readSplit(at, node, entry);
      entry.text = printSplit(entry.dims, entry.unreduced);
      if (isRead && !entry.unreduced.empty() && section != StrategySection::Nodes)
        note(at, "'" + Twine(makePrintable(entry.key)) +
                     "' is declared unreduced; only nodes leave partial sums");
      return isRead;
    }
    bool isRead = readNumber(node, at, "the stage", 0, INT32_MAX, entry.stage);
    entry.text = std::to_string(entry.stage);
    return isRead;
  });
}

static std::optional<StrategySection> findSection(StringRef name) {
  const auto *found = llvm::find(kStrategySections, name);
  if (found == kStrategySections.end())
    return std::nullopt;
  return static_cast<StrategySection>(found - kStrategySections.begin());
}

bool Reader::readSpecialisations(unsigned line, yaml::Node *value) {
  return forEach(
      value, line, "'specialisations'", [&](StringRef name, unsigned at, yaml::Node *node) {
        StrategyException &exception = file.specialisations.emplace_back();
        exception.name = name.str();
        exception.line = at;
        return forEach(node, at, "the specialisation",
                       [&](StringRef key, unsigned inner, yaml::Node *list) {
                         std::optional<StrategySection> section = findSection(key);
                         if (!section)
                           return stop(inner, "a specialisation has no section '" +
                                                  Twine(makePrintable(key.str())) + "'; it has " +
                                                  llvm::join(kStrategySections, ", "));
                         return readSection(*section, inner, list, exception.table);
                       });
      });
}

bool Reader::readTop(StringRef key, unsigned line, yaml::Node *value) {
  if (std::optional<StrategySection> section = findSection(key))
    return readSection(*section, line, value, file.common);
  if (key == "strategy")
    return readVersion(line, value);
  if (key == "model")
    return readModel(line, value);
  if (key == "mesh")
    return readMesh(line, value);
  if (key == "stage-axis") {
    stageAxisLine = line;
    return readText(value, line, "the axis of the stages", file.stageAxis);
  }
  if (key == "microbatches")
    return readNumber(value, line, "the number of micro-batches", 1, 1 << 20, file.microbatches);
  if (key == "chunk-matmul")
    return readNumber(value, line, "the number of chunks ('chunk-matmul')", 2, 1024,
                      file.chunkMatmul);
  if (key == "unpack")
    return readUnpack(line, value);
  if (key == "specialisations")
    return readSpecialisations(line, value);
  std::vector<std::string> known = {"strategy",        "model",        "mesh",
                                    "stage-axis",      "microbatches", "unpack",
                                    "specialisations", "chunk-matmul"};
  known.insert(known.end(), kStrategySections.begin(), kStrategySections.end());
  return stop(
      line,
      "section '" + Twine(makePrintable(key.str())) + "' is not of version " + Twine(kVersion) +
          " of strategy files, which this gridloom reads" + suggestName(key, known) +
          (version > kVersion ? " (the file is of version " + Twine(version) + ")" : Twine("")));
}

/// Checks that axes are in the mesh and are not the stages', and that the micro-batches' is last;
/// with `seen`, which collects those of the line, also that none repeats.
void Reader::checkAxes(const StrategyLine &line, const std::vector<std::string> &axes,
                       std::vector<StringRef> *seen) {
  std::string who = "'" + makePrintable(line.key) + "'";
  for (const std::string &axis : axes) {
    bool isMicro = axis == kMicroAxis;
    if (isMicro && file.microbatches == 1)
      note(line.line, who + " is split over '" + axis + "', but 'microbatches' is 1");
    else if (!isMicro && llvm::none_of(file.mesh, [&](const StrategyAxis &known) {
               return known.name == axis;
             })) {
      std::vector<std::string> names;
      for (const StrategyAxis &known : file.mesh)
        names.push_back(known.name);
      note(line.line,
           who + " is split over axis '" + makePrintable(axis) + "', which is not in the mesh" +
               (names.empty() ? " of one device" : " (axes: " + llvm::join(names, ", ") + ")") +
               suggestName(axis, names));
    } else if (axis == file.stageAxis && file.getNumStages() > 1)
      note(line.line, who + " is split over axis '" + makePrintable(axis) +
                          "', along which devices run different pipeline stages");
    else if (seen && llvm::is_contained(*seen, axis))
      note(line.line, who + " is split over axis '" + makePrintable(axis) + "' twice");
    else if (isMicro && &axis != &axes.back())
      note(line.line, who + " is split over '" + axis + "' before another axis; it comes last");
    if (seen)
      seen->push_back(axis);
  }
}

void Reader::checkSplit(const StrategyLine &line) {
  std::vector<StringRef> seen;
  for (const DimSplit &dim : line.dims)
    checkAxes(line, dim.axes, &seen);
  checkAxes(line, line.unreduced, &seen);
  if (llvm::is_contained(line.unreduced, kMicroAxis))
    note(line.line, "'" + makePrintable(line.key) +
                        "' is declared unreduced over 'micro'; micro-batches are not summed");
  for (const FactorSplit &factor : line.factors)
    checkAxes(line, factor.split.axes, nullptr);
}

/// Checks what can be known without the program.
void Reader::check() {
  if (!file.stageAxis.empty() && llvm::none_of(file.mesh, [&](const StrategyAxis &axis) {
        return axis.name == file.stageAxis;
      }))
    note(stageAxisLine,
         "the axis of the stages, '" + makePrintable(file.stageAxis) + "', is not in the mesh");
  auto checkTable = [&](const StrategyTable &table) {
    for (const auto &section : table.sections)
      for (const StrategyLine &line : section)
        checkSplit(line);
    for (const StrategyLine &line : table[StrategySection::Stages])
      if (line.stage >= file.getNumStages())
        note(line.line, "'" + makePrintable(line.key) + "' is given stage " + Twine(line.stage) +
                            "; the mesh has " + Twine(file.getNumStages()) + " stage" +
                            (file.getNumStages() == 1 ? "" : "s, from 0"));
  };
  checkTable(file.common);
  for (const StrategyException &exception : file.specialisations)
    checkTable(exception.table);
}

std::vector<std::string> Reader::run() {
  yaml::document_iterator document = stream.begin();
  yaml::Node *root = document == stream.end() ? nullptr : document->getRoot();
  bool isEmpty = !root || llvm::isa<yaml::NullNode>(root); // the next document ends the nodes
  bool isRead =
      !isEmpty && !stream.failed() &&
      forEach(root, 1, "the file", [&](StringRef key, unsigned line, yaml::Node *value) {
        // The version determines what the rest means.
        if (version == 0 && key != "strategy")
          return stop(line, "the file begins with '" + Twine(makePrintable(key.str())).str() +
                                "', not with its version; write 'strategy: 1' first");
        return readTop(key, line, value);
      });
  if (isRead && ++document != stream.end() && !stream.failed())
    note(1, "the file has several documents; write one");
  if (!malformed.empty())
    return {malformed};
  if (stream.failed())
    return {"line 1: the file is not YAML"};
  if (isEmpty)
    return {"line 1: the file is empty"};
  if (isRead && version > kVersion)
    note(1, "the file is of version " + Twine(version) + "; this gridloom reads version " +
                Twine(kVersion));
  if (problems.empty())
    check();
  return problems;
}

std::vector<std::string> gridloom::parseStrategy(StringRef text, StrategyFile &file) {
  if (text.contains('\0') || !llvm::json::isUTF8(text))
    return {"line 1: the file is not text"};
  return Reader(text, file).run();
}

std::vector<std::string> gridloom::readStrategy(const std::string &path, StrategyFile &file) {
  file.path = path;
  auto buffer =
      llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/true);
  if (!buffer)
    return {"cannot read the strategy '" + path + "': " + buffer.getError().message()};
  if ((*buffer)->getBufferSize() > kMaxBytes)
    return {"the strategy '" + path + "' has " + formatBytes((*buffer)->getBufferSize()) +
            "; at most " + formatBytes(kMaxBytes) + " are read"};
  std::vector<std::string> problems = parseStrategy((*buffer)->getBuffer(), file);
  for (std::string &problem : problems)
    problem = "the strategy '" + path + "' " + problem;
  return problems;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// A name in YAML, without quotes where possible.
static std::string quote(StringRef name) {
  std::string plain = name.str();
  for (size_t i = 0; i < plain.size(); ++i) {
    bool isInside = i > 0 && plain[i - 1] != ' ';
    bool hasNext = i + 1 < plain.size() && name[i + 1] != ' ';
    if (plain[i] == '/' ||
        (isInside && (plain[i] == '*' || plain[i] == '#' || plain[i] == '[' || plain[i] == ']')) ||
        (isInside && hasNext && plain[i] == ':'))
      plain[i] = 'x';
  }
  switch (yaml::needsQuotes(plain)) {
  case yaml::QuotingType::None:
    return name.str();
  case yaml::QuotingType::Single: {
    std::string text = name.str();
    for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 2)
      text.insert(at, 1, '\'');
    return "'" + text + "'";
  }
  case yaml::QuotingType::Double:
    break;
  }
  return "\"" + yaml::escape(name, /*EscapePrintable=*/false) + "\"";
}

/// An axis or a mesh in YAML, with quotes unless it may stand between braces as it is.
static std::string quoteAxes(StringRef axes) {
  bool isPlain =
      llvm::all_of(axes, [](char c) { return llvm::isAlnum(c) || StringRef("_-.=,").contains(c); });
  return isPlain && !axes.starts_with("-")
             ? axes.str()
             : "\"" + yaml::escape(axes, /*EscapePrintable=*/false) + "\"";
}

/// A key with its colon. YAML requires a question mark before long keys.
static std::string printKey(StringRef key, unsigned indent) {
  constexpr size_t kMaxKey = 1000;
  std::string text = quote(key), pad(indent, ' ');
  return text.size() < kMaxKey ? pad + text + ":" : pad + "? " + text + "\n" + pad + ":";
}

/// "{}", "{data, model}", "{model: 64}"
static std::string printDim(const std::vector<std::string> &axes, int64_t granule) {
  std::string text = "{";
  for (const std::string &axis : axes)
    text += (&axis == &axes.front() ? "" : ", ") + quoteAxes(axis);
  return text + (granule > 1 ? ": " + std::to_string(granule) : "") + "}";
}

std::string gridloom::printSplit(const std::vector<DimSplit> &dims,
                                 const std::vector<std::string> &unreduced) {
  std::vector<std::string> parts;
  for (const DimSplit &dim : dims)
    parts.push_back(printDim(dim.axes, dim.granule));
  if (!unreduced.empty())
    parts.push_back("{" + kUnreduced.str() + ": " + printDim(unreduced, 1) + "}");
  return "[" + llvm::join(parts, ", ") + "]";
}

std::string gridloom::printFactors(const std::vector<FactorSplit> &factors) {
  std::vector<std::string> parts;
  for (const FactorSplit &factor : factors)
    parts.push_back(quoteAxes(factor.name) + ": " +
                    printDim(factor.split.axes, factor.split.granule));
  return "{" + llvm::join(parts, ", ") + "}";
}

static void printTable(llvm::raw_ostream &os, const StrategyTable &table, unsigned indent) {
  for (auto [name, section] : llvm::zip_equal(kStrategySections, table.sections)) {
    if (section.empty())
      continue;
    os.indent(indent) << name << ":\n";
    for (const StrategyLine &line : section)
      os << printKey(line.key, indent + 2) << " " << line.text << "\n";
  }
}

std::string gridloom::printStrategy(const StrategyFile &file) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "# How gridloom splits this model; docs/strategy-files.md says what may be changed.\n"
     << "strategy: " << kVersion << "\n";
  if (!file.model.empty() || !file.graph.empty())
    os << "model:\n  name: " << quote(file.model) << "\n  graph: " << quote(file.graph) << "\n";
  os << "mesh:" << (file.mesh.empty() ? "" : " ") << quoteAxes(file.getMesh()) << "\n";
  if (!file.stageAxis.empty())
    os << "stage-axis: " << quote(file.stageAxis) << "\n";
  if (file.microbatches > 1)
    os << "microbatches: " << file.microbatches << "\n";
  if (file.chunkMatmul)
    os << "chunk-matmul: " << file.chunkMatmul << "\n";
  if (!file.unpack.empty())
    os << "unpack:\n";
  for (const StrategyLine &line : file.unpack)
    os << "  - " << quote(line.key) << "\n";
  printTable(os, file.common, 0);
  if (!file.specialisations.empty())
    os << "specialisations:\n";
  for (const StrategyException &exception : file.specialisations) {
    os << printKey(exception.name, 2) << "\n";
    printTable(os, exception.table, 4);
  }
  return text;
}
