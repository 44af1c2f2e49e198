//===- PtxReader.cpp - decode PTX instructions ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxReader.h"

#include <algorithm>
#include <optional>
#include <set>

namespace gridloom::fake {

static std::optional<PtxType> parseType(std::string_view text) {
  static const std::map<std::string_view, PtxType> types = {
      {"pred", PtxType::Pred},   {"u8", PtxType::U8},       {"b8", PtxType::U8},
      {"u16", PtxType::U16},     {"b16", PtxType::U16},     {"u32", PtxType::U32},
      {"b32", PtxType::U32},     {"u64", PtxType::U64},     {"b64", PtxType::U64},
      {"s8", PtxType::S8},       {"s16", PtxType::S16},     {"s32", PtxType::S32},
      {"s64", PtxType::S64},     {"f16", PtxType::F16},     {"bf16", PtxType::BF16},
      {"f32", PtxType::F32},     {"f64", PtxType::F64},     {"u16x2", PtxType::U16x2},
      {"s16x2", PtxType::S16x2}, {"f16x2", PtxType::F16x2}, {"bf16x2", PtxType::BF16x2},
      {"f32x2", PtxType::F32x2}};
  auto found = types.find(text);
  if (found == types.end())
    return std::nullopt;
  return found->second;
}

static std::optional<PtxName> parseName(std::string_view text) {
  using enum PtxName;
  static const std::map<std::string_view, PtxName> names = {
      {"abs", Abs},     {"activemask", Activemask},
      {"add", Add},     {"and", And},
      {"atom", Atom},   {"bar", Bar},
      {"barrier", Bar}, {"bfe", Bfe},
      {"bfi", Bfi},     {"bmsk", Bmsk},
      {"bra", Bra},     {"clz", Clz},
      {"cnot", Cnot},   {"copysign", Copysign},
      {"cos", Cos},     {"cvt", Cvt},
      {"cvta", Cvta},   {"div", Div},
      {"ex2", Ex2},     {"exit", Exit},
      {"fma", Fma},     {"ld", Ld},
      {"lg2", Lg2},     {"lop3", Lop3},
      {"mad", Mad},     {"max", Max},
      {"min", Min},     {"mov", Mov},
      {"mul", Mul},     {"neg", Neg},
      {"not", Not},     {"or", Or},
      {"popc", Popc},   {"prmt", Prmt},
      {"rcp", Rcp},     {"red", Atom},
      {"redux", Redux}, {"rem", Rem},
      {"ret", Exit},    {"rsqrt", Rsqrt},
      {"sad", Sad},     {"selp", Selp},
      {"setp", Setp},   {"shf", Shf},
      {"shfl", Shfl},   {"shl", Shl},
      {"shr", Shr},     {"sin", Sin},
      {"sqrt", Sqrt},   {"st", St},
      {"sub", Sub},     {"szext", Szext},
      {"tanh", Tanh},   {"testp", Testp},
      {"trap", Trap},   {"vote", Vote},
      {"xor", Xor}};
  auto found = names.find(text);
  if (found == names.end())
    return std::nullopt;
  return found->second;
}

/// setp's comparison: true for less (1), equal (2), greater (4), unordered (8).
static uint8_t parseComparison(std::string_view text) {
  static const std::map<std::string_view, uint8_t> tables = {
      {"eq", 2},   {"ne", 5},   {"lt", 1},  {"le", 3},   {"gt", 4},   {"ge", 6},
      {"lo", 1},   {"ls", 3},   {"hi", 4},  {"hs", 6},   {"num", 7},  {"nan", 8},
      {"equ", 10}, {"neu", 13}, {"ltu", 9}, {"leu", 11}, {"gtu", 12}, {"geu", 14}};
  auto found = tables.find(text);
  return found == tables.end() ? 0 : found->second;
}

/// Modifiers that an instruction's function looks up by name, or that have no effect here.
static bool isKnown(PtxName name, const std::string &part) {
  using enum PtxName;
  static const std::map<PtxName, std::set<std::string_view>> known = {
      {Activemask, {}},
      {Atom,
       {"red", "relaxed", "gpu", "cta", "add", "min", "max", "and", "or", "xor", "exch", "cas"}},
      {Add, {"cc"}},
      {Sub, {"cc"}},
      {Bar, {"sync", "warp", "cta", "aligned"}},
      {Bmsk, {"clamp", "wrap"}},
      {Bra, {"uni"}},
      {Cvta, {"to", "global", "shared", "local"}},
      {Ld, {"nc", "param"}},
      {Lop3, {}},
      {Mad, {"lo", "hi", "wide", "cc"}},
      {Max, {"NaN"}},
      {Min, {"NaN"}},
      {Mul, {"lo", "hi", "wide"}},
      {Redux, {"sync", "add", "min", "max", "and", "or", "xor"}},
      {Exit, {"uni"}},
      {Shf, {"l", "r", "clamp", "wrap"}},
      {Shfl, {"sync"}},
      {St, {"param"}},
      {Szext, {"clamp", "wrap"}},
      {Testp, {"finite", "infinite", "number", "notanumber", "normal", "subnormal"}},
      {Vote, {"sync", "all", "any", "uni", "ballot"}}};
  auto found = known.find(name);
  return found != known.end() && found->second.count(part);
}

static bool describePart(PtxInstruction &i, const std::string &part) {
  bool isMemory = i.name == PtxName::Ld || i.name == PtxName::St || i.name == PtxName::Atom;
  if (i.name == PtxName::Setp && !i.compare) {
    i.compare = parseComparison(part);
    return i.compare != 0;
  }
  if (i.name == PtxName::Setp && (part == "and" || part == "or" || part == "xor")) {
    i.mode = part[0];
  } else if (i.name == PtxName::Shfl &&
             (part == "bfly" || part == "down" || part == "up" || part == "idx")) {
    i.mode = part[0];
  } else if (part == "ftz") {
    i.flush = true;
  } else if (part == "sat") {
    i.saturate = true;
  } else if (part == "approx" || (part == "full" && i.name == PtxName::Div)) {
    i.approximate = true;
    i.modifiers.push_back(part);
  } else if (part == "rn" || part == "rz" || part == "rm" || part == "rp") {
    i.round = part[1];
  } else if (i.name == PtxName::Cvt &&
             (part == "rni" || part == "rzi" || part == "rmi" || part == "rpi")) {
    i.round = part[1];
    i.mode = 'i';
  } else if (isMemory && (part == "global" || part == "shared" || part == "local")) {
    i.space = part == "global"   ? PtxSpace::Global
              : part == "shared" ? PtxSpace::Shared
                                 : PtxSpace::Local;
  } else if (isMemory && (part == "v2" || part == "v4" || part == "v8")) {
    i.vector = static_cast<uint8_t>(part[1] - '0');
  } else if (isKnown(i.name, part)) {
    i.readOnly |= part == "nc";
    i.modifiers.push_back(part);
  } else {
    return false;
  }
  return true;
}

bool describePtx(PtxInstruction &i, const std::vector<std::string> &parts) {
  i.carriesIn = parts[0] == "addc" || parts[0] == "subc" || parts[0] == "madc";
  std::optional<PtxName> name = parseName(i.carriesIn ? parts[0].substr(0, 3) : parts[0]);
  if (!name)
    return false;
  i.name = *name;
  if (parts[0] == "red")
    i.modifiers.emplace_back("red");
  for (size_t n = 1; n < parts.size(); ++n) {
    if (std::optional<PtxType> type = parseType(parts[n])) {
      if (i.to == PtxType::None)
        i.to = *type;
      i.type = *type;
    } else if (!describePart(i, parts[n])) {
      return false;
    }
  }
  return true;
}

/// 8-bit values are kept in 16-bit registers.
static unsigned registerBits(PtxType type) {
  return type == PtxType::Pred ? 1 : std::max(16u, 8 * getBytes(type));
}

unsigned widthOfOperand(const PtxInstruction &i, bool isResult, unsigned number) {
  using enum PtxName;
  unsigned own = registerBits(i.type);
  switch (i.name) {
  case Setp:
    return isResult || number == 2 ? 1 : own;
  case Testp:
    return isResult ? 1 : own;
  case Selp:
    return !isResult && number == 2 ? 1 : own;
  case Cvt:
    return isResult ? registerBits(i.to) : own;
  case Mad:
  case Mul:
    return i.has("wide") && (isResult || number == 2) ? 2 * own : own;
  case Shl:
  case Shr:
    return !isResult && number == 1 ? 32 : own;
  case Bfe:
  case Szext:
    return !isResult && number >= 1 ? 32 : own;
  case Bfi:
    return !isResult && number >= 2 ? 32 : own;
  case Clz:
  case Popc:
    return isResult ? 32 : own;
  case Shfl:
    return isResult && number == 1 ? 1 : 32;
  case Vote:
    return isResult ? (i.has("ballot") ? 32 : 1) : number == 0 ? 1 : 32;
  case Bar:
    return 32;
  default:
    return own;
  }
}

/// Whether warp-wide, memory and control instructions have the right number of operands.
static bool isShaped(const PtxInstruction &i) {
  using enum PtxName;
  switch (i.name) {
  case Ld:
    return i.numResults == i.vector && i.numSources == 0;
  case St:
    return i.numResults == 0 && i.numSources == i.vector;
  case Atom:
    return i.numResults == (i.has("red") ? 0 : 1) && i.numSources == (i.has("cas") ? 2 : 1) &&
           i.vector == 1;
  case Bar:
    return i.has("sync") && i.numResults == 0 && i.numSources == 1;
  case Shfl:
    return i.has("sync") && i.mode && i.numResults >= 1 && i.numSources == 4;
  case Vote:
    return i.has("sync") && i.numResults == 1 && i.numSources == 2;
  case Redux:
    return i.has("sync") && i.numResults == 1 && i.numSources == 2 &&
           (i.type == PtxType::U32 || i.type == PtxType::S32);
  case Activemask:
    return i.numResults == 1 && i.numSources == 0;
  default:
    return i.numResults == 0 && i.numSources == 0;
  }
}

/// The number of sources of a computing instruction; 0 if `selectCompute` checks it.
static unsigned countSources(const PtxInstruction &i) {
  using enum PtxName;
  switch (i.name) {
  case Mov:
  case Cvt:
  case Setp:
    return 0;
  case Abs:
  case Clz:
  case Cnot:
  case Cos:
  case Cvta:
  case Ex2:
  case Lg2:
  case Neg:
  case Not:
  case Popc:
  case Rcp:
  case Rsqrt:
  case Sin:
  case Sqrt:
  case Tanh:
  case Testp:
    return 1;
  case Bfe:
  case Fma:
  case Mad:
  case Prmt:
  case Sad:
  case Selp:
  case Shf:
    return 3;
  case Bfi:
  case Lop3:
    return 4;
  default:
    return 2;
  }
}

bool finishPtx(PtxInstruction &i) {
  using enum PtxName;
  switch (i.name) {
  case Ld:
  case St:
  case Atom:
  case Bar:
  case Shfl:
  case Vote:
  case Redux:
  case Activemask:
  case Exit:
  case Trap:
    return isShaped(i);
  default:
    break;
  }
  if (i.carriesIn || i.has("cc")) {
    bool isWhole =
        i.numResults == 1U + i.has("cc") && i.numSources == countSources(i) + i.carriesIn;
    i.compute = isWhole ? selectCarrying(i) : nullptr;
    return i.compute != nullptr;
  }
  unsigned sources = countSources(i);
  bool isOne = i.numResults == 1 || i.name == Setp || i.name == Mov;
  if (!isOne || (sources && i.numSources != sources))
    return false;
  i.compute = selectCompute(i);
  return i.compute != nullptr;
}

} // namespace gridloom::fake
