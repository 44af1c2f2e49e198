# The Python that tests and bindings use: the environment of scripts/bootstrap where there is one.
if(NOT DEFINED Python_EXECUTABLE AND EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  set(Python_EXECUTABLE ${CMAKE_SOURCE_DIR}/.venv/bin/python)
endif()
find_package(Python 3.10 COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
set(GRIDLOOM_PYTHON ${Python_EXECUTABLE})
