//===- PageParts.h - embedded files of the page -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// cmake/Embed.cmake generates the definitions from page.html, page.css and the scripts.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_PAGE_PAGEPARTS_H
#define GRIDLOOM_RUNTIME_CLI_PAGE_PAGEPARTS_H

#include <string>

namespace gridloom::rt {

std::string getPageMarkup();
std::string getPageStyle();
/// All scripts, in the order in which they must run.
std::string getPageScript();

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_PAGE_PAGEPARTS_H
