"""The site's navigation: groups of pages in reading order.

A page is the path of its Markdown file, or (path, title) where its first heading is too long here. Pages of docs/ that
no group names follow at the end of Guides, and docs/example-*.md at the end of Examples; build.py adds the reference and
the sources of examples.
"""

GROUPS = [
    ("Start", [
        "docs/start.md",
        "docs/playground.md",
        ("README.md", "What heed is"),
        "docs/coming-from-pytorch.md",
        "docs/cheat-sheet.md",
        "docs/tour.md",
        "docs/installing.md",
        "docs/prompt.md",
        "docs/features.md",
        "docs/not-there.md",
        "docs/contents.md",
    ]),
    ("Guides", [
        "docs/attention.md",
        "docs/attention-options.md",
        "docs/masks.md",
        "docs/packed.md",
        "docs/linear-attention.md",
        "docs/modules.md",
        "docs/indexing.md",
        "docs/random.md",
        "docs/looking-inside.md",
        "docs/interpret.md",
        "docs/plot.md",
        "docs/attention-page.md",
        "docs/gradients.md",
        "docs/training.md",
        "docs/caches.md",
        "docs/models.md",
        "docs/encoders.md",
        "docs/tokenizers.md",
        "docs/chat.md",
        "docs/files.md",
        "docs/embedding.md",
        "docs/two-files.md",
        "docs/limits.md",
        "docs/threads.md",
        "docs/lua-versions.md",
        "docs/recipes.md",
        "docs/precision.md",
        "docs/machines.md",
        "docs/dividing-models.md",
        "docs/machines-costs.md",
    ]),
    ("Examples", [
        "docs/examples.md",
        ("docs/example-why.md", 'Why does "it" look there?'),
        ("docs/example-induction.md", "Heads that copy"),
        ("docs/example-surgery.md", "Attention changed while a model runs"),
        ("docs/example-logit-lens.md", "What a model would say after each layer"),
        ("docs/example-training.md", "Training"),
    ]),
    ("Reference", []),
    ("Project", [
        "docs/performance.md",
        "docs/design.md",
        "docs/testing.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ]),
]

# How much a search prefers a page to others: guides say what to do, the last ones only mention it.
SEARCH_WEIGHTS = {
    "CHANGELOG.md": 0.1, "CONTRIBUTING.md": 0.4, "docs/testing.md": 0.3, "docs/design.md": 0.4,
    "docs/performance.md": 0.6, "README.md": 0.7, "docs/contents.md": 0.4, "docs/features.md": 0.5,
    "docs/reference/index.md": 0.1, "docs/reference/types.md": 0.6, "docs/reference/c.md": 0.6,
}
