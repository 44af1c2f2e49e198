//===- RunPtx.cpp - runs a kernel of a PTX file on the host ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// run-ptx PTX KERNEL GRID_X GRID_Y GRID_Z THREADS INPUTS FILE...
//
// The files are the kernel's tensors as raw bytes: the first INPUTS are read; the others, which
// must have their full size, are overwritten. Ends with 1 and one line if the kernel does something
// wrong.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxRun.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

using namespace gridloom;

static std::string readFile(const char *path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "run-ptx: cannot read %s\n", path);
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

static uint32_t readNumber(const char *text) {
  uint32_t number = 0;
  if (std::from_chars(text, text + std::strlen(text), number).ec != std::errc()) {
    std::fprintf(stderr, "run-ptx: %s is no number\n", text);
    std::exit(2);
  }
  return number;
}

int main(int count, char **arguments) {
  constexpr int firstFile = 8;
  if (count < firstFile) {
    std::fprintf(stderr, "run-ptx PTX KERNEL GRID_X GRID_Y GRID_Z THREADS INPUTS FILE...\n");
    return 2;
  }
  fake::PtxProgram program(readFile(arguments[1]));
  fake::PtxRun launch;
  for (int i = 0; i < 3; ++i)
    launch.grid[i] = readNumber(arguments[3 + i]);
  launch.block[0] = readNumber(arguments[6]);
  int inputs = static_cast<int>(readNumber(arguments[7]));
  std::vector<fake::PtxTensor> tensors;
  for (int i = firstFile; i < count; ++i) {
    std::string content = readFile(arguments[i]);
    auto *bytes = reinterpret_cast<const std::byte *>(content.data());
    fake::PtxTensor &tensor = tensors.emplace_back();
    tensor.bytes.assign(bytes, bytes + content.size());
    tensor.isInput = i < firstFile + inputs;
  }
  if (std::string fault = program.run(arguments[2], launch, tensors); !fault.empty()) {
    std::fprintf(stderr, "run-ptx: %s\n", fault.c_str());
    return 1;
  }
  for (int i = firstFile; i < count; ++i) {
    const fake::PtxTensor &tensor = tensors[static_cast<size_t>(i - firstFile)];
    if (!tensor.isInput)
      std::ofstream(arguments[i], std::ios::binary)
          .write(reinterpret_cast<const char *>(tensor.bytes.data()),
                 static_cast<std::streamsize>(tensor.bytes.size()));
  }
}
