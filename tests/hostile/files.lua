-- expect: heed has no function or field .load.
return heed.load "/etc/passwd"
