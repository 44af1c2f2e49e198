//===- PlanSignature.cpp - who vouches for a plan -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/PlanSignature.h"

#include "runtime/core/Error.h"
#include "runtime/core/Files.h"
#include "runtime/core/Plan.h"
#include "runtime/core/WeightStore.h"
#include "support/Ed25519.h"
#include "support/FileSwap.h"
#include "support/JsonDepth.h"
#include "support/Text.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

using namespace gridloom;
using namespace gridloom::rt;
using nlohmann::json;
namespace fs = std::filesystem;

/// Part of what is signed, so that a key's signature of something else is none of a plan.
static constexpr const char *kType = "gridloom plan 1";

static fs::path getSignaturePath(const fs::path &folder) { return folder / "signature.json"; }

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// Reads from files and from pipes.
static std::string readKeyText(const fs::path &path) {
  constexpr size_t mostBytes = size_t(64) << 10; // a key has some hundred
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Error(ErrorCode::InvalidArgument,
                path.string() + ": cannot be read: " + strerror(errno ? errno : EIO));
  std::string text(mostBytes, '\0');
  file.read(text.data(), std::streamsize(text.size()));
  text.resize(size_t(file.gcount()));
  return text;
}

static Ed25519Key readKey(const fs::path &path, Ed25519Key (*read)(std::string_view)) {
  std::string text = readKeyText(path);
  try {
    return read(text);
  } catch (const std::runtime_error &error) {
    throw Error(ErrorCode::InvalidArgument, path.string() + ": " + error.what());
  }
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

namespace {

/// The contents of signature.json. All of it is anybody's until `signature` is verified.
struct SignatureFile {
  std::string payload;   // the signed text: JSON with the digests
  std::string key;       // the signer's public key, PEM
  std::string signature; // of the payload, 64 bytes
};

/// The signed text's contents.
struct Payload {
  std::string manifest; // SHA-256
  std::map<std::string, std::string> data;
};

} // namespace

[[noreturn]] static void failSignature(const fs::path &folder, const std::string &message) {
  throw Error(ErrorCode::InvalidPlan, getSignaturePath(folder).string() + ": " + message +
                                          "; sign the plan again with 'gridloom sign'");
}

static json parseJson(const std::string &text) {
  return isDeepJson(text) ? json() : json::parse(text, nullptr, /*allow_exceptions=*/false);
}

/// A member that is text; empty if it is absent or something else.
static std::string getText(const json &object, const char *key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string())
    return "";
  return object[key].get<std::string>();
}

/// Nothing if the plan is not signed. Throws InvalidPlan if the file is damaged.
static std::optional<SignatureFile> readSignature(const fs::path &folder) {
  fs::path path = getSignaturePath(folder);
  std::error_code error;
  uint64_t bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory)
    return std::nullopt;
  if (error)
    failSignature(folder, "cannot be read: " + error.message());
  constexpr uint64_t mostBytes = uint64_t(64) << 20; // thousands of files of external data
  if (bytes > mostBytes)
    failSignature(folder, "has " + std::to_string(bytes) + " bytes, more than " +
                              std::to_string(mostBytes));
  std::vector<std::byte> contents = readFile(path, bytes);
  json file = parseJson({reinterpret_cast<const char *>(contents.data()), contents.size()});
  std::optional<std::string> signature = fromHex(getText(file, "signature"));
  SignatureFile read{getText(file, "payload"), getText(file, "key"), signature.value_or("")};
  if (read.payload.empty() || read.key.empty() || read.signature.empty())
    failSignature(folder, "is not a signature; the file is damaged");
  return read;
}

/// The contents of a payload whose signature is verified.
static Payload readPayload(const fs::path &folder, const std::string &text) {
  json read = parseJson(text);
  Payload payload{getText(read, "manifest"), {}};
  if (getText(read, "type") != kType || !read.contains("data") || !read["data"].is_object())
    failSignature(folder, "is not of a plan, or of another version of Gridloom");
  for (const auto &[name, digest] : read["data"].items())
    if (digest.is_string())
      payload.data[name] = digest.get<std::string>();
  return payload;
}

