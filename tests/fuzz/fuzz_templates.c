/* The target of libFuzzer for chat templates: renders the contents of a file for a chat. Lines of Lua count
 * as coverage, by a hook. Built and run by `make fuzz`; template_fuzz.lua changes templates without
 * libFuzzer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "../../src/heed.h"

/* libFuzzer reads these beside its own counters. */
#define LINES ((size_t)1 << 15)
__attribute__((section("__libfuzzer_extra_counters"), used)) static uint8_t lines_run[LINES];

static void count_line(lua_State *L, lua_Debug *at) {
  uint32_t hash = 2166136261u;
  lua_getinfo(L, "Sl", at);
  for (const char *p = at->short_src; *p != '\0'; p++) hash = (hash ^ (unsigned char)*p) * 16777619u;
  uint8_t *count = &lines_run[(hash ^ (uint32_t)at->currentline * 2654435769u) % LINES];
  if (*count < UINT8_MAX) ++*count;
}

/* Gives nil, or what is wrong with the answer to a template. Errors of heed's own code, and only they, begin
 * with a place in it; what follows the name of the function may be a template's own words. Templates that run
 * for long meet the limit. */
static const char check[] =
    "local heed = require 'heed'\n"
    "local apply = require 'heed.tokenizers.chat'\n"
    "local tool = { type = 'function', ['function'] = { name = 'weather', description = 'The weather.',\n"
    "  parameters = { type = 'object', properties = { city = { type = 'string' } }, required = { 'city' } } "
    "} }\n"
    "local call = { type = 'function', ['function'] = { name = 'weather', arguments = { city = 'Bonn' } } }\n"
    "local chat = { { role = 'system', content = 'Be brief.' }, { role = 'user', content = ' Hello <|end|> ' "
    "},\n"
    "  { role = 'assistant', content = 'Hi', reasoning_content = 'hm', tool_calls = { call } },\n"
    "  { role = 'tool', name = 'weather', content = '21.5' },\n"
    "  { role = 'user', content = { { type = 'text', text = 'And \\xe6\\x97\\xa5?' } } } }\n"
    "return function(template)\n"
    "  local tok = { chat_template = template, bos_token = '<s>', eos_token = '</s>' }\n"
    "  heed.limit { seconds = 0.5 }\n"
    "  local fine, text = pcall(apply, tok, chat, { add_generation_prompt = true, tools = { tool }, now = 0 "
    "})\n"
    "  heed.limit { seconds = math.huge }\n"
    "  if fine and type(text) == 'string' then return nil end\n"
    "  if type(text) ~= 'string' or not text:find '^apply_chat_template: ' then return tostring(text) end\n"
    "end\n";

static void need_template(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "fuzz_templates: %s\n", what);
  abort();
}

static lua_State *open_state(void) {
  lua_State *L = luaL_newstate();
  need_template(L != NULL, "no memory");
  luaL_openlibs(L);
  luaL_requiref(L, "heed", luaopen_heed, 1);
  lua_settop(L, 0);
  need_template(luaL_loadbuffer(L, check, sizeof check - 1, "=check") == LUA_OK &&
                    lua_pcall(L, 0, 1, 0) == LUA_OK,
                lua_tostring(L, -1));
  lua_sethook(L, count_line, LUA_MASKLINE, 0);
  return L;
}

int LLVMFuzzerTestOneInput(const uint8_t *text, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *text, size_t size) {
  static lua_State *L;
  if (L == NULL) L = open_state();
  lua_pushvalue(L, 1);
  lua_pushlstring(L, (const char *)text, size);
  const int status = lua_pcall(L, 1, 1, 0);
  need_template(status == LUA_OK && lua_isnil(L, -1), luaL_tolstring(L, -1, NULL));
  lua_settop(L, 1);
  return 0;
}
