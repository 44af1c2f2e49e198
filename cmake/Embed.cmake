# cmake -D OUT=parts.cpp -D FOLDER=... -D SCRIPTS=a.js,b.js -P Embed.cmake: writes a C++ file whose functions
# (runtime/cli/page/PageParts.h) return the page's files. Each file is a literal of its own: compilers need not take
# longer ones than 64 KiB.
function(embed result name)
  set(body "")
  foreach(file ${ARGN})
    file(READ ${FOLDER}/${file} text)
    string(APPEND body "  text += R\"page(${text})page\";\n")
  endforeach()
  set(${result} "${${result}}std::string gridloom::rt::${name}() {\n  std::string text;\n${body}  return text;\n}\n" PARENT_SCOPE)
endfunction()

string(REPLACE "," ";" SCRIPTS "${SCRIPTS}")
set(code "#include \"runtime/cli/page/PageParts.h\"\n")
embed(code getPageMarkup page.html)
embed(code getPageStyle page.css)
embed(code getPageScript ${SCRIPTS})
file(WRITE ${OUT} "${code}")
