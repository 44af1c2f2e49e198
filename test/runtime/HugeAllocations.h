//===- HugeAllocations.h - sanitizers that allow them -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// By default a sanitizer's allocator ends the process on huge sizes where malloc returns null.
// Include this in one file of a program that tests such sizes.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_HUGEALLOCATIONS_H
#define GRIDLOOM_TEST_RUNTIME_HUGEALLOCATIONS_H

extern "C" {
__attribute__((used, visibility("default"))) inline const char *__tsan_default_options() {
  return "allocator_may_return_null=1";
}
__attribute__((used, visibility("default"))) inline const char *__asan_default_options() {
  return "allocator_may_return_null=1";
}
}

#endif // GRIDLOOM_TEST_RUNTIME_HUGEALLOCATIONS_H
