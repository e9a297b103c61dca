# Measuring: heed beside other libraries. `make build/bench/stop && build/bench/stop` measures how soon a call returns
# after heed_cancel.

## measures heed beside PyTorch, ONNX Runtime and ggml (installed in build/venv)
bench: needs = build bench
bench: prepare = scripts/bench/install_peers.sh $(BUILD)/venv
## QUICK=1 measures for a few minutes only
QUICK ?=
run-bench: all $(BUILD)/bench/probes.so $(BUILD)/bench/guest $(BUILD)/plain/heed.so
	@$(BUILD)/venv/bin/python scripts/bench/bench.py --build $(BUILD) $(if $(QUICK),--quick)
	@$(BUILD)/venv/bin/python scripts/bench/sequences.py --build $(BUILD) $(if $(QUICK),--seconds 0.1 --no-flex)
	@$(BUILD)/venv/bin/python scripts/bench/model.py --build $(BUILD) --model $(MODELS)/all-MiniLM-L6-v2 \
	  $(if $(QUICK),--seconds 1 --ragged 30,--ragged 1000)
	@$(BUILD)/venv/bin/python scripts/bench/train.py --build $(BUILD) $(if $(QUICK),--seconds 3)

$(BUILD)/bench/probes.so: $(OBJ)/scripts/bench/probes.o $(BUILD)/libheed.so
	@mkdir -p $(@D)
	$(call say,LINK,$(CC) $(LDFLAGS) -shared $^ -pthread -o $@)

INSTALLING += bench
.PHONY: run-bench
