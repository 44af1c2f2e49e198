# Flags every target of this project shares. Headers of LLVM and other libraries are included as
# system headers, so that these warnings speak of our own code only.
# libstdc++ 12 marks what its own algorithms use as deprecated, hence -Wno-deprecated-declarations.
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-deprecated-declarations -fvisibility=hidden)
if(GRIDLOOM_WERROR)
  add_compile_options(-Werror)
endif()
if(GRIDLOOM_SANITIZE)
  # Checks between the operations keep loops from becoming vectors, asked for or not.
  add_compile_options(-fsanitize=${GRIDLOOM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -Wno-pass-failed)
  add_link_options(-fsanitize=${GRIDLOOM_SANITIZE})
endif()
# For programs that link LLVM, which is not instrumented: what its headers mark in our code, its library does not unmark.
set(GRIDLOOM_ASAN_OPTIONS detect_container_overflow=0:allow_user_poisoning=0)
