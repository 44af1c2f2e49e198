//===- HugeAllocations.cpp - sanitizers return null for them --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

// By default a sanitizer's allocator ends the process on huge sizes where malloc returns null.
extern "C" {
__attribute__((used, visibility("default"))) const char *__tsan_default_options() {
  return "allocator_may_return_null=1";
}
__attribute__((used, visibility("default"))) const char *__asan_default_options() {
  return "allocator_may_return_null=1";
}
}
