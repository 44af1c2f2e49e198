//===- KernelClass.h - what kind of work a kernel does ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_KERNELCLASS_H
#define GRIDLOOM_CLUSTER_KERNELCLASS_H

#include "cluster/Costs.h"

namespace gridloom::cluster {

/// The class of a generated kernel's work, by its operations and bytes. A product that no library
/// takes is a kernel, too, and the only one that reuses what it reads: others compute about one
/// operation for each byte.
inline WorkClass getKernelClass(const Work &work) {
  constexpr double mostFlopsPerByte = 2;
  return work.flops > mostFlopsPerByte * (work.readBytes + work.writtenBytes)
             ? WorkClass::Contraction
             : WorkClass::Other;
}

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_KERNELCLASS_H
