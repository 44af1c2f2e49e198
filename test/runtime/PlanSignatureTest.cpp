//===- PlanSignatureTest.cpp - signed plans -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/PlanSignature.h"

#include "FileText.h"
#include "PlanBuilder.h"
#include "runtime/core/Error.h"
#include "runtime/core/Files.h"
#include "runtime/core/Plan.h"
#include "runtime/core/WeightStore.h"
#include "test/TestKeys.h"

#include <gmock/gmock.h>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

/// y = x, with a kernel that nothing launches and a weight that nothing reads.
PlanBuilder makePlan(const std::string &code = "code") {
  PlanBuilder plan;
  plan.addWeight("w", {4}, {1, 2, 3, 4});
  plan.addCopyEntry({4});
  plan.kernels["cpu.so"] = code;
  return plan;
}

/// The error of `work`, which must have this code and be one line.
std::string messageOf(const std::function<void()> &work, ErrorCode code = ErrorCode::InvalidPlan) {
  try {
    work();
  } catch (const Error &error) {
    EXPECT_EQ(error.getCode(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

class Signatures : public testing::Test {
protected:
  fs::path write(const std::string &name, const std::string &contents) {
    writeFile(folder.getPath() / name, contents);
    return folder.getPath() / name;
  }
  std::string sign(const fs::path &key) {
    return signPlan(*Plan::load(plan), key,
                    [this](const std::string &name, uint64_t) { read.push_back(name); });
  }
  std::shared_ptr<const Plan> load(const std::vector<fs::path> &keys) {
    PlanOptions options;
    options.requireSignature = keys;
    return Plan::load(plan, options);
  }
  std::string refuse(const std::vector<fs::path> &keys, ErrorCode code = ErrorCode::InvalidPlan) {
    return messageOf([&] { load(keys); }, code);
  }

  TemporaryFolder folder;
  fs::path plan = makePlan().write(folder.getPath()), signature = plan / "signature.json";
  fs::path key = write("private.pem", kPrivateKey), required = write("public.pem", kPublicKey);
  fs::path otherKey = write("other.pem", kOtherPrivateKey),
           other = write("other.pub", kOtherPublicKey);
  std::vector<std::string> read; // files that were read to sign
};

TEST_F(Signatures, TheKeysOwnerVouches) {
  EXPECT_THAT(refuse({required}), AllOf(HasSubstr(plan.string() + ": is not signed"),
                                        HasSubstr("sign the plan with 'gridloom sign'")));
  EXPECT_EQ(summarizeSignature(*load({})).state, "none");
  EXPECT_EQ(sign(key), kFingerprint);
  EXPECT_THAT(read, ElementsAre()); // the manifest holds the digest of the model
  ASSERT_TRUE(load({required})->getSignature());
  EXPECT_EQ(load({required})->getSignature()->signer, kFingerprint);
  EXPECT_EQ(load({other, required})->getSignature()->signer, kFingerprint);
  EXPECT_FALSE(load({})->getSignature());
  SignatureSummary summary = summarizeSignature(*load({}));
  EXPECT_EQ(summary.state, "matches");
  EXPECT_EQ(summary.signer, kFingerprint);
  EXPECT_THAT(refuse({other}),
              AllOf(HasSubstr(std::string("is signed with key ") + kFingerprint),
                    HasSubstr(std::string("the required one is ") + kOtherFingerprint)));
}

TEST_F(Signatures, SigningAgainReplacesTheSignature) {
  sign(key);
  EXPECT_EQ(sign(otherKey), kOtherFingerprint);
  EXPECT_EQ(load({required, other})->getSignature()->signer, kOtherFingerprint);
  EXPECT_THAT(refuse({required}), HasSubstr("is signed with key"));
}

TEST_F(Signatures, EveryFileThatIsLoadedIsCovered) {
  sign(key);
  for (const char *name : {"stage0.pb", "kernels/cpu.so"}) {
    std::string before = readAll(plan / name), after = before;
    after.back() = static_cast<char>(after.back() ^ 1);
    writeFile(plan / name, after);
    EXPECT_THAT(refuse({required}), AllOf(HasSubstr(name), HasSubstr("has SHA-256"))) << name;
    writeFile(plan / name, before);
  }
  std::string manifest = readAll(plan / "manifest.json");
  writeFile(plan / "manifest.json", manifest + " ");
  EXPECT_THAT(refuse({required}),
              HasSubstr("manifest.json: was changed after the plan was signed"));
  EXPECT_EQ(summarizeSignature(*load({})).state,
            "manifest.json was changed after the plan was signed");
  // Other code with its own checksum, beside the old signature.
  makePlan("evil").write(folder.getPath());
  EXPECT_THAT(refuse({required}),
              HasSubstr("manifest.json: was changed after the plan was signed"));
  makePlan().write(folder.getPath());
  load({required});
}

TEST_F(Signatures, ADamagedSignatureIsNone) {
  sign(key);
  std::string whole = readAll(signature);
  for (size_t bytes = 0; bytes + 2 < whole.size(); ++bytes) { // the last two are "}\n"
    writeFile(signature, whole.substr(0, bytes));
    EXPECT_THAT(refuse({required}), HasSubstr("signature.json: is not a signature; the file is "
                                              "damaged; sign the plan again"));
  }
  nlohmann::json parsed = nlohmann::json::parse(whole);
  auto change = [&](const char *member, const nlohmann::json &value) {
    nlohmann::json changed = parsed;
    changed[member] = value;
    writeFile(signature, changed.dump());
    return refuse({required});
  };
  std::string payload = parsed["payload"], digits = parsed["signature"];
  EXPECT_THAT(change("payload", payload + " "), HasSubstr("was changed after it was made"));
  EXPECT_THAT(summarizeSignature(*load({})).state, HasSubstr("was changed after it was made"));
  EXPECT_THAT(change("signature", digits.substr(2)), HasSubstr("was changed after it was made"));
  EXPECT_THAT(change("signature", digits.substr(1)), HasSubstr("is not a signature"));
  EXPECT_THAT(change("signature", 1), HasSubstr("is not a signature"));
  EXPECT_THAT(change("payload", nlohmann::json::object()), HasSubstr("is not a signature"));
  EXPECT_THAT(change("signature", nlohmann::json(std::string(128, '0'))),
              HasSubstr("was changed after it was made"));
  for (const std::string &text :
       {std::string("[]"), std::string("null"), std::string("\xff"), std::string(100000, '[')}) {
    writeFile(signature, text);
    EXPECT_THAT(refuse({required}), HasSubstr("is not a signature"));
    EXPECT_THAT(summarizeSignature(*load({})).state, HasSubstr("is not a signature"));
  }
  fs::resize_file(signature, (size_t(64) << 20) + 1); // sparse
  EXPECT_THAT(refuse({required}), HasSubstr("has 67108865 bytes, more than 67108864"));
  fs::remove(signature);
  fs::create_directory(signature);
  EXPECT_THAT(refuse({required}), HasSubstr("signature.json: cannot be read"));
}

/// Whose key signed is decided by the required keys, not by the one in the file.
TEST_F(Signatures, TheKeyInTheFileIsNotTrusted) {
  sign(otherKey);
  nlohmann::json file = nlohmann::json::parse(readAll(signature));
  file["key"] = kPublicKey;
  writeFile(signature, file.dump());
  EXPECT_THAT(refuse({required}), HasSubstr("was changed after it was made"));
  EXPECT_EQ(load({other})->getSignature()->signer, kOtherFingerprint);
}

TEST_F(Signatures, OtherFilesAreNoKeys) {
  auto refuseSigning = [&](const fs::path &path) {
    return messageOf([&] { sign(path); }, ErrorCode::InvalidArgument);
  };
  auto refuseKey = [&](const fs::path &path) {
    return refuse({required, path}, ErrorCode::InvalidArgument);
  };
  fs::path rsa = write("rsa.pem", kRsaPrivateKey), publicRsa = write("rsa.pub", kRsaPublicKey),
           empty = write("empty.pem", ""), large = write("large.pem", std::string(1 << 20, 'x'));
  EXPECT_THAT(refuseSigning(rsa), AllOf(HasSubstr("rsa.pem: holds a key of kind RSA"),
                                        HasSubstr("openssl genpkey -algorithm ed25519")));
  EXPECT_THAT(refuseSigning(write("protected.pem", kProtectedKey)),
              HasSubstr("protected.pem: is protected by a passphrase"));
  for (const fs::path &path : {required, empty, large, folder.getPath()})
    EXPECT_THAT(refuseSigning(path), HasSubstr(path.string() + ": holds no private key"));
  EXPECT_THAT(refuseSigning(folder.getPath() / "none.pem"),
              HasSubstr("none.pem: cannot be read: No such file"));
  EXPECT_FALSE(fs::exists(signature));

  sign(key);
  EXPECT_THAT(refuseKey(publicRsa), HasSubstr("rsa.pub: holds a key of kind RSA"));
  for (const fs::path &path : {key, empty, large, folder.getPath()})
    EXPECT_THAT(refuseKey(path), HasSubstr(path.string() + ": holds no public key"));
  EXPECT_THAT(refuseKey(folder.getPath() / std::string(5000, 'x')),
              HasSubstr(": cannot be read: File name too long"));
}

TEST_F(Signatures, LinksLeadToContents) {
  sign(key);
  fs::path kernel = plan / "kernels/cpu.so";
  fs::remove(kernel);
  fs::create_symlink(write("same.so", "code"), kernel);
  load({required});
  write("same.so", "evil");
  EXPECT_THAT(refuse({required}), HasSubstr("kernels/cpu.so: has SHA-256"));
  write("same.so", "code");
  // A signature is read, but not written, through a link.
  fs::path elsewhere = folder.getPath() / "elsewhere.json";
  fs::rename(signature, elsewhere);
  fs::create_symlink(elsewhere, signature);
  load({required});
  EXPECT_THAT(messageOf([&] { sign(otherKey); }),
              HasSubstr("signature.json: is a link, which is not followed; remove it"));
  load({required});
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// A large model that is older than the plan is otherwise known by its size and name.
TEST_F(Signatures, TheWholeModelIsChecked) {
  PlanBuilder builder = makePlan();
  builder.model.resize(fingerprintedWhole + 1);
  builder.write(folder.getPath());
  fs::path model = folder.getPath() / "model.onnx";
  auto setOld = [&] {
    fs::last_write_time(model, fs::file_time_type::clock::now() - std::chrono::hours(1));
  };
  setOld();
  sign(key);
  WeightSource::openModel(*load({required}));
  builder.model[5000] = 'x';
  writeFile(model, builder.model);
  setOld();
  WeightSource::openModel(*load({}));
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*load({required})); }),
              HasSubstr("model.onnx: has SHA-256"));
}

/// The manifest holds a fingerprint of large files of external data, which skips most bytes.
TEST_F(Signatures, AllExternalDataIsChecked) {
  PlanBuilder builder = makePlan();
  std::string large(fingerprintedWhole + 1, '\0'), small(16, '\0');
  builder.manifest["weights"][0]["file"] = "large.bin";
  nlohmann::json second = builder.manifest["weights"][0];
  second["name"] = "v";
  second["file"] = "small.bin";
  builder.manifest["weights"].push_back(second);
  builder.editManifest = [&](nlohmann::json &manifest) {
    for (auto [name, data] : {std::pair("large.bin", &large), std::pair("small.bin", &small)})
      manifest["model"]["data"][name] = fingerprint(std::as_bytes(std::span(*data)));
  };
  builder.write(folder.getPath());
  write("small.bin", small);
  EXPECT_THAT(messageOf([&] { sign(key); }), HasSubstr("large.bin: cannot be read"));
  write("large.bin", large);
  sign(key);
  EXPECT_THAT(read, ElementsAre("large.bin"));
  EXPECT_EQ(load({required})->getSignature()->data,
            (std::map<std::string, std::string>{{"large.bin", sha256(large)}}));
  WeightSource::openModel(*load({required}));
  large[5000] = 'x';
  write("large.bin", large);
  WeightSource::openModel(*load({}));
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*load({required})); }),
              AllOf(HasSubstr("large.bin: was changed after the plan was signed"),
                    HasSubstr(sha256(large))));
  // A small file whose SHA-256 is the large one's fingerprint: its size and 256 blocks of zeros.
  std::string sample(sizeof(uint64_t) + 256 * size_t(4096), '\0');
  uint64_t size = large.size();
  memcpy(sample.data(), &size, sizeof size);
  ASSERT_EQ(sha256(sample), fingerprint(std::as_bytes(std::span(large))));
  write("large.bin", sample);
  WeightSource::openModel(*load({}));
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*load({required})); }),
              HasSubstr("large.bin: was changed after the plan was signed"));
  write("large.bin", "x" + large.substr(1)); // in a sample
  EXPECT_THAT(messageOf([&] { sign(key); }), HasSubstr("large.bin: has other contents"));
}

} // namespace
