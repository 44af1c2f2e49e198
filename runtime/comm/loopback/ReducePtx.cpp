//===- ReducePtx.cpp - elementwise reduction as PTX -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/loopback/ReducePtx.h"

#include "runtime/comm/Reduce.h"

#include <vector>

using namespace gridloom::rt;

namespace {

/// Writes one kernel. Values are register names. Accumulators are f32 for 16-bit floats, 32 bits
/// for short integers, else the element's own type.
class Writer {
public:
  Writer(DataType type, Reduction reduction, int inputs)
      : type(type), reduction(reduction), inputs(inputs), bytes(sizeOf(type)),
        name(getReduceName(type, reduction, inputs)) {}

  std::string write();

private:
  using Values = std::vector<std::string>;

  bool isShort() const { return bytes < 4; }
  bool isFloat() const { return gridloom::rt::isFloat(type); }
  bool isSigned() const {
    return type == DataType::I8 || type == DataType::I16 || type == DataType::I32 ||
           type == DataType::I64;
  }
  /// f32, f64, s32, u64, ...: the accumulator's type.
  std::string accumulatorType() const {
    return (isFloat() ? "f" : isSigned() ? "s" : "u") + std::string(bytes == 8 ? "64" : "32");
  }
  /// The register type of a loaded element, or of a 32-bit word of elements.
  std::string wordType() const {
    return isShort() ? "b32" : isFloat() ? accumulatorType() : bytes == 8 ? "b64" : "b32";
  }
  std::string parameter(int index) const { return name + "_param_" + std::to_string(index); }

  /// A new register for values of this type.
  std::string make(const std::string &ofType) {
    const char *prefix = ofType == "pred"         ? "%p"
                         : ofType == "b16"        ? "%h"
                         : ofType == "f32"        ? "%f"
                         : ofType == "f64"        ? "%fd"
                         : ofType.ends_with("64") ? "%rd"
                                                  : "%r";
    return prefix + std::to_string(next++);
  }
  void line(const std::string &text) { body += "\t" + text + ";\n"; }
  /// dest = op.type a, b...
  std::string emit(const std::string &op, const std::string &resultType,
                   const std::string &operands) {
    std::string result = make(resultType);
    line(op + " \t" + result + ", " + operands);
    return result;
  }

  std::string fromRaw(const std::string &raw);
  std::string toRaw(const std::string &value);
  std::string combine(const std::string &a, const std::string &b);
  std::string address(int parameterIndex, const std::string &offset);
  Values loadVector(const std::string &from);
  void storeVector(const std::string &to, const Values &values);
  std::string loadElement(const std::string &from);
  void storeElement(const std::string &to, const std::string &value);
  void loop(const std::string &label, const std::string &index, const std::string &end,
            size_t elementBytes, bool vectors);

  DataType type;
  Reduction reduction;
  int inputs;
  size_t bytes;
  std::string name, body, stride;
  int next = 1;
};

} // namespace

/// Converts an element's bits, in the low part of a 32-bit register, to the accumulator.
std::string Writer::fromRaw(const std::string &raw) {
  switch (type) {
  case DataType::F16:
    return emit("cvt.f32.f16", "f32", emit("cvt.u16.u32", "b16", raw));
  case DataType::BF16:
    return emit("mov.b32", "f32", emit("shl.b32", "b32", raw + ", 16"));
  case DataType::Bool:
    return emit("min.u32", "b32", raw + ", 1");
  case DataType::I8:
  case DataType::I16: {
    std::string shift = std::to_string(32 - 8 * bytes);
    return emit("shr.s32", "b32", emit("shl.b32", "b32", raw + ", " + shift) + ", " + shift);
  }
  default:
    return raw;
  }
}

