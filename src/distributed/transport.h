/* What carries bytes between the ranks of a job. mpi.c implements it with MPI, and is the only file that
 * includes mpi.h. Here ranks count from 0, as in MPI.
 *
 * Functions return false on failure, with the reason in t->message. A started operation reads and writes the
 * caller's memory until transport_test says that it has ended. All operations of one communicator are started
 * in the same order by all its ranks. */
#ifndef TRANSPORT_H
#define TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

/* A group of ranks, with its own messages. handle: an MPI_Comm. */
typedef struct transport_comm {
  uint64_t handle;
  int rank, size;
} transport_comm;

/* A started operation. handle: an MPI_Request. */
typedef struct transport_request {
  uint64_t handle;
  bool active; /* started, and not yet seen to have ended */
} transport_request;

typedef struct transport {
  int64_t piece; /* bytes that one count of MPI describes; more are a derived type */
  bool owner;    /* this library initialised MPI, so it finalises it */
  long process;  /* id of the process that initialised it: the child of a fork must not use it */
  char message[256];
} transport;

/** Initialises MPI, unless the host did; *world has all ranks. */
bool transport_init(transport *t, transport_comm *world);
/** Whether this process is the one that called transport_init. */
bool transport_is_here(const transport *t);
/** To be called by all ranks, when nothing is in flight. */
void transport_finalize(transport *t);
/** Prints `message` on stderr and ends all processes of the job. */
_Noreturn void transport_abort(const char *message, int code);
/** Lets another process run, for loops that wait. */
void transport_yield(void);

/** The ranks that give the same colour, ordered by key; colour -1: *out->size is 0. Called by all ranks of
 * comm. */
bool transport_split(transport *t, const transport_comm *comm, int color, int key, transport_comm *out);
/** The rank of the world that is `rank` of comm. */
int transport_world_rank(const transport_comm *comm, int rank);

bool transport_send(transport *t, const transport_comm *comm, const void *data, int64_t bytes, int to,
                    int tag, transport_request *out);
bool transport_receive(transport *t, const transport_comm *comm, void *data, int64_t bytes, int from, int tag,
                       transport_request *out);
/** all [size, bytes] = what each rank has in mine [bytes]; NULL: mine is there already. */
bool transport_all_gather(transport *t, const transport_comm *comm, const void *mine, int64_t bytes,
                          void *all, transport_request *out);
/** received[i] [bytes] = sent[rank] of rank i; both [size, bytes]. */
bool transport_all_to_all(transport *t, const transport_comm *comm, const void *sent, int64_t bytes,
                          void *received, transport_request *out);
bool transport_broadcast(transport *t, const transport_comm *comm, void *data, int64_t bytes, int root,
                         transport_request *out);
/** Takes the next message with this tag, from any rank, if one has come: stores it and its sender, else -1.
 */
bool transport_take(transport *t, const transport_comm *comm, void *data, int64_t bytes, int tag, int *from);
/** Whether the operation has ended; advances all others as well. */
bool transport_test(transport *t, transport_request *r, bool *done);

#endif
