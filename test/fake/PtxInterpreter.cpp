//===- PtxInterpreter.cpp - running PTX on the host -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxModule.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace gridloom::fake {

namespace {

constexpr size_t warpSize = 32;

enum class State : uint8_t { Ready, AtBarrier, AtShuffle, Done };

struct Thread {
  uint32_t index[3] = {};
  uint32_t pc = 0;
  State state = State::Ready;
  std::vector<uint64_t> registers;
};

template <typename T> T fromBits(uint64_t bits) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<T>(bits);
  else if constexpr (sizeof(T) == 4)
    return std::bit_cast<T>(static_cast<uint32_t>(bits));
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<T>(static_cast<uint16_t>(bits));
  else
    return static_cast<T>(static_cast<uint8_t>(bits));
}

template <typename T> uint64_t toBits(T value) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<uint64_t>(value);
  else if constexpr (sizeof(T) == 4)
    return std::bit_cast<uint32_t>(value);
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<uint16_t>(value);
  else
    return static_cast<uint8_t>(value);
}

template <typename T>
constexpr bool isFloat = std::is_floating_point_v<T> || std::is_same_v<T, _Float16>;
/// What a float type computes in: PTX rounds f16 results once.
template <typename T> using Wide = std::conditional_t<std::is_same_v<T, _Float16>, float, T>;

size_t getBytes(PtxType type) {
  constexpr size_t bytes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8};
  return bytes[static_cast<size_t>(type)];
}

/// Calls visit(T()) for the host's type of `type`.
template <typename Visit> auto visitType(PtxType type, Visit visit) {
  switch (type) {
  case PtxType::Pred:
  case PtxType::U8:
    return visit(uint8_t());
  case PtxType::U16:
    return visit(uint16_t());
  case PtxType::U32:
    return visit(uint32_t());
  case PtxType::U64:
    return visit(uint64_t());
  case PtxType::S8:
    return visit(int8_t());
  case PtxType::S16:
    return visit(int16_t());
  case PtxType::S32:
    return visit(int32_t());
  case PtxType::S64:
    return visit(int64_t());
  case PtxType::F16:
    return visit(_Float16());
  case PtxType::F32:
    return visit(float());
  case PtxType::F64:
    return visit(double());
  }
  throw PtxError("a type that is none");
}

template <typename T> T flush(T value) {
  if constexpr (std::is_same_v<T, float>)
    if (std::fpclassify(value) == FP_SUBNORMAL)
      return std::copysign(0.0f, value);
  return value;
}

//===----------------------------------------------------------------------===//
// One block
//===----------------------------------------------------------------------===//

class Block {
public:
  Block(const PtxKernel &kernel, const Launch &launch, std::vector<PtxBuffer> &buffers,
        const uint32_t *index)
      : kernel(kernel), launch(launch), buffers(buffers), index(index),
        shared(kernel.sharedBytes + launch.sharedBytes, std::byte{0xff}) {
    for (uint32_t z = 0; z < launch.block[2]; ++z)
      for (uint32_t y = 0; y < launch.block[1]; ++y)
        for (uint32_t x = 0; x < launch.block[0]; ++x) {
          Thread &thread = threads.emplace_back();
          thread.index[0] = x;
          thread.index[1] = y;
          thread.index[2] = z;
          thread.registers.resize(kernel.numRegisters);
        }
  }