/// The key in the file, if the signature is its; nothing if the file was changed.
static std::optional<Ed25519Key> findSigner(const SignatureFile &file) {
  try {
    Ed25519Key key = Ed25519Key::readPublic(file.key);
    return key.verify(file.payload, file.signature) ? std::optional(key) : std::nullopt;
  } catch (const std::runtime_error &) { // whatever is in its place, it is no key
    return std::nullopt;
  }
}

static const char *const kDiffers = "was changed after it was made: it does not match its contents";

//===----------------------------------------------------------------------===//
// Sign and verify
//===----------------------------------------------------------------------===//

std::string
gridloom::rt::signPlan(const Plan &plan, const fs::path &keyPath,
                       const std::function<void(const std::string &name, uint64_t bytes)> &onRead) {
  Ed25519Key key = readKey(keyPath, &Ed25519Key::readPrivate);
  fs::path path = getSignaturePath(plan.getFolder());
  std::error_code error;
  if (fs::is_symlink(path, error)) // it may lead anywhere, and what is there would be replaced
    throw Error(ErrorCode::InvalidPlan,
                path.string() + ": is a link, which is not followed; remove it");
  json payload = {
      {"type", kType}, {"manifest", plan.getDigest()}, {"data", digestSampledData(plan, onRead)}};
  std::string text = payload.dump();
  std::string signature = key.sign(text);
  json file = {{"payload", text},
               {"key", key.getPublicPem()},
               {"signature", toHex(std::as_bytes(std::span(signature)))}};
  if (std::string reason = replaceFile(path, {file.dump(1), "\n"}, /*isDurable=*/true);
      !reason.empty())
    throw Error(ErrorCode::InvalidArgument, path.string() + " cannot be written: " + reason);
  return key.getFingerprint();
}

PlanSignature gridloom::rt::requireSignature(const fs::path &folder, const std::string &manifest,
                                             const std::vector<fs::path> &keyPaths) {
  std::vector<Ed25519Key> keys;
  for (const fs::path &path : keyPaths)
    keys.push_back(readKey(path, &Ed25519Key::readPublic));
  std::optional<SignatureFile> file = readSignature(folder);
  if (!file)
    throw Error(ErrorCode::InvalidPlan,
                folder.string() + ": is not signed, and a signature is required; sign the plan "
                                  "with 'gridloom sign' if you trust it");
  std::string wanted;
  for (const Ed25519Key &key : keys) {
    wanted += (wanted.empty() ? "" : ", ") + key.getFingerprint();
    if (!key.verify(file->payload, file->signature))
      continue;
    Payload payload = readPayload(folder, file->payload);
    if (payload.manifest != manifest)
      throw Error(ErrorCode::InvalidPlan,
                  (folder / "manifest.json").string() +
                      ": was changed after the plan was signed: it has SHA-256 " + manifest +
                      ", signed was " + payload.manifest +
                      "; compile the plan again and sign it with 'gridloom sign'");
    return {key.getFingerprint(), std::move(payload.data)};
  }
  std::optional<Ed25519Key> signer = findSigner(*file);
  if (!signer)
    failSignature(folder, kDiffers);
  throw Error(ErrorCode::InvalidPlan, folder.string() + ": is signed with key " +
                                          signer->getFingerprint() + ", the required one is " +
                                          wanted +
                                          "; require that key if you trust its owner, or sign "
                                          "the plan again with 'gridloom sign'");
}

SignatureSummary gridloom::rt::summarizeSignature(const Plan &plan) {
  try {
    std::optional<SignatureFile> file = readSignature(plan.getFolder());
    if (!file)
      return {"none", ""};
    std::optional<Ed25519Key> signer = findSigner(*file);
    if (!signer)
      return {std::string("signature.json ") + kDiffers, ""};
    Payload payload = readPayload(plan.getFolder(), file->payload);
    return {payload.manifest == plan.getDigest()
                ? "matches"
                : "manifest.json was changed after the plan was signed",
            signer->getFingerprint()};
  } catch (const Error &error) {
    return {error.what(), ""};
  }
}
