/* The module heed_mpi: collectives and messages of tensors between the ranks of a job. It uses the public
 * functions of heed.h alone and is not part of libheed. Here ranks count from 0, in messages and in Lua from
 * 1.
 *
 * Functions return a heed_status; the message is in d->message, without a position. What they allocate they
 * allocate before they agree with the other ranks: a failure before that point changes nothing,
 * and all ranks can go on. After it the others wait for this rank, so a group in which an operation was
 * stopped halfway cannot be used any more. What is then still in flight keeps its memory. */
#ifndef DISTRIBUTED_H
#define DISTRIBUTED_H

#include "../heed.h"
#include "transport.h"

/* ---- The state ---- */

/* Calls that all ranks of a group make in the same order: name in messages. */
#define DIST_CALLS(X)                                                                                        \
  X(INIT, "init_process_group")                                                                              \
  X(BARRIER, "barrier")                                                                                      \
  X(ALL_REDUCE, "all_reduce")                                                                                \
  X(ALL_GATHER, "all_gather")                                                                                \
  X(REDUCE_SCATTER, "reduce_scatter")                                                                        \
  X(BROADCAST, "broadcast")                                                                                  \
  X(SPLIT, "new_group")                                                                                      \
  X(END, "destroy_process_group")
/* What dist_counts counts besides them: messages, and agreements. */
#define DIST_OTHERS(X) X(ISEND, "isend") X(IRECV, "irecv") X(AGREEMENT, "agreement")

typedef enum dist_call {
#define X(name, text) DIST_##name,
  DIST_CALLS(X) DIST_OTHERS(X)
#undef X
      DIST_KINDS
} dist_call;
extern const char *const dist_names[DIST_KINDS];

#define DIST_OPS(X) X(SUM, "sum") X(PROD, "prod") X(MIN, "min") X(MAX, "max") X(AVG, "avg")
typedef enum dist_op {
#define X(name, text) DIST_##name,
  DIST_OPS(X)
#undef X
} dist_op;
extern const char *const dist_op_names[]; /* ends with NULL */

typedef struct dist {
  heed_context *context;
  transport transport;
  double timeout;                /* seconds that a rank waits for the others */
  bool check;                    /* ranks agree before each call */
  bool open;                     /* between dist_init and dist_end */
  int64_t groups;                /* made so far; all ranks make them together */
  struct dist_request *requests; /* in flight */
  struct dist_roll *roll;        /* NULL: ranks do not agree */
  struct {
    int64_t calls, bytes; /* bytes that this rank sent to others */
    double waited;        /* seconds, agreeing included */
  } counts[DIST_KINDS];
  char message[1024];
} dist;

typedef struct dist_group {
  dist *d;
  transport_comm comm;
  transport_comm headers; /* for the headers of messages; empty if ranks do not agree */
  heed_tensor *records;   /* one of each rank, for agreements: [size, fields], int64 */
  int64_t number;         /* of the group: the same on all its ranks */
  int64_t calls;          /* that all ranks make, so far */
  int64_t sent;           /* messages, so far */
  char broken[256];       /* the error of a call that was stopped halfway; "": none */
} dist_group;

