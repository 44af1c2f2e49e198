//===- Ed25519.h - signatures of texts --------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_ED25519_H
#define GRIDLOOM_SUPPORT_ED25519_H

#include <memory>
#include <string>
#include <string_view>

struct evp_pkey_st; // OpenSSL's EVP_PKEY

namespace gridloom {

/// A private or public key of Ed25519. Errors are std::runtime_error, a reason that continues the
/// name of the key's file.
class Ed25519Key {
public:
  /// The private key in `pem`. Throws if there is none, if a passphrase protects it, or if it is of
  /// another kind than Ed25519.
  static Ed25519Key readPrivate(std::string_view pem);
  /// The public key in `pem`; throws if there is none, or one of another kind.
  static Ed25519Key readPublic(std::string_view pem);

  /// The 64 bytes of the message's signature. Only a private key can sign.
  std::string sign(std::string_view message) const;
  /// Whether this key's private half made `signature` of exactly this message.
  bool verify(std::string_view message, std::string_view signature) const;
  /// The public half as PEM.
  std::string getPublicPem() const;
  /// The SHA-256 of the public half as DER, in hexadecimal digits.
  std::string getFingerprint() const;

private:
  explicit Ed25519Key(evp_pkey_st *key);

  std::shared_ptr<evp_pkey_st> key;
};

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_ED25519_H
