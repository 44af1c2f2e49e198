//===- SystemCalls.h - systems without some calls -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_SYSTEMCALLS_H
#define GRIDLOOM_TEST_RUNTIME_SYSTEMCALLS_H

#include <cstddef>
#include <iterator>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace gridloom::test {

/// Makes a system call of this process fail with `error` from now on, as sandboxes and older
/// systems do: forbidSystemCall(SYS_openat2, ENOSYS). The effect lasts until the process ends.
/// Returns false if calls cannot be filtered.
[[nodiscard]] inline bool forbidSystemCall(unsigned number, unsigned error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{std::size(filter), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

} // namespace gridloom::test

#endif // GRIDLOOM_TEST_RUNTIME_SYSTEMCALLS_H
