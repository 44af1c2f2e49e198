//===- Npz.h - numpy's archives of arrays -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_ARRAYS_NPZ_H
#define GRIDLOOM_RUNTIME_ARRAYS_NPZ_H

#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace gridloom::rt {

/// The members of a zip file as numpy.savez writes it, by name ("x.npy"): parts of `bytes`.
/// Checksums are not looked at, which would read all of it. Throws InvalidArgument naming the
/// archive `name` when it is damaged, or has members that are compressed or encrypted.
std::map<std::string, std::span<const std::byte>> findNpzMembers(std::span<const std::byte> bytes,
                                                                 const std::string &name);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_ARRAYS_NPZ_H