/// Converts an accumulator to an element's bits, zero-extended.
std::string Writer::toRaw(const std::string &value) {
  switch (type) {
  case DataType::F16:
    return emit("cvt.u32.u16", "b32", emit("cvt.rn.f16.f32", "b16", value));
  case DataType::BF16: {
    // Round to nearest, ties to even; NaN stays NaN.
    std::string bits = emit("mov.b32", "b32", value);
    std::string high = emit("shr.u32", "b32", bits + ", 16");
    std::string odd = emit("and.b32", "b32", high + ", 1");
    std::string up = emit("add.s32", "b32", emit("add.s32", "b32", bits + ", " + odd) + ", 32767");
    std::string rounded = emit("shr.u32", "b32", up + ", 16");
    std::string quiet = emit("or.b32", "b32", high + ", 64");
    std::string nan = emit("setp.nan.f32", "pred", value + ", " + value);
    return emit("selp.b32", "b32", quiet + ", " + rounded + ", " + nan);
  }
  default:
    return emit("and.b32", "b32", value + ", " + std::to_string((1u << (8 * bytes)) - 1));
  }
}

std::string Writer::combine(const std::string &a, const std::string &b) {
  std::string own = accumulatorType(), both = a + ", " + b;
  bool sum = reduction == Reduction::Sum, prod = reduction == Reduction::Prod;
  if (type == DataType::Bool)
    return emit(sum || reduction == Reduction::Max ? "max.u32" : "min.u32", "b32", both);
  // "rn" keeps the assembler from fusing a product with a sum.
  if (sum)
    return emit(isFloat() ? "add.rn." + own : bytes == 8 ? "add.s64" : "add.s32", own, both);
  if (prod)
    return emit((isFloat() ? "mul.rn." : "mul.lo.") + own, own, both);
  bool max = reduction == Reduction::Max;
  if (!isFloat())
    return emit((max ? "max." : "min.") + own, own, both);
  // As on the host: NaN is kept, and of two equal values the second is taken.
  std::string wins = emit((max ? "setp.gt." : "setp.lt.") + own, "pred", both);
  std::string nan = emit("setp.nan." + own, "pred", a + ", " + a);
  std::string first = emit("or.pred", "pred", wins + ", " + nan);
  return emit("selp." + own, own, both + ", " + first);
}

std::string Writer::address(int parameterIndex, const std::string &offset) {
  std::string pointer = emit("ld.param.u64", "b64", "[" + parameter(parameterIndex) + "]");
  std::string global = emit("cvta.to.global.u64", "b64", pointer);
  return emit("add.s64", "b64", global + ", " + offset);
}

Writer::Values Writer::loadVector(const std::string &from) {
  Values words, values;
  size_t wordBytes = bytes == 8 ? 8 : 4, numWords = reduceVectorBytes / wordBytes;
  std::string list;
  for (size_t i = 0; i < numWords; ++i) {
    words.push_back(make(wordType()));
    list += (i ? ", " : "") + words.back();
  }
  line("ld.global.v" + std::to_string(numWords) + "." + wordType() + " \t{" + list + "}, [" + from +
       "]");
  if (!isShort())
    return words;
  std::string mask = std::to_string((1u << (8 * bytes)) - 1);
  for (const std::string &word : words)
    for (size_t at = 0; at < 4; at += bytes) {
      std::string shifted =
          at ? emit("shr.u32", "b32", word + ", " + std::to_string(8 * at)) : word;
      values.push_back(fromRaw(emit("and.b32", "b32", shifted + ", " + mask)));
    }
  return values;
}

void Writer::storeVector(const std::string &to, const Values &values) {
  Values words;
  if (!isShort())
    words = values;
  else
    for (size_t first = 0; first < values.size(); first += 4 / bytes) {
      std::string word = toRaw(values[first]);
      for (size_t i = 1; i < 4 / bytes; ++i) {
        std::string shift = std::to_string(8 * bytes * i);
        std::string part = emit("shl.b32", "b32", toRaw(values[first + i]) + ", " + shift);
        word = emit("or.b32", "b32", word + ", " + part);
      }
      words.push_back(word);
    }
  std::string list;
  for (const std::string &word : words)
    list += (list.empty() ? "" : ", ") + word;
  line("st.global.v" + std::to_string(words.size()) + "." + wordType() + " \t[" + to + "], {" +
       list + "}");
}

