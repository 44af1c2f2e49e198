//===- LibraryAgreement.cpp - equal library versions on ranks -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Error.h"
#include "runtime/core/SessionImpl.h"

#include <map>
#include <sstream>

using namespace gridloom::rt;

/// Replicas computed by different versions of a library would differ in their last bits.
void Session::Impl::requireEqualLibraries() {
  if (!control || device.hasHostMemory())
    return;
  // Library name -> first rank that has it, and its version.
  std::map<std::string, std::pair<size_t, std::string>> known;
  std::vector<std::string> texts = exchangeTexts(device.getLibraryVersions());
  for (size_t other = 0; other < texts.size(); ++other) {
    std::istringstream words(texts[other]);
    for (std::string name, version; words >> name >> version;) {
      auto [first, isNew] = known.try_emplace(name, other, version);
      if (!isNew && first->second.second != version)
        throw Error(ErrorCode::Unavailable,
                    "rank " + std::to_string(other) + " has " + name + " " + version + ", rank " +
                        std::to_string(first->second.first) + " has " + name + " " +
                        first->second.second + "; install the same version everywhere");
    }
  }
}
