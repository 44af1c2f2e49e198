//===- CpuLibrary.cpp - kernels loaded from memory ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/CpuLibrary.h"

#include "runtime/core/Error.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace gridloom::rt;

static int createMemoryFile(const std::string &name) {
#ifdef MFD_EXEC
  int file = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_EXEC);
  if (file >= 0 || errno != EINVAL)
    return file;
#endif
  return memfd_create(name.c_str(), MFD_CLOEXEC);
}

CpuLibrary::CpuLibrary(const std::string &name, std::span<const std::byte> code) : name(name) {
  file = createMemoryFile(name);
  if (file < 0)
    throw Error(ErrorCode::Unavailable, "kernels/" + name + ": cannot create a memory file: " +
                                            std::string(strerror(errno)));
  for (size_t done = 0; done < code.size();) {
    ssize_t written = write(file, code.data() + done, code.size() - done);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0) {
      std::string reason = strerror(errno);
      close(file);
      throw Error(ErrorCode::OutOfMemory, "kernels/" + name + ": cannot hold " +
                                              std::to_string(code.size()) + " bytes: " + reason);
    }
    done += size_t(written);
  }
  handle = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *reason = dlerror();
    std::string message =
        "kernels/" + name + " does not load: " + (reason ? reason : "no reason given");
    close(file);
    throw Error(ErrorCode::InvalidPlan, message);
  }
}

CpuLibrary::~CpuLibrary() {
  dlclose(handle);
  close(file);
}

void *CpuLibrary::find(const std::string &symbol) const {
  void *address = dlsym(handle, symbol.c_str());
  if (!address)
    throw Error(ErrorCode::InvalidPlan, "kernels/" + name + " has no symbol '" + symbol + "'");
  return address;
}
