# heed in Python, through lupa (pip install lupa): python scripts/examples/lupa_host.py [folder of heed.so, made for Lua 5.4]
import sys
import lupa
with lupa.allow_lua_module_loading():  # else heed.so does not find the Lua that lupa has inside
    from lupa import lua54
lua = lua54.LuaRuntime()
if len(sys.argv) > 1: lua.globals().package.cpath = sys.argv[1] + "/?.so"
heed = lua.eval('(require "heed")')
heed.manual_seed(123)
attention = heed.nn.CausalAttention(3, 2, 6, 0.0)
context, info = attention(heed.rand(6, 3), lua.table(need_weights=True))
print(f"heed {heed.version} on {lua.lua_implementation}\n{context}\n{info.weights}")
