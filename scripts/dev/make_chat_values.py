"""Chats rendered by transformers with the templates in tests/chat_templates, which have the shapes of those of real
models: tests/golden/chats.lua. A case has what it renders and the text, or `raises` where the template refuses it.
Mappings have their keys in the order that lua/heed/tokenizers/chat.lua gives those of Lua tables.
"""

import golden
from transformers.utils.chat_template_utils import render_jinja_template

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place.\nIn degrees.", "parameters": {
        "type": "object", "properties": {
            "place": {"type": "string", "description": "a town, such as \"Zürich\""},
            "unit": {"type": "string", "description": "", "enum": ["celsius", "kelvin"]},
        }, "required": ["place"]}}}
ADD = {"type": "function", "function": {
    "name": "add", "description": "The sum of numbers.", "parameters": {
        "type": "object", "properties": {
            "numbers": {"type": "array", "description": "what to add", "items": {"type": "number"}}},
        "required": ["numbers"]}}}


def message(role, content=None, **more):
    return {"role": role, **more} if content is None else {"role": role, "content": content, **more}


def call(name, arguments, **more):
    return {"type": "function", **more, "function": {"name": name, "arguments": arguments}}


CHATS = {
    "one": [message("user", "Hello")],
    "system": [message("system", " Be brief. "), message("user", "  Who are you?\n"), message("assistant", "\nA model. "),
               message("user", "Naïve café, 日本 🙂 'quoted' \"text\" \\ {{ x }} {% if %}")],
    "specials": [message("user", "<|im_end|>\n<|im_start|>system\n[INST] </s>"), message("assistant", "No."),
                 message("user", "")],
    "thinking": [message("user", "1 + 1?"), message("assistant", "<think>\nadd them\n</think>\n\n2"),
                 message("user", "+ 1?"), message("assistant", "3", reasoning_content="one more")],
    "parts": [message("system", [{"type": "text", "text": "Rules"}]),
              message("user", [{"type": "image"}, {"type": "text", "text": " What is this? "}])],
    "two_users": [message("user", "a"), message("user", "b")],
    "calls": [message("user", "The weather in Zürich?"),
              message("assistant", tool_calls=[call("get_weather", {"place": "Zürich", "unit": "kelvin"}, id="abcdefghi")]),
              message("tool", "{\"degrees\": 280.5}"), message("assistant", "280.5 K."), message("user", "Thanks")],
    "sum": [message("system", "Count."), message("user", "3 + 4.5?"),
            message("assistant", "Wait.", tool_calls=[call("add", {"numbers": [3, 4.5, True]}, id="123456789"),
                                                      call("add", {"numbers": []}, id="1")]),
            message("tool", "7.5"), message("tool", "0")],
}
OPTIONS = [
    {}, {"add_generation_prompt": True}, {"add_generation_prompt": True, "tools": [WEATHER, ADD]},
    {"add_generation_prompt": True, "enable_thinking": False, "documents": [{"title": "T", "text": "D"}],
     "controls": {"length": "short"}},
]

RUNS = [("one", 1), ("one", 4), ("system", 2), ("specials", 2), ("thinking", 2), ("thinking", 4), ("parts", 2),
        ("two_users", 1), ("calls", 1), ("calls", 3), ("sum", 3)]


def rendered(template, chat, options):
    try:
        return {"text": render_jinja_template([chat], chat_template=template, **{**TOKENS, **options})[0][0]}
    except Exception:  # of any kind: undefined values, wrong types, raise_exception
        return {"raises": True}


def main():
    cases = []
    for path in sorted((golden.TOP / "tests/chat_templates").glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        for name, number in RUNS:
            cases.append({"template": path.stem, "chat": name, "options": number,
                          **rendered(template, CHATS[name], OPTIONS[number - 1])})
    golden.write(golden.folder() / "chats.lua", "Chats rendered by transformers, from scripts/dev/make_chat_values.py.",
                 [{"tokens": TOKENS, "chats": CHATS, "options": OPTIONS}, *cases])


main()
