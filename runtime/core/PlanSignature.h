//===- PlanSignature.h - who vouches for a plan -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A plan's file signature.json says that the owner of a key vouches for the manifest, which holds
// the checksums of all that a runtime loads: docs/plan-format.md says what a signature covers.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_PLANSIGNATURE_H
#define GRIDLOOM_RUNTIME_CORE_PLANSIGNATURE_H

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace gridloom::rt {

class Plan;

/// A verified signature.
struct PlanSignature {
  std::string signer; // the key's fingerprint
  /// The SHA-256 of files with external data whose fingerprint in the manifest does not cover all
  /// bytes, by name.
  std::map<std::string, std::string> data;
};

/// Signs `plan` with the private key (Ed25519, PEM) in file `key`, in place of an earlier
/// signature, and returns the key's fingerprint. Calls `onRead` before it reads a file, with its
/// name and size. Throws InvalidArgument naming the key's file, or InvalidPlan if the model's files
/// are not those that the plan was compiled from.
std::string signPlan(const Plan &plan, const std::filesystem::path &key,
                     const std::function<void(const std::string &name, uint64_t bytes)> &onRead);

/// Returns the signature of the plan in `folder`, whose manifest has SHA-256 `manifest`. Throws
/// InvalidPlan with one line if there is none, if it is by none of `keys` (files of public keys,
/// PEM), or if it is of another manifest, and InvalidArgument if a key cannot be read.
PlanSignature requireSignature(const std::filesystem::path &folder, const std::string &manifest,
                               const std::vector<std::filesystem::path> &keys);

/// What a plan's signature looks like to somebody without keys.
struct SignatureSummary {
  /// "none", "matches", or what is wrong with it.
  std::string state;
  /// The fingerprint of the key that made it; empty if the signature is none or damaged.
  std::string signer;
};
SignatureSummary summarizeSignature(const Plan &plan);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_PLANSIGNATURE_H
