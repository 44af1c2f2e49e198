//===- Npy.h - numpy's file format ------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_ARRAYS_NPY_H
#define GRIDLOOM_RUNTIME_ARRAYS_NPY_H

#include "runtime/core/Files.h"
#include "runtime/core/HostArray.h"

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gridloom::rt {

/// Reads an array of C order and little endian. bf16 is what numpy calls V2, 8-bit floats are V1 or
/// u1: the file does not tell which, and both are read as u8. With `files` the array is mapped from
/// the file, which is added there: call its requireUnchanged after each use, since what is written
/// to the file changes the array. Else it is a copy. Throws InvalidArgument naming the file when it
/// is another format, order or type, or shorter or longer than it says; Unavailable when it is
/// written to meanwhile.
HostArray readNpy(const std::filesystem::path &path,
                  std::vector<std::shared_ptr<const MappedFile>> *files = nullptr);

/// The array in the `bytes` of a .npy file, which `owner` keeps alive. It may lie at any address:
/// its bytes may be copied, its elements not be read in place. Throws InvalidArgument as readNpy
/// does, naming `name`.
HostArray parseNpy(std::span<const std::byte> bytes, const std::shared_ptr<const void> &owner,
                   const std::string &name);

/// Writes `array`; throws InvalidArgument with the system's reason.
void writeNpy(const std::filesystem::path &path, const HostArray &array);

/// The file of the value `name` in a folder of values: names may hold slashes, files lie flat.
std::string getNpyName(std::string name);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_ARRAYS_NPY_H
