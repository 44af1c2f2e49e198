//===- SignVerb.cpp - gridloom sign ---------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/core/Plan.h"
#include "support/ProgressLine.h"
#include "support/Text.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <iostream>

using namespace gridloom;
using namespace gridloom::rt;

static const char *const examples = R"(
Examples:
  openssl genpkey -algorithm ed25519 -out private.pem
  openssl pkey -in private.pem -pubout -out public.pem
      a new pair of keys: who has private.pem can sign, who has public.pem can check
  gridloom sign model.plan --key private.pem
      put a signature into the plan, in place of an earlier one
  gridloom run model.plan --input x=x.npy --require-signature public.pem
      run the plan only if it is as it was signed; also bench, generate, train and check
  gridloom inspect model.plan
      whether the plan is signed, and with which key
  openssl pkey -in private.pem | gridloom sign model.plan --key /dev/stdin
      a key that a passphrase protects

The signature covers all that a runtime loads: programs, kernels, and the model's weights. It does
not cover report.json, timeline.json, plan.strategy and ir/, which no session reads, nor the
measurements in autotune/, which are ignored where a signature is required. A plan that is compiled
again has no signature until it is signed again.)";

namespace {

struct SignSettings {
  std::string plan, key;
};

} // namespace

static int sign(const SignSettings &settings) {
  std::shared_ptr<const Plan> plan = Plan::load(settings.plan, {.requireTarget = false});
  std::string signer;
  {
    ProgressLine progress;
    signer = signPlan(*plan, settings.key, [&](const std::string &name, uint64_t bytes) {
      progress.show("reading " + name + ", " + formatBytes(bytes));
    });
  }
  std::cout << makePrintable(settings.plan) << ": signed with key " << signer << "\n";
  return 0;
}

Verb gridloom::rt::addSign(CLI::App &app) {
  auto settings = std::make_shared<SignSettings>();
  CLI::App *verb =
      app.add_subcommand("sign", "Sign a plan, so that others can require it unchanged");
  verb->footer(examples);
  verb->add_option("plan", settings->plan, "folder that 'gridloom compile' wrote")->required();
  verb->add_option("--key", settings->key, "the private key: Ed25519, as PEM")
      ->type_name("PRIVATE.pem")
      ->check(notEmpty())
      ->required();
  return {verb, [settings] { return sign(*settings); }};
}
