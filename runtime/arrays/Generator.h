//===- Generator.h - values for inputs from the command line ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The grammar after `--input NAME=`: a file or a generated value. `run`, `bench`, `generate` and
// `check` share this grammar, and generate the same values from the same text and seed.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_ARRAYS_GENERATOR_H
#define GRIDLOOM_RUNTIME_ARRAYS_GENERATOR_H

#include "runtime/core/Files.h"
#include "runtime/core/HostArray.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gridloom::rt {

/// The grammar, for --help and errors.
extern const char *const kInputGrammar;

/// A made-up value.
struct Generator {
  enum Kind { Constant, Normal, Integers, Uniform } kind = Constant;
  /// The constant; mean and deviation; or the lowest and the highest, the latter excluded.
  double first = 0, second = 0;
  /// Reads a number, ones, zeros, randn or normal, alone or with (MEAN,DEVIATION),
  /// uniform(LOW,HIGH) or randint(LOW,HIGH). Nothing when `text` is none of them, and so a path.
  /// Throws InvalidArgument when it has a generator's name but not its form.
  static std::optional<Generator> parse(const std::string &text);
  bool isRandom() const { return kind != Constant; }
};

/// The least and the largest whole number that elements hold, as far as doubles count exactly.
std::pair<double, double> getRange(DataType type);

/// An array that depends on the arguments alone: element i is a function of seed, name and i.
/// Throws InvalidArgument when the type cannot hold the generator's values.
HostArray generate(const Generator &generator, const std::string &name, DataType type,
                   const std::vector<int64_t> &shape, uint64_t seed);

/// Reads the file that `text`, no generator, names; copies or maps it as readNpy does. Throws
/// InvalidArgument with the grammar when there is none.
HostArray readInput(const std::string &text,
                    std::vector<std::shared_ptr<const MappedFile>> *files = nullptr);

/// `array`, read from `text`, as an input of this type and shape: files do not tell 8-bit floats
/// from bytes. Throws InvalidArgument with both types and shapes when it is another one.
HostArray adaptInput(const HostArray &array, const std::string &text, const std::string &name,
                     DataType type, const std::vector<int64_t> &shape);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_ARRAYS_GENERATOR_H
