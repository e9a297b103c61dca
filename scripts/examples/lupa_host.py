# heed in Python, through lupa (pip install lupa).
#   python scripts/examples/lupa_host.py [folder of heed.so, built for Lua 5.4]
import sys
import lupa
with lupa.allow_lua_module_loading():  # lets heed.so find lupa's own Lua
    from lupa import lua54
lua = lua54.LuaRuntime()
if len(sys.argv) > 1: lua.globals().package.cpath = sys.argv[1] + "/?.so"
heed = lua.eval('(require "heed")')
heed.manual_seed(123)
attention = heed.nn.CausalAttention(3, 2, 6, 0.0)
context, info = attention(heed.rand(6, 3), lua.table(need_weights=True))
print(f"heed {heed.version} on {lua.lua_implementation}\n{context}\n{info.weights}")
