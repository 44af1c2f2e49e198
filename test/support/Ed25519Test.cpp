//===- Ed25519Test.cpp - signatures of texts ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Ed25519.h"

#include "support/Text.h"
#include "test/TestKeys.h"

#include <gmock/gmock.h>

using namespace gridloom;
using namespace gridloom::test;
using testing::HasSubstr;

static std::string messageOf(const auto &work) {
  try {
    work();
  } catch (const std::runtime_error &error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "nothing was thrown";
}

/// Test 2 of RFC 8032, section 7.1.
TEST(Ed25519, IsTheStandards) {
  std::string signature = Ed25519Key::readPrivate(kPrivateKey).sign("\x72");
  EXPECT_EQ(toHex(std::as_bytes(std::span(signature))),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
  EXPECT_TRUE(Ed25519Key::readPublic(kPublicKey).verify("\x72", signature));
}

TEST(Ed25519, APairHasOnePublicHalf) {
  Ed25519Key signer = Ed25519Key::readPrivate(kPrivateKey);
  Ed25519Key reader = Ed25519Key::readPublic(kPublicKey);
  EXPECT_EQ(signer.getPublicPem(), kPublicKey);
  EXPECT_EQ(reader.getPublicPem(), kPublicKey);
  EXPECT_EQ(signer.getFingerprint(), kFingerprint);
  EXPECT_EQ(reader.getFingerprint(), kFingerprint);
  EXPECT_EQ(Ed25519Key::readPrivate(kOtherPrivateKey).getFingerprint(), kOtherFingerprint);
}

TEST(Ed25519, VerifiesOneMessageByOneKey) {
  Ed25519Key reader = Ed25519Key::readPublic(kPublicKey);
  std::string message = "a plan", signature = Ed25519Key::readPrivate(kPrivateKey).sign(message);
  ASSERT_EQ(signature.size(), 64U);
  EXPECT_TRUE(reader.verify(message, signature));
  EXPECT_FALSE(Ed25519Key::readPublic(kOtherPublicKey).verify(message, signature));
  EXPECT_FALSE(reader.verify("", signature));
  EXPECT_FALSE(reader.verify(message + " ", signature));
  EXPECT_FALSE(reader.verify(message, signature + " "));
  for (size_t i = 0; i < signature.size(); ++i) {
    EXPECT_FALSE(reader.verify(message, signature.substr(0, i))) << i;
    std::string changed = signature;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(reader.verify(message, changed)) << i;
  }
  EXPECT_TRUE(reader.verify("", Ed25519Key::readPrivate(kPrivateKey).sign("")));
}

TEST(Ed25519, OtherKeysAreRefused) {
  auto readPrivate = [](const std::string &pem) {
    return messageOf([&] { Ed25519Key::readPrivate(pem); });
  };
  auto readPublic = [](const std::string &pem) {
    return messageOf([&] { Ed25519Key::readPublic(pem); });
  };
  EXPECT_EQ(readPrivate(kRsaPrivateKey), "holds a key of kind RSA, not Ed25519; make one with "
                                         "'openssl genpkey -algorithm ed25519'");
  EXPECT_THAT(readPublic(kRsaPublicKey), HasSubstr("of kind RSA, not Ed25519"));
  EXPECT_THAT(readPrivate(kProtectedKey), HasSubstr("is protected by a passphrase; pass the key"));
  for (const std::string &text : {std::string(), std::string("no key"), std::string(1000, '\0'),
                                  std::string(kPublicKey), std::string(kPrivateKey).substr(0, 60)})
    EXPECT_THAT(readPrivate(text), HasSubstr("holds no private key as PEM")) << text;
  for (const std::string &text :
       {std::string(), std::string(kPrivateKey), std::string(kProtectedKey),
        std::string(kPublicKey).substr(0, 60)})
    EXPECT_THAT(readPublic(text), HasSubstr("holds no public key as PEM")) << text;
  EXPECT_THAT(messageOf([] { Ed25519Key::readPublic(kPublicKey).sign("x"); }),
              HasSubstr("cannot sign"));
}