std::string Writer::loadElement(const std::string &from) {
  std::string loaded = isShort() ? "u" + std::to_string(8 * bytes) : wordType();
  std::string raw = emit("ld.global." + loaded, wordType(), "[" + from + "]");
  return isShort() ? fromRaw(raw) : raw;
}

void Writer::storeElement(const std::string &to, const std::string &value) {
  std::string stored = isShort() ? "u" + std::to_string(8 * bytes) : wordType();
  line("st.global." + stored + " \t[" + to + "], " + (isShort() ? toRaw(value) : value));
}

/// Reduces the vectors or elements at `index`, then every stride further, up to `end`.
void Writer::loop(const std::string &label, const std::string &index, const std::string &end,
                  size_t elementBytes, bool vectors) {
  std::string done = make("pred");
  body += "$" + label + ":\n";
  line("setp.ge.u64 \t" + done + ", " + index + ", " + end);
  line("@" + done + " bra \t$" + label + "_end");
  std::string offset = emit("mul.lo.s64", "b64", index + ", " + std::to_string(elementBytes));
  Values values;
  for (int input = 0; input < inputs; ++input) {
    std::string from = address(input, offset);
    Values more = vectors ? loadVector(from) : Values{loadElement(from)};
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = combine(values[i], more[i]);
    if (values.empty())
      values = more;
  }
  std::string to = address(inputs, offset);
  if (vectors)
    storeVector(to, values);
  else
    storeElement(to, values.front());
  line("add.s64 \t" + index + ", " + index + ", " + stride);
  line("bra.uni \t$" + label);
  body += "$" + label + "_end:\n";
}

std::string Writer::write() {
  auto special = [&](const char *which) { return emit("mov.u32", "b32", which); };
  std::string block = special("%ctaid.x"), threads = special("%ntid.x"),
              blocks = special("%nctaid.x");
  std::string thread = emit("cvt.u64.u32", "b64", special("%tid.x"));
  std::string first =
      emit("add.s64", "b64", emit("mul.wide.u32", "b64", block + ", " + threads) + ", " + thread);
  stride = emit("mul.wide.u32", "b64", blocks + ", " + threads);
  std::string vectors = emit("ld.param.u64", "b64", "[" + parameter(inputs + 1) + "]");
  std::string count = emit("ld.param.u64", "b64", "[" + parameter(inputs + 2) + "]");
  std::string vector = emit("mov.b64", "b64", first);
  loop("vectors", vector, vectors, reduceVectorBytes, /*vectors=*/true);
  std::string covered =
      emit("mul.lo.s64", "b64", vectors + ", " + std::to_string(reduceVectorBytes / bytes));
  std::string element = emit("add.s64", "b64", covered + ", " + first);
  loop("elements", element, count, bytes, /*vectors=*/false);
  line("ret");

  std::string text =
      ".version 7.0\n.target sm_80\n.address_size 64\n\n.visible .entry " + name + "(\n";
  for (int i = 0; i < inputs + 3; ++i)
    text += "\t.param .u64 " + parameter(i) + (i < inputs + 2 ? ",\n" : "\n");
  text += ")\n{\n";
  std::string registers = "<" + std::to_string(next) + ">;\n";
  for (const char *kind :
       {".pred \t%p", ".b16 \t%h", ".b32 \t%r", ".b64 \t%rd", ".f32 \t%f", ".f64 \t%fd"})
    text += "\t.reg " + std::string(kind) + registers;
  return text + "\n" + body + "}\n";
}

std::string gridloom::rt::getReduceName(DataType type, Reduction reduction, int inputs) {
  return "gridloom_reduce_" + std::string(nameOf(reduction)) + "_" + std::string(nameOf(type)) +
         "_" + std::to_string(inputs);
}

std::string gridloom::rt::makeReducePtx(DataType type, Reduction reduction, int inputs) {
  return Writer(type, reduction, inputs).write();
}
