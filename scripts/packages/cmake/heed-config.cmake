# find_package(heed 0.1 REQUIRED) reads this file. It defines
#   heed::heed    the shared library
#   heed::static  the static library, which also contains luaopen_heed; a host with Lua links its Lua, too
# The folders are found from where this file is, so that an installation may be moved as a whole.
get_filename_component(_heed_libdir "${CMAKE_CURRENT_LIST_DIR}/../.." REALPATH)
get_filename_component(_heed_include "@INCLUDE@" REALPATH BASE_DIR "${_heed_libdir}")

if(NOT EXISTS "${_heed_include}/heed.h")
  set(heed_FOUND FALSE)
  set(heed_NOT_FOUND_MESSAGE "heed.h is not in ${_heed_include}; heed's files must be moved together")
  return()
endif()

if(NOT TARGET heed::heed AND EXISTS "${_heed_libdir}/libheed.so")
  add_library(heed::heed SHARED IMPORTED)
  set_target_properties(heed::heed PROPERTIES
    IMPORTED_LOCATION "${_heed_libdir}/libheed.so"
    IMPORTED_SONAME "@SONAME@"
    INTERFACE_INCLUDE_DIRECTORIES "${_heed_include}")
endif()

if(NOT TARGET heed::static AND EXISTS "${_heed_libdir}/libheed.a")
  add_library(heed::static STATIC IMPORTED)
  set_target_properties(heed::static PROPERTIES
    IMPORTED_LOCATION "${_heed_libdir}/libheed.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_INCLUDE_DIRECTORIES "${_heed_include}"
    INTERFACE_LINK_LIBRARIES "@STATIC_LIBS@")
endif()

unset(_heed_libdir)
unset(_heed_include)
