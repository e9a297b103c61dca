/* The splitting rules of byte-level BPE by the names that GGUF files have for them (tokenizer.ggml.pre).
 * Sources: the tokenizer.json of the models; llama.cpp, src/llama-vocab.cpp. */
#include "text.h"

#include <string.h>

#define WORD_LETTERS  "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SHORTENED     "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINE_ENDS     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SPACE_END     "\\s+(?!\\S)|\\s+"
#define BIG_LETTERS   "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL_LETTERS "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define NO_WORD       "[^\\r\\n\\p{L}\\p{N}]?"
#define SLASHES       " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|" SPACE_END

const char heed__gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACE_END;

static const char one_digit[] = "\\p{N}", three_digits[] = "\\p{N}{1,3}",
                  llama3_words[] = SHORTENED "|" WORD_LETTERS "|\\p{N}{1,3}|" LINE_ENDS,
                  qwen2_words[] = SHORTENED "|" WORD_LETTERS "|\\p{N}|" LINE_ENDS,
                  gpt4o_words[] =
                      NO_WORD BIG_LETTERS "*" SMALL_LETTERS "+" SHORTENED "?|" NO_WORD BIG_LETTERS
                                          "+" SMALL_LETTERS "*" SHORTENED "?|\\p{N}{1,3}|" SLASHES,
                  tekken_words[] = NO_WORD BIG_LETTERS "*" SMALL_LETTERS "+|" NO_WORD BIG_LETTERS
                                                       "+" SMALL_LETTERS "*|\\p{N}|" SLASHES,
                  default_punctuation[] = "[\\p{P}\\$\\+<=>\\^~\\|]+", all_digits[] = "\\p{N}+",
                  ascii_digits[] = "[0-9][0-9][0-9]",
                  deepseek_letters[] = "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-"
                                       "\xe3\x83\xbf]+",
                  deepseek_words[] = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
                                     "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"
                                     "\\s*[\\r\\n]+|" SPACE_END;

static const struct named_rule {
  const char *names; /* between spaces */
  const char *patterns[4];
  bool ignore_merges, bos; /* bos: where the file does not say */
  bool nfc;                /* as the tokenizer.json of these models */
} named_rules[] = {
    {" gpt-2 mpt olmo jais phi-2 roberta-bpe ", {heed__gpt2_pattern}, false, false, false},
    {" llama-bpe llama3 llama-v3 ", {llama3_words}, true, true, false},
    {" dbrx smaug-bpe chatglm-bpe glm4 ", {llama3_words}, false, false, false},
    {" qwen2 deepseek-r1-qwen megrez ", {qwen2_words}, false, false, true},
    {" stablelm2 ", {qwen2_words}, false, false, false},
    {" smollm starcoder refact command-r codeshell exaone minerva-7b ",
     {one_digit, heed__gpt2_pattern},
     false,
     false,
     false},
    {" gpt-4o llama4 ", {gpt4o_words}, false, false, false},
    {" tekken ", {tekken_words}, true, true, false},
    {" deepseek-v3 ", {three_digits, deepseek_letters, deepseek_words}, false, false, false},
    {" default ", {default_punctuation, heed__gpt2_pattern, all_digits, ascii_digits}, false, false, false}};

heed_status heed__add_pattern(heed_tokenizer *tok, const char *where, heed__step_kind kind,
                              const char *pattern) {
  heed__step *step = heed__step_add(&tok->splits, kind);
  return heed__regex_compile(tok->ctx, where, pattern, strlen(pattern), &step->regex);
}

static bool is_rule_named(const char *names, const char *name, size_t size) {
  for (const char *at = strchr(names, ' '); at != NULL && at[1] != 0; at = strchr(at + 1, ' '))
    if (size > 0 && strncmp(at + 1, name, size) == 0 && at[1 + size] == ' ') return true;
  return false;
}

heed_status heed__add_named_splits(heed_tokenizer *tok, const char *where, const char *name, size_t size,
                                   bool *known) {
  heed_status status = HEED_OK;
  *known = false;
  for (size_t i = 0; i < sizeof(named_rules) / sizeof(*named_rules); i++) {
    const struct named_rule *rule = &named_rules[i];
    if (memchr(name, ' ', size) != NULL || !is_rule_named(rule->names, name, size)) continue;
    *known = true;
    for (int k = 0; k < 4 && rule->patterns[k] != NULL && status == HEED_OK; k++)
      status = heed__add_pattern(tok, where, HEED__SPLIT, rule->patterns[k]);
    if (rule->nfc) heed__step_add(&tok->normalizers, HEED__NFC);
    tok->ignore_merges = rule->ignore_merges;
    if (rule->bos && tok->before_count == 0) tok->before[tok->before_count++] = tok->bos;
    return status;
  }
  return status;
}
