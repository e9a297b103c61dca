-- expect: ended by the system
-- ends only at the time limit
return (("a"):rep(100000):find(("a*"):rep(40) .. "b"))
