-- expect: ended by the system
return (("a"):rep(100000):find(("a*"):rep(40) .. "b"))
