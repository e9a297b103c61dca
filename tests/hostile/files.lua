-- expect: attempt to call a nil value
return heed.load "/etc/passwd"
