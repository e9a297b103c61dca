# Prints what `make help` shows: the lines that begin with ## in the makefiles, beside the names that follow them.
#   awk -v kind=target|variable -f make_help.awk MAKEFILE...
/^## / { text = (text == "" ? "" : text " ") substr($0, 4); next }
text != "" {
  names = $0
  if (is_variable = /^[A-Z_]+ *[?:]?=/) sub(/ *[?:]?=.*/, "", names)
  else sub(/:.*/, "", names)
  gsub(/ /, ", ", names)
  if (is_variable == (kind == "variable")) printf "  %-21s %s\n", names, text
  text = ""
}
