//===- MapPtx.cpp - elementwise maps as PTX -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/MapPtx.h"

#include <cstdint>
#include <limits>

using namespace gridloom::rt;

namespace {

/// Writes one kernel. It handles elements as bits in 32- or 64-bit registers, so that NaN payloads
/// are preserved.
class Writer {
public:
  Writer(MapKind kind, DataType type)
      : kind(kind), width(8 * sizeOf(type)), wide(width == 64),
        infinity(type == DataType::F16    ? 0x7c00
                 : type == DataType::BF16 ? 0x7f80
                 : type == DataType::F32  ? 0x7f800000
                                          : 0x7ff0000000000000),
        name(getMapName(kind, type)) {}

  std::string write();

private:
  void line(const std::string &text) { body += "\t" + text + ";\n"; }
  /// The type of an instruction on elements: "b32".
  std::string bits(const char *prefix) const { return prefix + std::string(wide ? "64" : "32"); }
  void load(const std::string &to, int parameter, size_t elementWidth, const std::string &index);
  void store(const std::string &from, size_t elementWidth);
  std::string address(int parameter, size_t elementWidth, const std::string &index);
  std::string convert();
  /// v3 = v1, with the other bits inverted if the sign is set: swaps floats' and integers' order.
  void turn();

  MapKind kind;
  size_t width; // of the float
  bool wide;
  uint64_t infinity;
  std::string name, body;
};

} // namespace

std::string Writer::address(int parameter, size_t elementWidth, const std::string &index) {
  line("ld.param.u64 \t%rd5, [" + name + "_param_" + std::to_string(parameter) + "]");
  line("cvta.to.global.u64 \t%rd5, %rd5");
  line("mul.lo.s64 \t%rd6, " + index + ", " + std::to_string(elementWidth / 8));
  line("add.s64 \t%rd5, %rd5, %rd6");
  return "[%rd5]";
}

void Writer::load(const std::string &to, int parameter, size_t elementWidth,
                  const std::string &index) {
  std::string from = address(parameter, elementWidth, index);
  line("ld.global.u" + std::to_string(elementWidth) + " \t" + to + ", " + from);
}

void Writer::store(const std::string &from, size_t elementWidth) {
  std::string to = address(1, elementWidth, "%rd1");
  line("st.global.u" + std::to_string(elementWidth) + " \t" + to + ", " + from);
}

void Writer::turn() {
  std::string last = std::to_string((wide ? 64 : 32) - 1);
  std::string rest = std::to_string((uint64_t(1) << (width - 1)) - 1);
  line("shr." + bits("s") + " \t%v2, %v1, " + last);
  line("and." + bits("b") + " \t%v2, %v2, " + rest);
  line("xor." + bits("b") + " \t%v3, %v1, %v2");
}

/// Converts the bits in v1; returns the register with the result.
std::string Writer::convert() {
  uint64_t sign = uint64_t(1) << (width - 1);
  if (kind == MapKind::Relu) {
    // Selects zero for bits from minus zero to minus infinity.
    line("sub." + bits("s") + " \t%v2, %v1, " +
         (wide ? "-9223372036854775808" : std::to_string(int64_t(int32_t(sign)))));
    line("setp.le." + bits("u") + " \t%p1, %v2, " + std::to_string(infinity));
    line("selp." + bits("b") + " \t%v3, 0, %v1, %p1");
    return "%v3";
  }
  if (kind == MapKind::Unorder) {
    turn();
    return "%v3";
  }
  line("and." + bits("b") + " \t%v4, %v1, " + std::to_string(sign - 1));
  line("setp.gt." + bits("u") + " \t%p1, %v4, " + std::to_string(infinity));
  if (width == 16) {
    line("shl.b32 \t%v1, %v1, 16");
    line("shr.s32 \t%v1, %v1, 16");
  }
  turn();
  std::string nan = std::to_string(kind == MapKind::OrderNanLast ? int64_t(sign - 1)
                                   : wide ? std::numeric_limits<int64_t>::min()
                                          : -int64_t(sign));
  line("selp." + bits("b") + " \t%v3, " + nan + ", %v3, %p1");
  return "%v3";
}

std::string Writer::write() {
  bool ordered = kind == MapKind::Unorder;
  bool orders = kind == MapKind::OrderNanLast || kind == MapKind::OrderNanFirst;
  size_t integer = wide ? 64 : 32;
  // rd1: the element's index, rd2: the grid's stride, rd3: the number of elements.
  line("mov.u32 \t%r1, %ctaid.x");
  line("mov.u32 \t%r2, %ntid.x");
  line("mov.u32 \t%r3, %tid.x");
  line("mov.u32 \t%r4, %nctaid.x");
  line("cvt.u64.u32 \t%rd1, %r3");
  line("mul.wide.u32 \t%rd4, %r1, %r2");
  line("add.s64 \t%rd1, %rd1, %rd4");
  line("mul.wide.u32 \t%rd2, %r4, %r2");
  line("ld.param.u64 \t%rd3, [" + name + "_param_2]");
  body += "$loop:\n";
  line("setp.ge.u64 \t%p2, %rd1, %rd3");
  line("@%p2 bra \t$end");
  if (kind == MapKind::AddBias) {
    line("ld.param.u64 \t%rd7, [" + name + "_param_3]");
    line("rem.u64 \t%rd8, %rd1, %rd7");
    std::string from = address(0, 64, "%rd8");
    line("ld.global.f64 \t%fd1, " + from);
    std::string place = address(1, 64, "%rd1");
    line("ld.global.f64 \t%fd2, " + place);
    line("add.rn.f64 \t%fd2, %fd2, %fd1");
    line("st.global.f64 \t" + place + ", %fd2");
  } else {
    load("%v1", 0, ordered ? integer : width, "%rd1");
    store(convert(), orders ? integer : width);
  }
  line("add.s64 \t%rd1, %rd1, %rd2");
  line("bra.uni \t$loop");
  body += "$end:\n";
  line("ret");

  int parameters = kind == MapKind::AddBias ? 4 : 3;
  std::string text =
      ".version 7.0\n.target sm_80\n.address_size 64\n\n.visible .entry " + name + "(\n";
  for (int i = 0; i < parameters; ++i)
    text += "\t.param .u64 " + name + "_param_" + std::to_string(i) +
            (i + 1 < parameters ? ",\n" : "\n");
  return text + ")\n{\n\t.reg .pred \t%p<3>;\n\t.reg .b32 \t%r<5>;\n\t.reg .b64 \t%rd<9>;\n" +
         "\t.reg .f64 \t%fd<3>;\n\t.reg ." + bits("b") + " \t%v<5>;\n\n" + body + "}\n";
}

std::string gridloom::rt::getMapName(MapKind kind, DataType type) {
  constexpr const char *names[] = {"relu", "order_nan_last", "order_nan_first", "unorder",
                                   "add_bias"};
  return std::string("gridloom_") + names[int(kind)] + "_" + std::string(nameOf(type));
}

std::string gridloom::rt::makeMapPtx(MapKind kind, DataType type) {
  return Writer(kind, type).write();
}