  void run() {
    for (;;) {
      for (Thread &thread : threads)
        while (thread.state == State::Ready)
          step(thread);
      if (std::all_of(threads.begin(), threads.end(),
                      [](const Thread &thread) { return thread.state == State::Done; }))
        return;
      if (!releaseWarps() && !releaseBarrier())
        fail("has threads that wait for each other at different places");
    }
  }

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw PtxError("kernel " + kernel.name + " " + what);
  }
  [[noreturn]] void failUnknown(const PtxInstruction &instruction) const {
    fail("has an instruction that is not understood: " + instruction.text);
  }

  //===--------------------------------------------------------------------===//
  // Operands and memory
  //===--------------------------------------------------------------------===//

  uint64_t read(const Thread &thread, const PtxOperand &operand) const {
    switch (operand.kind) {
    case PtxOperand::Register:
      return thread.registers[operand.index];
    case PtxOperand::Immediate:
      return operand.immediate;
    case PtxOperand::Special:
      return readSpecial(thread, operand.index);
    default:
      fail("reads an operand that is none");
    }
  }

  uint64_t readSpecial(const Thread &thread, uint32_t special) const {
    uint32_t dim = special % 3;
    switch (special / 3) {
    case 0:
      return thread.index[dim];
    case 1:
      return launch.block[dim];
    case 2:
      return index[dim];
    case 3:
      return launch.grid[dim];
    default:
      return static_cast<size_t>(&thread - threads.data()) % warpSize;
    }
  }

  template <typename T> T get(const Thread &thread, const PtxInstruction &i, size_t operand) const {
    T value = fromBits<T>(read(thread, i.operands.at(operand)));
    if constexpr (isFloat<T>)
      if (i.flush)
        value = flush(value);
    return value;
  }

  template <typename T> void set(Thread &thread, const PtxInstruction &i, T value) {
    if constexpr (isFloat<T>)
      if (i.flush)
        value = flush(value);
    write(thread, i.operands[0], toBits(value));
  }

  static void write(Thread &thread, const PtxOperand &operand, uint64_t bits) {
    if (operand.kind == PtxOperand::Register)
      thread.registers[operand.index] = bits;
  }

  std::byte *locate(const Thread &thread, const PtxInstruction &i, size_t bytes, bool writes) {
    uint64_t address = read(thread, i.base) + static_cast<uint64_t>(i.offset);
    if (address % bytes)
      fail("makes a misaligned access of " + std::to_string(bytes) + " bytes");
    if (i.shared) {
      if (address + bytes > shared.size())
        fail("leaves its " + std::to_string(shared.size()) + " bytes of shared memory");
      return shared.data() + address;
    }
    auto *pointer = reinterpret_cast<std::byte *>(address);
    // Buffers lie sorted; the one that begins last before the address is the one that is meant.
    for (size_t n = buffers.size(); n-- > 0;) {
      PtxBuffer &buffer = buffers[n];
      if (pointer < buffer.base || pointer + bytes > buffer.end)
        continue;
      std::byte *&begin = writes ? buffer.writeBegin : buffer.readBegin;
      std::byte *&end = writes ? buffer.writeEnd : buffer.readEnd;
      begin = begin ? std::min(begin, pointer) : pointer;
      end = std::max(end, pointer + bytes);
      return pointer;
    }
    fail(std::string(writes ? "writes" : "reads") + " outside of its buffers");
  }

  void load(Thread &thread, const PtxInstruction &i) {
    size_t bytes = getBytes(i.type);
    const std::byte *from = nullptr;
    if (i.parameter) {
      if (i.base.kind != PtxOperand::None ||
          static_cast<size_t>(i.offset) + bytes > launch.pointers.size() * sizeof(void *))
        fail("reads a parameter that it does not have");
      from = reinterpret_cast<const std::byte *>(launch.pointers.data()) + i.offset;
    } else {
      from = locate(thread, i, bytes * static_cast<size_t>(i.vector), false);
    }
    for (int n = 0; n < i.vector; ++n) {
      uint64_t bits = 0;
      std::memcpy(&bits, from + static_cast<size_t>(n) * bytes, bytes);
      if (i.type == PtxType::S8 || i.type == PtxType::S16 || i.type == PtxType::S32)
        bits = extendSign(bits, bytes);
      write(thread, i.operands.at(static_cast<size_t>(n)), bits);
    }
  }

  static uint64_t extendSign(uint64_t bits, size_t bytes) {
    unsigned shift = static_cast<unsigned>(64 - 8 * bytes);
    return static_cast<uint64_t>(static_cast<int64_t>(bits << shift) >> shift);
  }

  void store(Thread &thread, const PtxInstruction &i) {
    size_t bytes = getBytes(i.type);
    std::byte *to = locate(thread, i, bytes * static_cast<size_t>(i.vector), true);
    for (int n = 0; n < i.vector; ++n) {
      uint64_t bits = read(thread, i.operands.at(static_cast<size_t>(n)));
      std::memcpy(to + static_cast<size_t>(n) * bytes, &bits, bytes);
    }
  }

  //===--------------------------------------------------------------------===//
  // Meeting of threads
  //===--------------------------------------------------------------------===//

  bool releaseWarps() {
    bool released = false;
    for (size_t begin = 0; begin < threads.size(); begin += warpSize) {
      size_t end = std::min(begin + warpSize, threads.size());
      uint32_t pc = 0;
      size_t waiting = 0;
      size_t done = 0;
      for (size_t n = begin; n < end; ++n) {
        done += threads[n].state == State::Done;
        if (threads[n].state == State::AtShuffle && (waiting == 0 || threads[n].pc == pc)) {
          pc = threads[n].pc;
          ++waiting;
        }
      }
      if (waiting > 0 && waiting + done == end - begin) {
        shuffle(begin, end, kernel.code[pc]);
        released = true;
      }
    }
    return released;
  }

  /// shfl.sync.MODE.b32 d, a, b, c, mask
  void shuffle(size_t begin, size_t end, const PtxInstruction &i) {
    std::vector<uint64_t> values;
    for (size_t n = begin; n < end; ++n)
      values.push_back(threads[n].state == State::Done ? 0 : read(threads[n], i.operands.at(1)));
    for (size_t n = begin; n < end; ++n) {
      Thread &thread = threads[n];
      if (thread.state == State::Done)
        continue;
      auto lane = static_cast<int64_t>(n - begin);
      auto by = static_cast<int64_t>(read(thread, i.operands.at(2)) & 31);
      auto c = static_cast<int64_t>(read(thread, i.operands.at(3)));
      int64_t segment = c >> 8 & 31;
      int64_t clamp = c & 31;
      int64_t highest = (lane & segment) | (clamp & ~segment);
      int64_t source = i.mode == 'b'   ? lane ^ by
                       : i.mode == 'd' ? lane + by
                       : i.mode == 'u' ? lane - by
                                       : (lane & segment) | (by & ~segment);
      bool inRange = i.mode == 'u' ? source >= highest : source <= highest;
      if (!inRange)
        source = lane;
      if (source < 0 || source >= static_cast<int64_t>(values.size()) ||
          threads[begin + static_cast<size_t>(source)].state == State::Done)
        fail("shuffles from a lane that is not there");
      write(thread, i.operands[0], values[static_cast<size_t>(source)]);
      write(thread, i.base, inRange);
    }
    for (size_t n = begin; n < end; ++n)
      if (threads[n].state != State::Done) {
        threads[n].state = State::Ready;
        ++threads[n].pc;
      }
  }

  bool releaseBarrier() {
    bool all = std::all_of(threads.begin(), threads.end(), [](const Thread &thread) {
      return thread.state == State::AtBarrier || thread.state == State::Done;
    });
    for (Thread &thread : threads)
      if (all && thread.state == State::AtBarrier) {
        thread.state = State::Ready;
        ++thread.pc;
      }
    return all;
  }

  //===--------------------------------------------------------------------===//
  // Instructions
  //===--------------------------------------------------------------------===//

  void step(Thread &thread) {
    if (thread.pc >= kernel.code.size())
      fail("runs past its end");
    const PtxInstruction &i = kernel.code[thread.pc];
    if (i.guard >= 0 && (thread.registers[static_cast<size_t>(i.guard)] != 0) == i.guardInverted) {
      ++thread.pc;
      return;
    }
    switch (i.name) {
    case PtxName::Bra:
      thread.pc = i.target;
      return;
    case PtxName::Exit:
      thread.state = State::Done;
      return;
    case PtxName::Bar:
      thread.state = i.warp ? State::Ready : State::AtBarrier;
      thread.pc += i.warp;
      return;
    case PtxName::Shfl:
      thread.state = State::AtShuffle;
      return;
    default:
      execute(thread, i);
      ++thread.pc;
    }
  }

  void execute(Thread &thread, const PtxInstruction &i) {
    switch (i.name) {
    case PtxName::Ld:
      return load(thread, i);
    case PtxName::St:
      return store(thread, i);
    case PtxName::Mov:
    case PtxName::Cvta:
      return move(thread, i);
    case PtxName::Cvt:
      return convert(thread, i);
    case PtxName::Selp:
      return write(thread, i.operands[0],
                   read(thread, i.operands.at(read(thread, i.operands.at(3)) ? 1 : 2)));
    default:
      visitType(i.type, [&](auto zero) {
        using T = decltype(zero);
        if (i.name == PtxName::Setp)
          compare<T>(thread, i);
        else if constexpr (isFloat<T>)
          computeFloat<T>(thread, i);
        else
          computeInteger<T>(thread, i);
      });
    }
  }

  void move(Thread &thread, const PtxInstruction &i) {
    if (i.operands.size() == 3) {
      // mov.b64 %rd, {lo, hi} or mov.b64 {lo, hi}, %rd: the halves are of half the size.
      unsigned half = static_cast<unsigned>(4 * getBytes(i.type));
      uint64_t mask = (uint64_t(1) << half) - 1;
      if (i.packs) {
        uint64_t low = read(thread, i.operands[1]) & mask;
        return write(thread, i.operands[0], low | read(thread, i.operands[2]) << half);
      }
      uint64_t bits = read(thread, i.operands[2]);
      write(thread, i.operands[0], bits & mask);
      return write(thread, i.operands[1], bits >> half & mask);
    }
    write(thread, i.operands.at(0), read(thread, i.operands.at(1)));
  }

  void convert(Thread &thread, const PtxInstruction &i) {
    visitType(i.type, [&](auto source) {
      visitType(i.to, [&](auto target) {
        using S = decltype(source);
        using D = decltype(target);
        S value = get<S>(thread, i, 1);
        if constexpr (isFloat<S>) {
          Wide<S> rounded = round(static_cast<Wide<S>>(value), i);
          if constexpr (isFloat<D>)
            set<D>(thread, i, static_cast<D>(rounded));
          else
            write(thread, i.operands[0], toBits(saturate<D>(static_cast<double>(rounded))));
        } else if constexpr (isFloat<D>) {
          set<D>(thread, i, static_cast<D>(value));
        } else {
          D narrowed = static_cast<D>(value);
          write(thread, i.operands[0],
                std::is_signed_v<D> ? static_cast<uint64_t>(static_cast<int64_t>(narrowed))
                                    : toBits(narrowed));
        }
      });
    });
  }

  template <typename T> static T round(T value, const PtxInstruction &i) {
    switch (i.round) {
    case 'z':
      return std::trunc(value);
    case 'n':
      return std::nearbyint(value);
    case 'm':
      return std::floor(value);
    case 'p':
      return std::ceil(value);
    default:
      return !i.saturate ? value : std::isnan(value) ? T(0) : std::clamp(value, T(0), T(1));
    }
  }

  /// Float to integer clamps, and NaN is 0.
  template <typename T> static T saturate(double value) {
    if (std::isnan(value))
      return 0;
    constexpr auto low = static_cast<double>(std::numeric_limits<T>::min());
    constexpr auto high = static_cast<double>(std::numeric_limits<T>::max());
    if (value <= low)
      return std::numeric_limits<T>::min();
    return value >= high ? std::numeric_limits<T>::max() : static_cast<T>(value);
  }

  template <typename T> void compare(Thread &thread, const PtxInstruction &i) {
    T x = get<T>(thread, i, 1);
    T y = get<T>(thread, i, 2);
    bool unordered = false;
    if constexpr (isFloat<T>)
      unordered = x != x || y != y;
    bool result = false;
    switch (i.compare) {
    case PtxCompare::Eq:
      result = x == y;
      break;
    case PtxCompare::Ne:
      result = x != y && !unordered;
      break;
    case PtxCompare::Lt:
      result = x < y;
      break;
    case PtxCompare::Le:
      result = x <= y;
      break;
    case PtxCompare::Gt:
      result = x > y;
      break;
    case PtxCompare::Ge:
      result = x >= y;
      break;
    case PtxCompare::Num:
      result = !unordered;
      break;
    case PtxCompare::Nan:
      break;
    }
    result |= unordered && i.unordered;
    if (i.operands.size() > 3) {
      bool other = read(thread, i.operands[3]) != 0;
      result = i.mode == 'a' ? result && other : i.mode == 'o' ? result || other : result != other;
    }
    write(thread, i.operands[0], result);
  }

  template <typename T> void computeFloat(Thread &thread, const PtxInstruction &i) {
    using W = Wide<T>;
    auto at = [&](size_t operand) { return static_cast<W>(get<T>(thread, i, operand)); };
    W x = at(1);
    set<T>(thread, i, static_cast<T>(i.operands.size() > 2 ? combine<W>(i, x, at) : map(i, x)));
  }

  template <typename W, typename At> W combine(const PtxInstruction &i, W x, At at) const {
    switch (i.name) {
    case PtxName::Add:
      return x + at(2);
    case PtxName::Sub:
      return x - at(2);
    case PtxName::Mul:
      return x * at(2);
    case PtxName::Div:
      return x / at(2);
    case PtxName::Fma:
      if (i.round == 'm')
        return fmaDown<W>(x, at(2), at(3));
      return std::fma(x, at(2), at(3));
    case PtxName::Mad:
      return std::fma(x, at(2), at(3));
    case PtxName::Min:
    case PtxName::Max:
      return selectExtreme(x, at(2), i.name == PtxName::Min, i.keepNan);
    case PtxName::Copysign:
      return std::copysign(at(2), x);
    default:
      failUnknown(i);
    }
  }

  /// x * y + z, rounded towards minus infinity.
  template <typename W> static W fmaDown(W x, W y, W z) {
    W nearest = std::fma(x, y, z);
    long double exact = static_cast<long double>(x) * y + z;
    return nearest > exact ? std::nextafter(nearest, -std::numeric_limits<W>::infinity()) : nearest;
  }

  template <typename W> W map(const PtxInstruction &i, W x) const {
    switch (i.name) {
    case PtxName::Abs:
      return std::fabs(x);
    case PtxName::Neg:
      return -x;
    case PtxName::Sqrt:
      return std::sqrt(x);
    case PtxName::Rsqrt:
      return static_cast<W>(1 / std::sqrt(static_cast<double>(x)));
    case PtxName::Rcp:
      return 1 / x;
    case PtxName::Ex2:
      return std::exp2(x);
    case PtxName::Lg2:
      return std::log2(x);
    case PtxName::Sin:
      return std::sin(x);
    case PtxName::Cos:
      return std::cos(x);
    case PtxName::Tanh:
      return std::tanh(x);
    default:
      failUnknown(i);
    }
  }

  template <typename W> static W selectExtreme(W x, W y, bool least, bool keepNan) {
    if (keepNan && (std::isnan(x) || std::isnan(y)))
      return std::numeric_limits<W>::quiet_NaN();
    return least ? std::fmin(x, y) : std::fmax(x, y);
  }

  template <typename T> void computeInteger(Thread &thread, const PtxInstruction &i) {
    using U = std::make_unsigned_t<T>;
    auto at = [&](size_t operand) { return get<T>(thread, i, operand); };
    T x = at(1);
    if (i.wide) {
      using L = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
      auto wide = static_cast<uint64_t>(static_cast<L>(x) * static_cast<L>(at(2)));
      if (i.name == PtxName::Mad)
        wide += read(thread, i.operands.at(3));
      return write(thread, i.operands[0], wide);
    }
    U result = 0;
    switch (i.name) {
    case PtxName::Add:
      result = static_cast<U>(static_cast<U>(x) + static_cast<U>(at(2)));
      break;
    case PtxName::Sub:
      result = static_cast<U>(static_cast<U>(x) - static_cast<U>(at(2)));
      break;
    case PtxName::Mul:
      result = static_cast<U>(multiply<T>(x, at(2), i.high));
      break;
    case PtxName::Mad:
      result =
          static_cast<U>(static_cast<U>(multiply<T>(x, at(2), i.high)) + static_cast<U>(at(3)));
      break;
    case PtxName::Div:
    case PtxName::Rem:
      if (at(2) == 0)
        fail("divides an integer by zero");
      result = static_cast<U>(i.name == PtxName::Div ? x / at(2) : x % at(2));
      break;
    case PtxName::Min:
      result = static_cast<U>(std::min(x, at(2)));
      break;
    case PtxName::Max:
      result = static_cast<U>(std::max(x, at(2)));
      break;
    case PtxName::Abs:
      result = static_cast<U>(std::max<T>(x, static_cast<T>(-x)));
      break;
    case PtxName::Neg:
      result = static_cast<U>(-static_cast<U>(x));
      break;
    case PtxName::Not:
      result = i.type == PtxType::Pred ? static_cast<U>(x == 0) : static_cast<U>(~x);
      break;
    case PtxName::And:
      result = static_cast<U>(x & at(2));
      break;
    case PtxName::Or:
      result = static_cast<U>(x | at(2));
      break;
    case PtxName::Xor:
      result = static_cast<U>(x ^ at(2));
      break;
    case PtxName::Shl:
    case PtxName::Shr:
      result = static_cast<U>(
          shift<T>(x, read(thread, i.operands.at(2)) & 0xffffffff, i.name == PtxName::Shl));
      break;
    default:
      failUnknown(i);
    }
    write(thread, i.operands[0], toBits(result));
  }

  template <typename T> static T multiply(T x, T y, bool high) {
    using L = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    L product = static_cast<L>(x) * static_cast<L>(y);
    return static_cast<T>(high ? product >> (8 * sizeof(T)) : product);
  }

  /// Shifts by more than the width give 0, or the sign.
  template <typename T> static T shift(T x, uint64_t by, bool left) {
    constexpr uint64_t bits = 8 * sizeof(T);
    if (left)
      return by < bits ? static_cast<T>(static_cast<std::make_unsigned_t<T>>(x) << by) : T(0);
    return static_cast<T>(x >> std::min(by, bits - 1)) * T(by < bits || x < 0);
  }

  const PtxKernel &kernel;
  const Launch &launch;
  std::vector<PtxBuffer> &buffers;
  const uint32_t *index;
  std::vector<std::byte> shared;
  std::vector<Thread> threads;
};

} // namespace

void runPtx(const PtxKernel &kernel, const Launch &launch, std::vector<PtxBuffer> &buffers) {
  for (int dim = 0; dim < 3; ++dim)
    if (kernel.maxThreads[0] && launch.block[dim] > kernel.maxThreads[dim])
      throw PtxError("kernel " + kernel.name + " is launched with " +
                     std::to_string(launch.block[dim]) + " threads along a dimension, it allows " +
                     std::to_string(kernel.maxThreads[dim]));
  std::sort(buffers.begin(), buffers.end(),
            [](const PtxBuffer &x, const PtxBuffer &y) { return x.base < y.base; });
  uint32_t index[3];
  for (index[2] = 0; index[2] < launch.grid[2]; ++index[2])
    for (index[1] = 0; index[1] < launch.grid[1]; ++index[1])
      for (index[0] = 0; index[0] < launch.grid[0]; ++index[0])
        Block(kernel, launch, buffers, index).run();
}

} // namespace gridloom::fake
