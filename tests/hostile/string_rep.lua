-- expect: not enough memory
return ("x"):rep(1000000000)
