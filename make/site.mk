# The site: pages made from Markdown, and their tests.

## makes the site in build/docs: open build/docs/index.html
docs: needs = build docs
run-docs: $(BUILD)/heed
	@scripts/site/build.sh $(BUILD)

## tests the site: links, headings, accessibility, keyboard, search, scripts for the playground (QUICK=1: fewer pages)
test-docs: needs = build docs browser
test-docs: runs = run-site
run-site: run-docs
	@QUICK=$(QUICK) scripts/dev/run_site_tests.sh $(BUILD)

NIGHTLY += test-docs
INSTALLING += docs test-docs
.PHONY: run-docs run-site
