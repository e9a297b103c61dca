--- log(1 / (1 + e^-x)), for the functions and losses that use it. With minimum, not clamp, since its gradient at 0 is a
--- half, and so that of the whole.
return function(x) return x:minimum(0) - (-x:abs()):exp():log1p() end
