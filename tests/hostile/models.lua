-- expect: attempt to call a nil value
return require("heed.files").load "/etc/passwd"
