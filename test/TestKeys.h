//===- TestKeys.h - keys that sign plans in tests -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Keys of Ed25519 as PEM, of tests 2 and 3 of RFC 8032, section 7.1; and keys that no plan is
// signed with.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_TESTKEYS_H
#define GRIDLOOM_TEST_TESTKEYS_H

namespace gridloom::test {

inline constexpr const char *kPrivateKey = R"(-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7
-----END PRIVATE KEY-----
)";
inline constexpr const char *kPublicKey = R"(-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=
-----END PUBLIC KEY-----
)";
/// As `openssl pkey -pubin -outform DER | sha256sum` prints it.
inline constexpr const char *kFingerprint =
    "deb2ded39dc26fce0e6085b6fc34bf6b5941913bbfe2ea614113cff9e004c170";

inline constexpr const char *kOtherPrivateKey = R"(-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIMWqjfQ/n4N77bdELzHct7Fm04U1B28JS4XOOi4LRFj3
-----END PRIVATE KEY-----
)";
inline constexpr const char *kOtherPublicKey = R"(-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA/FHNjmIYoaONpH7QAjDwWAgW7RO6MwOsXeuRFUiQgCU=
-----END PUBLIC KEY-----
)";
inline constexpr const char *kOtherFingerprint =
    "8d39ba50abe50f77b6bb8ae7b6927aff7ffbeba35ad2837c0e51e82bcbcc60d5";

/// The first key, with a passphrase.
inline constexpr const char *kProtectedKey = R"(-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjfiHUcFnAbngICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEENWVusv0bSQIPzHiEHbVP0oEQMM1
Un5pXA3EfvAOHfhJWMh9iVaNbxLjh4d6Y5lifPS/KjVkvwYF6lAe8BaSpzs5I26a
7Q0gAB++fQEy15zHyeI=
-----END ENCRYPTED PRIVATE KEY-----
)";
/// A pair of RSA keys of 512 bits.
inline constexpr const char *kRsaPrivateKey = R"(-----BEGIN PRIVATE KEY-----
MIIBVAIBADANBgkqhkiG9w0BAQEFAASCAT4wggE6AgEAAkEAtBy+D2GWTbhYEIeI
HZ5aN1hJCa423iscyXyTdtyKwtFkS043RiVQxiL5oqU5TA0jVGuCAlNPWi2auUAl
0N6EBQIDAQABAkB8EeSWwdmA1kDLuiD4jjGFOGqvoXOoXThqT0dhtJBdnCpMkFYj
iwqlAz9iAeZhKZH7FEz9uTimKGqN5f7QknRNAiEA172sXyF1942bFh9pzzGkO+pc
IhgpW1oBgPjSunzHtXcCIQDVuQac5EbtwECBN3oJ31hMsYldwn20vieSR2KOVHkh
YwIgRRmkXyf5f9vkQ5a2Lj3pK6Op9OWmQXM3rhaEcGTNFosCIQCeTA4O1LGIVTYx
vwJgH5IKNBEXZf+viIxMtxzTaNPTGwIgReAQmZfWwjGcvSzxbkN5EpJvmvESNLs5
OWrdcuHIh/4=
-----END PRIVATE KEY-----
)";
inline constexpr const char *kRsaPublicKey = R"(-----BEGIN PUBLIC KEY-----
MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBALQcvg9hlk24WBCHiB2eWjdYSQmuNt4r
HMl8k3bcisLRZEtON0YlUMYi+aKlOUwNI1RrggJTT1otmrlAJdDehAUCAwEAAQ==
-----END PUBLIC KEY-----
)";

} // namespace gridloom::test

#endif // GRIDLOOM_TEST_TESTKEYS_H
