-- expect: ended by the system
-- only time ends it
return (("a"):rep(100000):find(("a*"):rep(40) .. "b"))
