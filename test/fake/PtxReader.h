//===- PtxReader.h - decode PTX instructions --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_PTXREADER_H
#define GRIDLOOM_TEST_FAKE_PTXREADER_H

#include "test/fake/PtxModule.h"

namespace gridloom::fake {

/// Fills name, types and modifiers from "ld", "global", "nc", "b32". False if something is unknown.
bool describePtx(PtxInstruction &instruction, const std::vector<std::string> &parts);

/// The register width of result or source `number` in bits; 0 if any width will do.
unsigned widthOfOperand(const PtxInstruction &instruction, bool isResult, unsigned number);

/// Chooses the function of an instruction with operands. False if none fits.
bool finishPtx(PtxInstruction &instruction);

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_PTXREADER_H