/** Sets d->message; returns the status. */
heed_status dist_fail(dist *d, heed_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Takes over the message of a call of heed that failed. */
heed_status dist_failed(dist *d, heed_status status);

/** Starts MPI and agrees on the version and the options. Errors: ARGUMENT (of MPI; ranks differ), LIMIT. */
heed_status dist_init(dist *d, dist_group *world);
/** Waits until all ranks have come to their end, at most `seconds`, and finalises MPI. If a message is lost
 * thereby, d->message says so; otherwise it is empty. */
heed_status dist_end(dist_group *world, double seconds);
/** A new group of the ranks of g that give the same colour, ordered by key; colour -1: none, out->comm.size
 * is 0. */
heed_status dist_split(dist_group *g, int color, int key, dist_group *out);
/** Whether calls in g are possible. `call` begins the message. */
heed_status dist_check_group(dist_group *g, const char *call);

/* ---- Waiting and agreeing (agree.c) ---- */

/* Seconds after which a loop that waits checks the clock, limits and cancellation again. */
#define DIST_CHECK_SECONDS 0.0005
/** Writes seconds as messages show them to text, which it returns: "2.0", "60.0". printf would use the
 * locale's separator. */
const char *dist_seconds_text(char *text, size_t size, double seconds);

/** Waits for operations of `call`. Checks for cancellation, limits and the time: CANCELLED, LIMIT. On
 * failure g is broken. `what` says in the message what did not happen. */
heed_status dist_wait(dist_group *g, dist_call call, transport_request *r, int count);

/** Tells the other ranks that this one takes part in `call`, and compares. x: NULL, or the tensor whose dtype
 * and shape must be the same everywhere. detail: an op, a root. Errors: ARGUMENT (a rank does something else;
 * all ranks get this error, and the group stays usable), CANCELLED, LIMIT. */
heed_status dist_agree(dist_group *g, dist_call call, int64_t detail, const heed_tensor *x);

/* ---- Who has not come (roll.c) ---- */

/** Called by all ranks, before the first call of a roll. */
heed_status dist_open_roll(dist *d, const dist_group *world);
/** Notes that this rank waits in the current call of g, or, for NULL, in none. */
void dist_set_waiting(dist *d, const dist_group *g);
/** Answers the ranks that call the roll. Part of every loop that waits. */
void dist_answer(dist *d);
/** Asks the other ranks of g whether they wait in the current call, and writes who does not to text: "rank 3
 * has not", "ranks 2 and 3 have not"; "not all ranks have" if that is not known. Takes up to a second. */
const char *dist_call_roll(dist_group *g, char *text, size_t size);

/* ---- Collectives (collectives.c) ---- */

/** Bytes of one element; of all elements. */
int64_t dist_element_bytes(heed_dtype dtype);
int64_t dist_bytes(const heed_tensor *x);
/** Prepares writing to x: row-major elements are written in place, *copy stays NULL; others in *copy, from
 * which the caller copies them. Errors: ARGUMENT (x requires a gradient, elements share memory). */
heed_status dist_begin_write(dist *d, const char *call, heed_tensor *x, heed_tensor **copy);
heed_status dist_end_write(dist *d, heed_tensor *x, heed_tensor *copy);

/** x = the sum (…) of the x of all ranks, in the order of the ranks, so that all ranks get the same bits,
 * with every MPI. float32 and int64; bool by min and max. */
heed_status dist_all_reduce(dist_group *g, heed_tensor *x, dist_op op);
/** *out [size, shape of x] = the x of each rank. */
heed_status dist_all_gather(dist_group *g, const heed_tensor *x, heed_tensor **out);
/** *out = this rank's part of the sum (…) of the x of all ranks; x is divided in its first dimension. */
heed_status dist_reduce_scatter(dist_group *g, const heed_tensor *x, dist_op op, heed_tensor **out);
heed_status dist_broadcast(dist_group *g, heed_tensor *x, int root);
heed_status dist_barrier(dist_group *g);

/* reduce.c */
/** Whether op is defined for dtype. Errors: DTYPE. */
heed_status dist_check_op(dist *d, const char *call, dist_op op, heed_dtype dtype);
/** out [n] = all[0] op all[1] op …; all [ranks, n], row-major. */
void dist_reduce(heed_dtype dtype, dist_op op, const void *all, int ranks, int64_t n, void *out);

/* ---- Messages (requests.c) ---- */

/* What a sender says about a message, before it; tag: that of the elements, a number of the sender's. */
typedef struct dist_header {
  int64_t dtype, count, tag;
} dist_header;

typedef struct dist_request {
  dist_group *group;
  dist_call call; /* DIST_ISEND or DIST_IRECV */
  int peer, tag;
  heed_tensor *x;    /* an alias, so that a script may release its own */
  heed_tensor *copy; /* row-major elements, if those of x are not; or elements that do not fit x */
  dist_header header;
  transport_request parts[2]; /* the header, the elements */
  enum { DIST_AWAITS_HEADER, DIST_REFUSED, DIST_IN_FLIGHT, DIST_ARRIVED, DIST_DONE } stage;
  char failure[256]; /* why it failed; "": it did not */
  struct dist_request *next, **link;
} dist_request;

/** Starts sending or receiving; r stays at its address until it is done. */
heed_status dist_isend(dist_group *g, const heed_tensor *x, int to, int tag, dist_request *r);
heed_status dist_irecv(dist_group *g, heed_tensor *x, int from, int tag, dist_request *r);
/** Whether r has ended. An error that ended it is returned each time. */
heed_status dist_test(dist_request *r, bool *done);
/** Waits for r; after CANCELLED and LIMIT it is still in flight. */
heed_status dist_await(dist_request *r);
/** Writes to d->message which message is still in flight, now that no rank sends or receives any more; "" if
 * none is. */
void dist_find_lost(dist *d);
/** Advances everything in flight, without using the context: for heed_set_poll. Does nothing after the end,
 * and in the child of a fork. */
void dist_poll(void *d);

#endif
