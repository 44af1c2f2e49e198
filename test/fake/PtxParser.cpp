//===- PtxParser.cpp - parsing PTX ----------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A module is parsed in two passes: first its variables and the statements of its routines, then
// the kernels. Calls are inlined; their parameters become slots.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxReader.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>

namespace gridloom::fake {

namespace {

bool isSpace(unsigned char c) { return std::isspace(c) != 0; }
bool isDigit(unsigned char c) { return std::isdigit(c) != 0; }

std::string trim(const std::string &text) {
  auto begin = std::find_if_not(text.begin(), text.end(), isSpace);
  auto end = std::find_if_not(text.rbegin(), std::make_reverse_iterator(begin), isSpace).base();
  return {begin, end};
}

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    parts.push_back(trim(part));
  return parts;
}

/// Splits at commas outside of braces, brackets and parentheses.
std::vector<std::string> splitOperands(const std::string &text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (char c : text) {
    depth += (std::strchr("{[(", c) != nullptr) - (std::strchr("}])", c) != nullptr);
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  for (std::string &part : parts)
    part = trim(part);
  if (parts.size() == 1 && parts[0].empty())
    parts.clear();
  return parts;
}

std::string lastWord(const std::string &text) {
  std::string word = trim(text);
  return word.substr(word.find_last_of(" \t") + 1);
}

/// What is between the brackets of `text`: "[a+4]", "{a, b}".
std::string inside(const std::string &text) { return trim(text.substr(1, text.size() - 2)); }

uint64_t parseInteger(std::string text) {
  if (!text.empty() && (text.back() == 'U' || text.back() == 'u'))
    text.pop_back();
  size_t used = 0;
  uint64_t value = text.front() == '-' ? static_cast<uint64_t>(std::stoll(text, &used, 0))
                                       : std::stoull(text, &used, 0);
  if (used != text.size())
    throw std::invalid_argument(text);
  return value;
}

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

struct Statement {
  std::string text;
  size_t line = 0;
};

/// A kernel or a function, as text.
struct Routine {
  std::string name;
  std::vector<std::string> parameters, results;
  uint32_t maxThreads[3] = {0, 0, 0};
  std::vector<Statement> body;
};

[[noreturn]] void failAt(const Statement &statement) {
  throw PtxError("line " + std::to_string(statement.line) +
                 " of the PTX is not understood: " + statement.text);
}

/// Inline assembly has several statements on a line: "{ .reg .b32 t; mov.b64 {t, %r1}, %rd1; }".
std::vector<std::string> splitStatements(std::string line) {
  std::vector<std::string> statements;
  if (line.size() > 1 && line.front() == '{') {
    statements.emplace_back("{");
    line = trim(line.substr(1));
  }
  for (size_t end; (end = line.find(';')) != std::string::npos; line = trim(line.substr(end + 1)))
    statements.push_back(line.substr(0, end + 1));
  if (!line.empty())
    statements.push_back(line);
  return statements;
}

class ModuleReader {
public:
  explicit ModuleReader(const std::string &text) {
    std::stringstream stream(text);
    size_t number = 0;
    Statement open;
    for (std::string line; std::getline(stream, line);) {
      ++number;
      for (const std::string &part : splitStatements(trim(line.substr(0, line.find("//"))))) {
        if (open.text.empty())
          open.line = number;
        open.text += (open.text.empty() ? "" : " ") + part;
        // An unfinished statement continues on the next line.
        bool ends = std::strchr(";:{}", part.back()) || open.text.starts_with(".version") ||
                    open.text.starts_with(".target") || open.text.starts_with(".address_size");
        if (ends) {
          statements.push_back(open);
          open = {};
        }
      }
    }
    if (!open.text.empty())
      failAt(open);
  }

  void read() {
    for (next = 0; next < statements.size(); ++next) {
      const std::string &text = statements[next].text;
      if (text.starts_with(".visible .entry") || text.starts_with(".entry"))
        kernels.push_back(readRoutine());
      else if (text.starts_with(".func") || text.starts_with(".visible .func"))
        readFunction();
      else if (text.starts_with(".shared") || text.find(" .shared ") != std::string::npos)
        shared.push_back(statements[next]);
      else if (text.find(".global ") != std::string::npos)
        readData();
      else if (!text.starts_with(".version") && !text.starts_with(".target") &&
               !text.starts_with(".address_size"))
        failAt(statements[next]);
    }
  }

  std::vector<Routine> kernels;
  std::map<std::string, Routine> functions;
  std::vector<Statement> shared; // declarations
  std::map<std::string, std::shared_ptr<std::vector<uint64_t>>> data;

private:
  /// "NAME(parameters) .maxntid 256, 1, 1 {" and its body.
  Routine readRoutine() {
    Routine routine;
    const Statement header = statements[next];
    std::string text = header.text;
    if (text.back() != '{')
      failAt(header);
    size_t close = text.rfind(')'), open = text.rfind('(', close);
    if (open == std::string::npos || close == std::string::npos)
      failAt(header);
    routine.name = lastWord(text.substr(0, open));
    for (const std::string &parameter : split(text.substr(open + 1, close - open - 1), ','))
      routine.parameters.push_back(parameter);
    // "(.param .b64 result) name"
    size_t first = text.find('(');
    if (first != open)
      for (const std::string &result :
           split(text.substr(first + 1, text.find(')') - first - 1), ','))
        routine.results.push_back(result);
    for (const char *directive : {".maxntid ", ".reqntid "})
      if (size_t threads = text.find(directive); threads != std::string::npos) {
        std::stringstream stream(text.substr(threads + std::strlen(directive)));
        char comma;
        for (uint32_t &most : routine.maxThreads)
          if (!(stream >> most >> comma))
            most = std::max(most, 1u);
      }
    int depth = 1;
    for (++next; next < statements.size(); ++next) {
      const std::string &line = statements[next].text;
      depth += (line == "{") - (line == "}");
      if (depth == 0)
        return routine;
      if (line != "{" && line != "}")
        routine.body.push_back(statements[next]);
    }
    failAt(header);
  }

  void readFunction() {
    if (statements[next].text.back() == ';')
      return; // its body comes later
    Routine routine = readRoutine();
    functions[routine.name] = std::move(routine);
  }

  /// ".global .align 64 .b8 name[5] = {1, 2, 0, 1, 4};", also ".b32" and without values.
  void readData() {
    const Statement &statement = statements[next];
    const std::string &text = statement.text;
    size_t open = text.find('['), close = text.find(']'), equals = text.find('=');
    size_t type = text.rfind(".b", open);
    if (open == std::string::npos || type == std::string::npos || close == std::string::npos)
      failAt(statement);
    try {
      size_t bytes = std::stoul(text.substr(type + 2)) / 8;
      size_t count = std::stoul(text.substr(open + 1));
      auto words = std::make_shared<std::vector<uint64_t>>((bytes * count + 7) / 8 + 8);
      // Vectors are only aligned to 16 bytes; constants may need 64.
      auto address = reinterpret_cast<uintptr_t>(words->data());
      size_t skip = (64 - address % 64) % 64 / 8;
      auto *to = reinterpret_cast<std::byte *>(words->data() + skip);
      if (equals != std::string::npos)
        for (const std::string &value :
             split(inside(trim(text.substr(equals + 1, text.size() - equals - 2))), ',')) {
          uint64_t bits = parseInteger(value);
          std::memcpy(to, &bits, bytes);
          to += bytes;
        }
      std::string name = lastWord(text.substr(0, open));
      data[name] = std::move(words);
    } catch (const std::logic_error &) {
      failAt(statement);
    }
  }

  std::vector<Statement> statements;
  size_t next = 0;
};

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

class KernelReader {
public:
  KernelReader(const ModuleReader &module, const Routine &routine)
      : module(module), routine(routine) {}

  PtxKernel read() {
    kernel.name = routine.name;
    std::copy(std::begin(routine.maxThreads), std::end(routine.maxThreads), kernel.maxThreads);
    discard = addSlot();
    carry = addSlot();
    for (const auto &[name, words] : module.data) {
      kernel.data.push_back(words);
      auto address = reinterpret_cast<uintptr_t>(words->data());
      symbols[name] = address + (64 - address % 64) % 64;
    }
    for (const Statement &statement : module.shared)
      addShared(statement);
    for (const std::string &parameter : routine.parameters) {
      if (parameter.find("64") == std::string::npos)
        throw PtxError("kernel " + kernel.name +
                       " has a parameter that is no pointer: " + parameter);
      uint32_t slot = addSlot();
      kernel.parameters.push_back(slot);
      variables[lastWord(parameter)] = slot;
    }
    readBody(routine);
    for (const auto &[index, label] : branches) {
      auto found = labels.find(label);
      if (found == labels.end())
        throw PtxError("kernel " + kernel.name + " branches to " + label + ", which is nowhere");
      kernel.code[index].target = found->second;
    }
    return std::move(kernel);
  }

private:
  uint32_t addSlot() { return kernel.numSlots++; }
  uint32_t here() const { return static_cast<uint32_t>(kernel.code.size()); }
  [[noreturn]] void fail() const { failAt(*current); }

  void readBody(const Routine &body) {
    if (++depth > 8)
      throw PtxError("kernel " + kernel.name + " calls " + body.name + ", which calls itself");
    for (const Statement &statement : body.body) {
      current = &statement;
      const std::string &text = statement.text;
      if (text.starts_with(".reg"))
        declareRegisters(text);
      else if (text.starts_with(".shared"))
        addShared(statement);
      else if (text.starts_with(".local"))
        addLocal(statement);
      else if (text.back() == ':')
        labels[prefix + text.substr(0, text.size() - 1)] = here();
      else if (!text.starts_with(".param") && !text.starts_with(".loc") &&
               !text.starts_with(".pragma"))
        readInstruction(text);
    }
    --depth;
  }

  //===--------------------------------------------------------------------===//
  // Declarations
  //===--------------------------------------------------------------------===//

  /// ".reg .b32 %r<24>;" or ".reg .b64 %SP;"
  void declareRegisters(const std::string &text) {
    std::vector<std::string> parts = splitOperands(text.substr(4, text.size() - 5));
    size_t at = parts.empty() ? std::string::npos : parts[0].find_first_of(" \t");
    if (at == std::string::npos)
      fail();
    std::string type = parts[0].substr(0, at);
    parts[0] = trim(parts[0].substr(at));
    unsigned bits = 1;
    if (type != ".pred") {
      const char *end = type.data() + type.size();
      if (type.size() < 3 || std::from_chars(type.data() + 2, end, bits).ptr != end)
        fail();
    }
    for (const std::string &part : parts)
      widths[prefix + part.substr(0, part.find('<'))] = bits;
  }

  std::pair<size_t, std::string> readVariable(const Statement &statement) const {
    const std::string &text = statement.text;
    size_t at = text.find(".align "), open = text.find('[');
    if (at == std::string::npos || open == std::string::npos ||
        text.find(".b8") == std::string::npos)
      failAt(statement);
    return {std::stoul(text.substr(at + 7)), lastWord(text.substr(0, open))};
  }

  static size_t alignTo(size_t value, size_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
  }

  /// ".shared .align 16 .b8 name[1024];", or ".extern" without a size, which the launch gives.
  void addShared(const Statement &statement) {
    constexpr size_t gap = 64; // unused space that reveals indices out of range
    auto [alignment, name] = readVariable(statement);
    size_t end = kernel.shared.empty() ? 0 : kernel.shared.back().end + gap;
    size_t begin = alignTo(end, alignment);
    std::string size = statement.text.substr(statement.text.find('[') + 1);
    if (kernel.hasDynamicShared)
      failAt(statement);
    kernel.hasDynamicShared = size[0] == ']';
    kernel.shared.push_back({begin, begin + (size[0] == ']' ? 0 : std::stoul(size)), alignment});
    symbols[name] = begin;
  }

  void addLocal(const Statement &statement) {
    auto [alignment, name] = readVariable(statement);
    kernel.localBytes = alignTo(kernel.localBytes, std::max<size_t>(alignment, 16));
    symbols[prefix + name] = kernel.localBytes;
    kernel.localBytes += std::stoul(statement.text.substr(statement.text.find('[') + 1));
  }

  //===--------------------------------------------------------------------===//
  // Instructions
  //===--------------------------------------------------------------------===//

  void readInstruction(std::string text) {
    if (text.back() != ';')
      fail();
    text.pop_back();
    PtxInstruction i;
    i.text = text;
    if (text[0] == '@') {
      size_t end = text.find_first_of(" \t");
      i.guardInverted = text[1] == '!';
      size_t begin = i.guardInverted ? 2 : 1;
      i.guard = static_cast<int>(getRegister(text.substr(begin, end - begin), 1));
      text = trim(text.substr(end));
    }
    size_t end = text.find_first_of(" \t");
    std::vector<std::string> parts = split(text.substr(0, end), '.');
    std::vector<std::string> operands =
        splitOperands(end == std::string::npos ? "" : trim(text.substr(end)));
    if (parts[0] == "call")
      return call(operands);
    if (parts[0] == "ret" && depth > 1) {
      i.name = PtxName::Bra;
      branches.emplace_back(here(), prefix + "$return");
      kernel.code.push_back(std::move(i));
      return;
    }
    if (!describePtx(i, parts))
      fail();
    if (i.name == PtxName::Bra) {
      if (operands.size() != 1)
        fail();
      branches.emplace_back(here(), prefix + operands[0]);
    } else if (i.has("param")) {
      return moveParameter(i, operands);
    } else {
      addOperands(i, operands);
      if (i.carriesIn)
        i.sources[i.numSources++] = carry;
      if (i.has("cc"))
        i.results[i.numResults++] = carry;
      if (!finishPtx(i))
        fail();
    }
    kernel.code.push_back(std::move(i));
  }

  /// "(retval0), name, (param0, param1)": inlines the routine's statements, with renamed registers.
  void call(const std::vector<std::string> &operands) {
    size_t at = operands.empty() || operands[0].front() != '(' ? 0 : 1;
    if (operands.size() <= at || !module.functions.count(operands[at]))
      fail();
    const Routine &callee = module.functions.at(operands[at]);
    auto bind = [&](const std::vector<std::string> &formals, const std::vector<std::string> &given,
                    const std::string &inner) {
      if (formals.size() != given.size())
        fail();
      for (size_t n = 0; n < given.size(); ++n)
        variables[inner + lastWord(formals[n].substr(0, formals[n].find('[')))] =
            findVariable(given[n]);
    };
    std::string inner = prefix + std::to_string(numCalls++) + ":";
    bind(callee.results, at ? splitOperands(inside(operands[0])) : std::vector<std::string>(),
         inner);
    bind(callee.parameters,
         operands.size() > at + 1 ? splitOperands(inside(operands[at + 1]))
                                  : std::vector<std::string>(),
         inner);
    std::string outer = std::exchange(prefix, inner);
    const Statement *caller = current;
    readBody(callee);
    labels[prefix + "$return"] = here();
    prefix = outer;
    current = caller;
  }

  /// ld.param and st.param: each offset of a parameter is a slot.
  void moveParameter(PtxInstruction &i, std::vector<std::string> operands) {
    if (operands.size() != 2 || i.vector != 1)
      fail();
    bool isLoad = i.name == PtxName::Ld;
    std::string address = operands[isLoad ? 1 : 0];
    if (address.front() != '[')
      fail();
    address = inside(address);
    size_t plus = address.find('+');
    uint32_t variable = findVariable(trim(address.substr(0, plus)));
    uint64_t offset = plus == std::string::npos ? 0 : parseInteger(trim(address.substr(plus + 1)));
    auto [place, isNew] = places.try_emplace({variable, offset}, 0);
    if (isNew)
      place->second = offset == 0 ? variable : addSlot();
    i.name = PtxName::Mov;
    i.modifiers.clear();
    uint32_t slot = parseSlot(operands[isLoad ? 0 : 1], i.type, true);
    i.results[0] = isLoad ? slot : place->second;
    i.sources[0] = isLoad ? place->second : slot;
    i.numResults = i.numSources = 1;
    i.compute = selectCompute(i);
    kernel.code.push_back(i);
  }

  void addOperands(PtxInstruction &i, const std::vector<std::string> &operands) {
    bool hasResult = i.name != PtxName::St && i.name != PtxName::Bar && i.name != PtxName::Exit &&
                     !(i.name == PtxName::Atom && i.has("red"));
    for (size_t n = 0; n < operands.size(); ++n) {
      const std::string &text = operands[n];
      bool isResult = hasResult && n == 0;
      bool mayBeWider = i.name == PtxName::Ld || i.name == PtxName::St || i.name == PtxName::Cvt;
      if (text.front() == '[') {
        addAddress(i, inside(text));
      } else if (text.front() == '{') {
        std::vector<std::string> parts = split(inside(text), ',');
        if (i.vector == 1 && i.name != PtxName::Mov)
          fail();
        for (const std::string &part : parts)
          addOperand(i, part, isResult, mayBeWider, parts.size());
      } else if (size_t bar = text.find('|'); isResult && bar != std::string::npos) {
        addOperand(i, trim(text.substr(0, bar)), true, mayBeWider, 1);
        addOperand(i, trim(text.substr(bar + 1)), true, mayBeWider, 1);
      } else {
        addOperand(i, text, isResult, mayBeWider, 1);
      }
    }
  }

  /// `parts`: the number of registers that form one value of the instruction's type.
  void addOperand(PtxInstruction &i, const std::string &text, bool isResult, bool mayBeWider,
                  size_t parts) {
    uint8_t &count = isResult ? i.numResults : i.numSources;
    if (count == i.results.size())
      fail();
    unsigned bits = widthOfOperand(i, isResult, isResult ? i.numResults : i.numSources);
    if (i.name == PtxName::Mov && parts > 1)
      bits = static_cast<unsigned>(bits / parts);
    (isResult ? i.results : i.sources)[count++] = parseSlot(text, i.type, mayBeWider, bits);
  }

  void addAddress(PtxInstruction &i, const std::string &text) {
    size_t plus = text.find('+');
    std::string base = trim(text.substr(0, plus));
    if (plus != std::string::npos)
      i.offset = static_cast<int64_t>(parseInteger(trim(text.substr(plus + 1))));
    if (base.front() == '%') {
      i.hasBase = true;
      i.base = getRegister(base, 0);
    } else {
      i.offset += static_cast<int64_t>(parseImmediate(base));
    }
  }

  //===--------------------------------------------------------------------===//
  // Operands
  //===--------------------------------------------------------------------===//

  /// The slot of a .param variable of the current routine.
  uint32_t findVariable(const std::string &name) {
    auto [found, isNew] = variables.try_emplace(prefix + name, 0);
    if (isNew)
      found->second = addSlot();
    return found->second;
  }

  uint32_t parseSlot(const std::string &text, PtxType type, bool mayBeWider, unsigned bits = 0) {
    if (text.empty())
      fail();
    if (text == "_")
      return discard;
    auto special = std::find(std::begin(ptxSpecials), std::end(ptxSpecials), text);
    if (special != std::end(ptxSpecials)) {
      auto [slot, isNew] = specialSlots.try_emplace(text, 0);
      if (isNew) {
        slot->second = addSlot();
        kernel.specials.emplace_back(slot->second,
                                     static_cast<uint32_t>(special - std::begin(ptxSpecials)));
      }
      return slot->second;
    }
    if (text.front() == '%' || widths.count(prefix + text))
      return getRegister(text, bits, mayBeWider);
    uint64_t value = parseImmediate(text);
    if (type == PtxType::Pred && value > 1)
      value = 1; // -1 is true
    auto [slot, isNew] = constantSlots.try_emplace(value, 0);
    if (isNew) {
      slot->second = addSlot();
      kernel.constants.emplace_back(slot->second, value);
    }
    return slot->second;
  }

  uint64_t parseImmediate(const std::string &text) const {
    if (auto symbol = symbols.find(prefix + text); symbol != symbols.end())
      return symbol->second;
    if (auto symbol = symbols.find(text); symbol != symbols.end())
      return symbol->second;
    try {
      if (text.size() > 2 && text[0] == '0' && std::strchr("fFdD", text[1])) {
        size_t used = 0;
        uint64_t value = std::stoull(text.substr(2), &used, 16);
        if (used == text.size() - 2)
          return value;
        fail();
      }
      return parseInteger(text);
    } catch (const std::logic_error &) {
      fail();
    }
  }

  /// The slot of a register. If declared, it must have `bits`, or more if `mayBeWider`.
  uint32_t getRegister(const std::string &name, unsigned bits, bool mayBeWider = false) {
    std::string stem = name;
    while (!stem.empty() && isDigit(static_cast<unsigned char>(stem.back())))
      stem.pop_back();
    auto width = widths.find(prefix + stem);
    if (width == widths.end())
      width = widths.find(prefix + name);
    if (width == widths.end() && (stem == name || stem.size() < 2 || !widths.empty()))
      fail(); // undeclared, or an unknown special register
    if (width != widths.end() && bits &&
        !(width->second == bits || (mayBeWider && width->second > bits && bits > 1)))
      fail();
    auto [slot, isNew] = registers.try_emplace(prefix + name, 0);
    if (isNew)
      slot->second = addSlot();
    return slot->second;
  }

  const ModuleReader &module;
  const Routine &routine;
  PtxKernel kernel;
  const Statement *current = nullptr;
  std::string prefix; // of names in the current routine
  int depth = 0;
  int numCalls = 0;
  uint32_t discard = 0, carry = 0;
  std::map<std::string, uint64_t> symbols;
  std::map<std::string, unsigned> widths; // bits of declared registers, by stem
  std::map<std::string, uint32_t> registers, specialSlots, labels;
  std::map<uint64_t, uint32_t> constantSlots;
  std::map<std::string, uint32_t> variables;
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> places; // by variable and offset
  std::vector<std::pair<size_t, std::string>> branches;
};

} // namespace

std::map<std::string, PtxKernel> parsePtx(const std::string &text) {
  ModuleReader module(text);
  module.read();
  std::map<std::string, PtxKernel> kernels;
  for (const Routine &routine : module.kernels)
    kernels[routine.name] = KernelReader(module, routine).read();
  return kernels;
}

} // namespace gridloom::fake
