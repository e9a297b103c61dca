/* What operations tell of themselves while they are recorded. */
#include "ops.h"

heed_status heed__record_results(heed_context *ctx, heed_status status, heed__op op, int inputs,
                                 const heed_tensor *const *input, const void *values, size_t values_bytes,
                                 int outputs, heed_tensor **const *out) {
  if (status != HEED_OK) return status;
  const heed__call call = {
      .op = (int)op,
      .inputs = inputs,
      .outputs = outputs,
      .input = input,
      .output = out,
      .values = values,
      .values_bytes = values_bytes,
  };
  return ctx->recorder->record(ctx, &call);
}

heed_status heed__check_state(heed_context *ctx, const char *function, heed_tensor **out,
                              heed_tensor **state) {
  const heed_status status = heed__check_apart(ctx, function, out, state);
  if (status == HEED_OK && state != NULL && *state != NULL && *out != NULL && heed__may_overlap(*out, *state))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: out and state share memory; they must be separate tensors",
                      function);
  if (status != HEED_OK || ctx->recorder == NULL || state == NULL || *state == NULL) return status;
  return heed__fail(ctx, HEED_ARGUMENT,
                    "%s: state is a tensor to write to; it must be new (NULL) while gradients are recorded",
                    function);
}

heed_status heed__record_state(heed_context *ctx, heed_status status, heed__op op, int inputs,
                               const heed_tensor *const *input, const void *values, size_t values_bytes,
                               heed_tensor **out, heed_tensor **state) {
  if (status != HEED_OK || ctx->recorder == NULL) return status;
  const heed__call call = {
      .op = (int)op,
      .inputs = inputs,
      .outputs = state != NULL ? 2 : 1,
      .input = input,
      .output = (heed_tensor * *const[]){out, state},
      .values = values,
      .values_bytes = values_bytes,
  };
  status = ctx->recorder->record(ctx, &call);
  if (status != HEED_OK && state != NULL) { /* stays if *out was given */
    heed_tensor_free(*state);
    *state = NULL;
  }
  return status;
}

/* A result that was given may have to be copied to, which can be stopped: it comes first. */
heed_status heed__state_result_end(heed_context *ctx, heed_status status, heed__result *out,
                                   heed__result *state) {
  const bool first = out->out != NULL && *out->out != NULL;
  if (first) status = heed__result_end(ctx, out, status);
  status = heed__result_end(ctx, state, status);
  return first ? status : heed__result_end(ctx, out, status);
}

heed_status heed__record_call(heed_context *ctx, heed_status status, heed__op op, int inputs,
                              const heed_tensor *const *input, const void *values, size_t values_bytes,
                              heed_tensor **out) {
  return heed__record_results(ctx, status, op, inputs, input, values, values_bytes, 1,
                              (heed_tensor * *const[]){out});
}

heed_status heed__check_unrecorded(heed_context *ctx, const char *function, int inputs,
                                   const heed_tensor *const *input) {
  for (int i = 0; ctx->recorder != NULL && i < inputs; i++) {
    if (input[i] != NULL && heed__wants_gradient(input[i]))
      return heed__fail(ctx, HEED_ARGUMENT,
                        "%s: no gradient is known for it; use it under no_grad, or on x:detach()", function);
  }
  return HEED_OK;
}

heed_status heed__recorded_reduction(heed_context *ctx, heed_status status, heed__op op, const heed_tensor *x,
                                     int ndims, const int *dims, bool keepdim, double number,
                                     heed_tensor **out) {
  if (ctx->recorder == NULL || status != HEED_OK) return status;
  heed__reduction_values values = {.keepdim = keepdim, .all = ndims == 0, .number = number};
  for (int i = 0; i < ndims; i++) {
    const int d = dims[i] < 0 ? dims[i] + (x->ndim > 0 ? x->ndim : 1) : dims[i] - 1;
    values.dims |= 1u << d;
  }
  if (ndims == 0) values.dims = (1u << x->ndim) - 1;
  return heed__record_call(ctx, status, op, 1, &x, &values, sizeof values, out);
}

heed_status heed__recorded_selection(heed_context *ctx, heed_status status, heed__op op, const heed_tensor *x,
                                     heed__selection_values how, bool is_new, heed_tensor **values,
                                     heed_tensor **indices) {
  if (ctx->recorder == NULL || status != HEED_OK) return status;
  const heed_tensor *inputs[] = {x, how.dim < 0 ? x : *indices};
  status = heed__record_call(ctx, status, op, 2, inputs, &how, sizeof how, values);
  if (status != HEED_OK && is_new) {
    heed_tensor_free(*indices);
    *indices = NULL;
  }
  return status;
}

heed_status heed__keep_copies(heed_context *ctx, heed__op op, heed__kept *kept, const heed_tensor *a,
                              const heed_tensor *b, const heed_tensor *c, const heed_tensor *out) {
  *kept = (heed__kept){.input = {a, b, c}};
  if (out == NULL) return HEED_OK;
  const heed__recorder *recorder = heed__pause_recording(ctx);
  const heed_status status = recorder->keep(ctx, (int)op, 3, out, kept->input, kept->copy);
  heed__resume_recording(ctx, recorder);
  return status;
}

heed_status heed__record_kept(heed_context *ctx, heed_status status, heed__op op, int inputs,
                              heed__kept *kept, const void *values, size_t values_bytes, heed_tensor **out) {
  status = heed__recorded(ctx, status, op, inputs, kept->input, values, values_bytes, out);
  for (int i = 0; i < 3; i++) heed_tensor_free(kept->copy[i]);
  return status;
}
