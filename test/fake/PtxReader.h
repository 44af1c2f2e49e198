//===- PtxReader.h - decode PTX instructions --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_PTXREADER_H
#define GRIDLOOM_TEST_FAKE_PTXREADER_H

#include "test/fake/PtxModule.h"

namespace gridloom::fake {

/// Fills name, types and modifiers from "ld", "global", "nc", "b32". False for what is not known.
bool describePtx(PtxInstruction &instruction, const std::vector<std::string> &parts);

/// The bits of a register that stands as result or source `number`; 0 where any will do.
unsigned widthOfOperand(const PtxInstruction &instruction, bool isResult, unsigned number);

/// Chooses what an instruction with operands computes. False where it fits nothing.
bool finishPtx(PtxInstruction &instruction);

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_PTXREADER_H
