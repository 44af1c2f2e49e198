//===- PtxParser.cpp - reading PTX ----------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxModule.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <set>
#include <sstream>

namespace gridloom::fake {

namespace {

constexpr std::string_view specials[] = {
    "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
    "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid"};

std::optional<PtxType> parseType(std::string_view text) {
  static const std::map<std::string_view, PtxType> types = {
      {"pred", PtxType::Pred}, {"u8", PtxType::U8},   {"b8", PtxType::U8},   {"u16", PtxType::U16},
      {"b16", PtxType::U16},   {"u32", PtxType::U32}, {"b32", PtxType::U32}, {"u64", PtxType::U64},
      {"b64", PtxType::U64},   {"s8", PtxType::S8},   {"s16", PtxType::S16}, {"s32", PtxType::S32},
      {"s64", PtxType::S64},   {"f16", PtxType::F16}, {"f32", PtxType::F32}, {"f64", PtxType::F64}};
  auto found = types.find(text);
  if (found == types.end())
    return std::nullopt;
  return found->second;
}

std::string trim(const std::string &text) {
  auto isSpace = [](unsigned char c) { return std::isspace(c); };
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

/// Splits at commas outside of braces and brackets.
std::vector<std::string> splitOperands(const std::string &text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (char c : text) {
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
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

class Parser {
public:
  explicit Parser(const std::string &text) : lines(split(text, '\n')) {
    for (std::string &line : lines)
      line = trim(line.substr(0, line.find("//")));
  }

  std::map<std::string, PtxKernel> parse() {
    std::map<std::string, PtxKernel> kernels;
    while (next < lines.size()) {
      const std::string &line = lines[next];
      if (line.starts_with(".visible .entry") || line.starts_with(".entry")) {
        PtxKernel kernel = parseKernel();
        kernels[kernel.name] = std::move(kernel);
      } else if (line.find(".shared ") != std::string::npos) {
        addShared(line, moduleSharedBytes);
        ++next;
      } else if (line.empty() || line.starts_with(".version") || line.starts_with(".target") ||
                 line.starts_with(".address_size")) {
        ++next;
      } else {
        fail();
      }
    }
    return kernels;
  }

private:
  [[noreturn]] void fail() const {
    throw PtxError("line " + std::to_string(next + 1) + " of the PTX is not understood: " +
                   (next < lines.size() ? lines[next] : "the end"));
  }

  /// ".shared .align 16 .b8 name[1024];", also ".extern" without a size: the launch's.
  void addShared(const std::string &line, size_t &used) {
    size_t at = line.find(".align ");
    size_t open = line.find('[');
    if (at == std::string::npos || open == std::string::npos ||
        line.find(".b8") == std::string::npos)
      fail();
    size_t alignment = std::stoul(line.substr(at + 7));
    std::string name = line.substr(0, open);
    name = trim(name.substr(name.rfind(' ')));
    used = (used + alignment - 1) / alignment * alignment;
    shared[name] = used;
    if (line[open + 1] != ']')
      used += std::stoul(line.substr(open + 1));
  }

  PtxKernel parseKernel() {
    PtxKernel kernel;
    std::string header;
    while (lines[next] != "{") {
      header += lines[next++] + "\n";
      if (next == lines.size())
        fail();
    }
    ++next;
    size_t open = header.find('(');
    size_t close = header.find(')');
    kernel.name = trim(header.substr(0, open));
    kernel.name = kernel.name.substr(kernel.name.rfind(' ') + 1);
    for (const std::string &parameter : split(header.substr(open + 1, close - open - 1), ',')) {
      if (parameter.empty())
        continue;
      if (parameter.find("64") == std::string::npos)
        throw PtxError("kernel " + kernel.name +
                       " has a parameter that is no pointer: " + parameter);
      kernel.parameters.push_back(parameter.substr(parameter.rfind(' ') + 1));
    }
    size_t threads = header.find(".maxntid ");
    if (threads != std::string::npos) {
      std::stringstream stream(header.substr(threads + 9));
      char comma;
      stream >> kernel.maxThreads[0] >> comma >> kernel.maxThreads[1] >> comma >>
          kernel.maxThreads[2];
    }
    kernel.sharedBytes = moduleSharedBytes;
    parseBody(kernel);
    return kernel;
  }

  void parseBody(PtxKernel &kernel) {
    registers.clear();
    std::map<std::string, uint32_t> labels;
    std::vector<std::pair<size_t, std::string>> branches;
    for (; next < lines.size() && lines[next] != "}"; ++next) {
      const std::string &line = lines[next];
      if (line.empty() || line.starts_with(".reg") || line.starts_with(".loc") ||
          line.starts_with(".pragma"))
        continue;
      if (line.starts_with(".shared")) {
        addShared(line, kernel.sharedBytes);
      } else if (line.back() == ':') {
        labels[line.substr(0, line.size() - 1)] = static_cast<uint32_t>(kernel.code.size());
      } else {
        std::string target;
        kernel.code.push_back(parseInstruction(kernel, line, target));
        if (!target.empty())
          branches.emplace_back(kernel.code.size() - 1, target);
      }
    }
    if (next == lines.size())
      fail();
    ++next;
    for (const auto &[index, label] : branches) {
      auto found = labels.find(label);
      if (found == labels.end())
        throw PtxError("kernel " + kernel.name + " branches to " + label + ", which is nowhere");
      kernel.code[index].target = found->second;
    }
    kernel.numRegisters = static_cast<uint32_t>(registers.size());
  }

  PtxInstruction parseInstruction(const PtxKernel &kernel, std::string line, std::string &target) {
    if (line.back() != ';')
      fail();
    line.pop_back();
    PtxInstruction instruction;
    if (line[0] == '@') {
      size_t end = line.find_first_of(" \t");
      instruction.guardInverted = line[1] == '!';
      instruction.guard = static_cast<int>(getRegister(line.substr(
          instruction.guardInverted ? 2 : 1, end - (instruction.guardInverted ? 2 : 1))));
      line = trim(line.substr(end));
    }
    size_t end = line.find_first_of(" \t");
    std::vector<std::string> parts = split(line.substr(0, end), '.');
    std::string rest = end == std::string::npos ? "" : trim(line.substr(end));
    instruction.text = line;
    instruction.name = parseName(parts.front());
    parts.erase(parts.begin());
    bool isFirstType = true;
    for (const std::string &part : parts)
      if (auto type = parseType(part)) {
        if (isFirstType)
          instruction.to = *type;
        instruction.type = *type;
        isFirstType = false;
      } else {
        describe(instruction, part);
      }
    if (instruction.name == PtxName::Bra) {
      target = rest;
      return instruction;
    }
    for (const std::string &operand : splitOperands(rest))
      addOperand(kernel, instruction, operand);
    return instruction;
  }

  PtxName parseName(const std::string &text) const {
    using enum PtxName;
    static const std::map<std::string_view, PtxName> names = {
        {"abs", Abs},   {"add", Add},           {"and", And},     {"bar", Bar},   {"barrier", Bar},
        {"bra", Bra},   {"copysign", Copysign}, {"cos", Cos},     {"cvt", Cvt},   {"cvta", Cvta},
        {"div", Div},   {"ex2", Ex2},           {"exit", Exit},   {"fma", Fma},   {"ld", Ld},
        {"lg2", Lg2},   {"mad", Mad},           {"max", Max},     {"min", Min},   {"mov", Mov},
        {"mul", Mul},   {"neg", Neg},           {"not", Not},     {"or", Or},     {"rcp", Rcp},
        {"rem", Rem},   {"ret", Exit},          {"rsqrt", Rsqrt}, {"selp", Selp}, {"setp", Setp},
        {"shfl", Shfl}, {"shl", Shl},           {"shr", Shr},     {"sin", Sin},   {"sqrt", Sqrt},
        {"st", St},     {"sub", Sub},           {"tanh", Tanh},   {"xor", Xor}};
    auto found = names.find(text);
    if (found == names.end())
      fail();
    return found->second;
  }

  /// What stands between the name and the type. Parts that change nothing on one host are accepted;
  /// others are refused.
  void describe(PtxInstruction &instruction, const std::string &part) const {
    static const std::map<std::string_view, PtxCompare> comparisons = {
        {"eq", PtxCompare::Eq}, {"ne", PtxCompare::Ne},   {"lt", PtxCompare::Lt},
        {"lo", PtxCompare::Lt}, {"le", PtxCompare::Le},   {"ls", PtxCompare::Le},
        {"gt", PtxCompare::Gt}, {"hi", PtxCompare::Gt},   {"ge", PtxCompare::Ge},
        {"hs", PtxCompare::Ge}, {"num", PtxCompare::Num}, {"nan", PtxCompare::Nan}};
    static const std::set<std::string_view> neutral = {"rn",      "rz",   "lo",     "global", "nc",
                                                       "to",      "sync", "approx", "full",   "uni",
                                                       "aligned", "cta",  ""};
    if (instruction.name == PtxName::Setp && !instruction.mode) {
      bool unordered = part.size() == 3 && part.back() == 'u';
      auto found = comparisons.find(std::string_view(part).substr(0, unordered ? 2 : 3));
      if (found != comparisons.end()) {
        instruction.compare = found->second;
        instruction.unordered = unordered || part == "nan";
        return;
      }
    }
    if (part == "ftz")
      instruction.flush = true;
    else if (part == "wide")
      instruction.wide = true;
    else if (part == "hi")
      instruction.high = true;
    else if (part == "NaN")
      instruction.keepNan = true;
    else if (part == "sat")
      instruction.saturate = true;
    else if (part == "shared")
      instruction.shared = true;
    else if (part == "param")
      instruction.parameter = true;
    else if (part == "warp")
      instruction.warp = true;
    else if (part == "v2" || part == "v4" || part == "v8")
      instruction.vector = part[1] - '0';
    else if (part == "rm" && instruction.name == PtxName::Fma)
      instruction.round = 'm';
    else if (part == "rzi" || part == "rni" || part == "rmi" || part == "rpi")
      instruction.round = part[1];
    else if (part == "bfly" || part == "down" || part == "up" || part == "idx" || part == "and" ||
             part == "or" || part == "xor")
      instruction.mode = part[0];
    else if (!neutral.count(part) && !std::all_of(part.begin(), part.end(),
                                                  [](unsigned char c) { return std::isdigit(c); }))
      fail();
  }

  void addOperand(const PtxKernel &kernel, PtxInstruction &instruction, const std::string &text) {
    if (text.front() == '[') {
      addAddress(kernel, instruction, trim(text.substr(1, text.size() - 2)));
    } else if (text.front() == '{') {
      instruction.packs = !instruction.operands.empty();
      for (const std::string &part : split(text.substr(1, text.size() - 2), ','))
        instruction.operands.push_back(parseOperand(part));
    } else if (size_t bar = text.find('|'); bar != std::string::npos) {
      // "%r1|%p1": a shuffle's value and whether its source was in range.
      instruction.operands.push_back(parseOperand(text.substr(0, bar)));
      instruction.base = parseOperand(text.substr(bar + 1));
    } else {
      instruction.operands.push_back(parseOperand(text));
    }
  }

  void addAddress(const PtxKernel &kernel, PtxInstruction &instruction, const std::string &text) {
    size_t plus = text.find('+');
    std::string base = trim(text.substr(0, plus));
    if (plus != std::string::npos)
      instruction.offset = std::stoll(trim(text.substr(plus + 1)));
    const auto &parameters = kernel.parameters;
    auto parameter = std::find(parameters.begin(), parameters.end(), base);
    if (parameter != parameters.end()) {
      instruction.offset += 8 * (parameter - parameters.begin());
    } else {
      instruction.base = parseOperand(base);
    }
  }

  PtxOperand parseOperand(const std::string &text) {
    if (text == "_")
      return {PtxOperand::Discard};
    auto special = std::find(std::begin(specials), std::end(specials), text);
    if (special != std::end(specials))
      return {PtxOperand::Special, static_cast<uint32_t>(special - std::begin(specials))};
    if (text.front() == '%')
      return {PtxOperand::Register, getRegister(text)};
    if (auto symbol = shared.find(text); symbol != shared.end())
      return {PtxOperand::Immediate, 0, symbol->second};
    return {PtxOperand::Immediate, 0, parseImmediate(text)};
  }

  uint64_t parseImmediate(const std::string &text) const {
    try {
      if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") ||
          text.starts_with("0D"))
        return std::stoull(text.substr(2), nullptr, 16);
      if (text.front() == '-')
        return static_cast<uint64_t>(std::stoll(text, nullptr, 0));
      return std::stoull(text, nullptr, 0);
    } catch (const std::exception &) {
      fail();
    }
  }

  uint32_t getRegister(const std::string &name) {
    if (name.size() < 3 || !std::isdigit(static_cast<unsigned char>(name.back())))
      fail(); // a special register we do not know
    return registers.try_emplace(name, static_cast<uint32_t>(registers.size())).first->second;
  }

  std::vector<std::string> lines;
  size_t next = 0;
  size_t moduleSharedBytes = 0;
  std::map<std::string, size_t> shared;
  std::map<std::string, uint32_t> registers;
};

} // namespace

std::map<std::string, PtxKernel> parsePtx(const std::string &text) { return Parser(text).parse(); }

} // namespace gridloom::fake
