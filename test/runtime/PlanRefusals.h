//===- PlanRefusals.h - damaged plans and their errors --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_PLANREFUSALS_H
#define GRIDLOOM_TEST_RUNTIME_PLANREFUSALS_H

#include "PlanBuilder.h"
#include "runtime/core/Error.h"
#include "runtime/core/Plan.h"

#include <gmock/gmock.h>

namespace gridloom::test {

/// A way to damage a plan, and parts of the resulting error line.
struct Refusal {
  const char *name;
  std::function<void(PlanBuilder &)> damage;
  std::vector<const char *> says;
};

inline void PrintTo(const Refusal &refusal, std::ostream *out) { *out << refusal.name; }

/// Expects that the damaged plan is refused with one line that names the plan and has these parts.
inline void expectRefused(PlanBuilder builder, const Refusal &refusal) {
  using testing::HasSubstr;
  TemporaryFolder folder;
  refusal.damage(builder);
  std::filesystem::path path = builder.write(folder.getPath());
  try {
    rt::Plan::load(path);
    FAIL() << "the plan was accepted";
  } catch (const rt::Error &error) {
    EXPECT_EQ(error.getCode(), rt::ErrorCode::InvalidPlan);
    EXPECT_THAT(error.what(),
                testing::AllOf(HasSubstr(path.string()), testing::Not(HasSubstr("\n"))));
    for (const char *part : refusal.says)
      EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

} // namespace gridloom::test

#endif // GRIDLOOM_TEST_RUNTIME_PLANREFUSALS_H
