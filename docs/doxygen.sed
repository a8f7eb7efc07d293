# Makes this project's comments ones that Doxygen reads: // before a declaration, and // behind a member.
s#^\( *\)// ----.*##
s#^\( *\)//\([^/]\)#\1///\2#
s#\([;,{]\)  // #\1  ///< #
