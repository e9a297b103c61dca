/* A game in C with sixty frames a second, in which a character speaks: a model in Lua generates text in
 * slices of 2 ms, one in each frame.
 *
 *   host_npc MODEL [FRAMES [TEXT]]      a .gguf file or a folder with a tokenizer; 300 frames
 *
 * The models are heed's Lua side (docs/embedding.md): the C side loads one, begins a generation, and calls
 * advance in each frame. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "heed.h"

#define FRAME (1.0 / 60) /* seconds: a frame, */
#define GAME  0.006      /* the game's own work in it, */
#define SLICE 2.0        /* and milliseconds for the character */

/* MODEL, TEXT, print → the steps of a generation, which calls print with each piece of the answer */
static const char *const script =
    "local path, text, print = ...\n"
    "local heed = require 'heed'\n"
    "local model, problem = heed.models.load(path)\n"
    "if not model then error(problem, 0) end\n"
    "local tok = model.tokenizer or error('the model has no tokenizer', 0)\n"
    "local stream = require 'heed.tokenizers.stream'(tok)\n"
    "local ids = tok.chat_template and tok:apply_chat_template({{role = 'user', content = text}},\n"
    "  {add_generation_prompt = true, tokenize = true}) or tok:encode(text)\n"
    "return model:generate_steps(ids, {max_new_tokens = 64, on_token = function(id) print(stream:add(id)) "
    "end})";

/* Represents the game's own work, and the wait for the next frame, in which a game would sleep. */
static void work_until(double moment) {
  while (heed_clock() < moment) continue;
}

/* print(text): a game would show it above the character. */
static int print_piece(lua_State *L) {
  fputs(luaL_checkstring(L, 1), stdout);
  fflush(stdout);
  return 0;
}

/* Leaves the steps, or an error message, on the stack. */
static int begin_speech(lua_State *L, const char *model, const char *text) {
  luaL_openlibs(L);
  luaL_requiref(L, "heed", luaopen_heed, 0);
  lua_pop(L, 1);
  const int status = luaL_loadbuffer(L, script, strlen(script), "=script");
  if (status != LUA_OK) return status;
  lua_pushstring(L, model);
  lua_pushstring(L, text);
  lua_pushcfunction(L, print_piece);
  return lua_pcall(L, 3, 1, 0);
}

/* steps:advance(ms) of the steps on top of the stack; *done: the answer is complete. After an error, the
 * message is on top. */
static int advance_speech(lua_State *L, double ms, int *done) {
  lua_getfield(L, -1, "advance");
  lua_pushvalue(L, -2);
  lua_pushnumber(L, ms);
  const int status = lua_pcall(L, 2, 1, 0);
  if (status != LUA_OK) return status;
  *done = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return LUA_OK;
}

int main(int argc, char **argv) {
  const int frames = argc > 2 ? atoi(argv[2]) : 300;
  if (argc < 2 || frames < 1) {
    fprintf(stderr, "usage: host_npc MODEL [FRAMES [TEXT]], with a number of frames from 1 up\n");
    return EXIT_FAILURE;
  }
  lua_State *L = luaL_newstate();
  if (L == NULL) return EXIT_FAILURE;
  int status = begin_speech(L, argv[1], argc > 3 ? argv[3] : "Who are you?"), done = 0, frame = 0;
  double worst = 0;
  const double start = heed_clock();
  for (; frame < frames && !done && status == LUA_OK; frame++) {
    const double frame_start = heed_clock();
    work_until(frame_start + GAME);
    const double slice_start = heed_clock();
    status = advance_speech(L, SLICE, &done);
    const double taken = heed_clock() - slice_start;
    if (taken > worst) worst = taken;
    work_until(start + (frame + 1) * FRAME);
  }
  if (status != LUA_OK)
    fprintf(stderr, "host_npc: %s\n", lua_tostring(L, -1));
  else
    printf("\n%d frame%s, the answer is %s; the worst slice took %.2f ms, of %.0f\n", frame,
           frame == 1 ? "" : "s", done ? "complete" : "not complete", worst * 1e3, SLICE);
  lua_close(L);
  return status == LUA_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
