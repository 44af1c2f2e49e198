//===- Ed25519.cpp - signatures of texts ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Ed25519.h"

#include "support/Sha256.h"

#include <limits>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdexcept>

using namespace gridloom;

namespace {
/// Forgets OpenSSL's errors, which it queues per thread: others would take them for theirs.
struct ErrorScope {
  ErrorScope() = default;
  ErrorScope(const ErrorScope &) = delete;
  ErrorScope &operator=(const ErrorScope &) = delete;
  ~ErrorScope() { ERR_clear_error(); }
};
} // namespace

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

/// A reader of `text`, which must outlive it.
static Bio openText(std::string_view text) {
  if (text.size() > size_t(std::numeric_limits<int>::max()))
    throw std::runtime_error("is too large for a key");
  return {BIO_new_mem_buf(text.data(), int(text.size())), &BIO_free};
}

/// Refuses a passphrase, which OpenSSL would ask for on the terminal. `wasAsked` is a bool.
static int refusePassphrase(char *, int, int, void *wasAsked) {
  *static_cast<bool *>(wasAsked) = true;
  return -1;
}

Ed25519Key::Ed25519Key(evp_pkey_st *given) : key(given, &EVP_PKEY_free) {
  if (EVP_PKEY_is_a(given, "ED25519"))
    return;
  const char *kind = EVP_PKEY_get0_type_name(given);
  throw std::runtime_error("holds a key of kind " + std::string(kind ? kind : "unknown") +
                           ", not Ed25519; make one with 'openssl genpkey -algorithm ed25519'");
}

/// The key that `read` finds; null if there is none, or if a passphrase protects it (`wasAsked`).
static EVP_PKEY *readPem(std::string_view pem, decltype(&PEM_read_bio_PUBKEY) read,
                         bool &wasAsked) {
  Bio text = openText(pem);
  return text ? read(text.get(), nullptr, &refusePassphrase, &wasAsked) : nullptr;
}

Ed25519Key Ed25519Key::readPrivate(std::string_view pem) {
  ErrorScope errors;
  bool wasAsked = false;
  EVP_PKEY *read = readPem(pem, &PEM_read_bio_PrivateKey, wasAsked);
  if (!read && wasAsked)
    throw std::runtime_error("is protected by a passphrase; pass the key through a pipe: 'openssl "
                             "pkey -in KEY | gridloom sign PLAN --key /dev/stdin'");
  if (!read)
    throw std::runtime_error("holds no private key as PEM; make one with 'openssl genpkey "
                             "-algorithm ed25519'");
  return Ed25519Key(read);
}

Ed25519Key Ed25519Key::readPublic(std::string_view pem) {
  ErrorScope errors;
  bool wasAsked = false;
  EVP_PKEY *read = readPem(pem, &PEM_read_bio_PUBKEY, wasAsked);
  if (!read)
    throw std::runtime_error("holds no public key as PEM; write one with 'openssl pkey -in "
                             "PRIVATE -pubout'");
  return Ed25519Key(read);
}

std::string Ed25519Key::sign(std::string_view message) const {
  ErrorScope errors;
  std::string signature(64, '\0');
  size_t length = signature.size();
  Context context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char *>(signature.data()), &length,
                     reinterpret_cast<const unsigned char *>(message.data()),
                     message.size()) != 1 ||
      length != signature.size())
    throw std::runtime_error("cannot sign: OpenSSL refuses the key");
  return signature;
}

bool Ed25519Key::verify(std::string_view message, std::string_view signature) const {
  ErrorScope errors;
  Context context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  return context &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char *>(signature.data()),
                          signature.size(), reinterpret_cast<const unsigned char *>(message.data()),
                          message.size()) == 1;
}

std::string Ed25519Key::getPublicPem() const {
  ErrorScope errors;
  Bio text(BIO_new(BIO_s_mem()), &BIO_free);
  char *data = nullptr;
  if (!text || PEM_write_bio_PUBKEY(text.get(), key.get()) != 1)
    throw std::runtime_error("has no public half that OpenSSL can write");
  long length = BIO_get_mem_data(text.get(), &data);
  return {data, size_t(length)};
}

std::string Ed25519Key::getFingerprint() const {
  ErrorScope errors;
  unsigned char *der = nullptr;
  int length = i2d_PUBKEY(key.get(), &der);
  if (length <= 0)
    throw std::runtime_error("has no public half that OpenSSL can write");
  std::string text(reinterpret_cast<const char *>(der), size_t(length));
  OPENSSL_free(der);
  return sha256(text);
}
