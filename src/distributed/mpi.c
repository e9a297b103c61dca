/* The transport on MPI: any implementation of MPI 3.0. Everything is counted in bytes, and nothing blocks, so
 * that callers can wait with a time limit. */
#define _POSIX_C_SOURCE 200809L

#include "transport.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* An MPI_Comm and an MPI_Request are pointers in Open MPI, ints in MPICH. */
_Static_assert(sizeof(MPI_Comm) <= sizeof(uint64_t), "a communicator fits the handle");
_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request fits the handle");

static MPI_Comm comm_of(const transport_comm *comm) {
  MPI_Comm c;
  memcpy(&c, &comm->handle, sizeof c);
  return c;
}

static bool check(transport *t, int code) {
  if (code == MPI_SUCCESS) return true;
  char text[MPI_MAX_ERROR_STRING] = "MPI cannot start";
  int length = 0, initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised) MPI_Error_string(code, text, &length); /* Open MPI ends a process that calls it before */
  snprintf(t->message, sizeof t->message, "MPI: %.200s", text);
  return false;
}

/* ---- The job ---- */

/* Fills *out for c, whose errors are returned to the caller. */
static bool use_comm(transport *t, MPI_Comm c, transport_comm *out) {
  *out = (transport_comm){0};
  memcpy(&out->handle, &c, sizeof c);
  return check(t, MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN)) && check(t, MPI_Comm_rank(c, &out->rank)) &&
         check(t, MPI_Comm_size(c, &out->size));
}

bool transport_init(transport *t, transport_comm *world) {
  int initialised = 0, finalised = 0, level;
  MPI_Finalized(&finalised);
  if (finalised) {
    snprintf(t->message, sizeof t->message, "this process has finalised MPI, which cannot be started again");
    return false;
  }
  MPI_Initialized(&initialised);
  t->owner = !initialised;
  if (t->owner && !check(t, MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level))) return false;
  t->process = (long)getpid();
  MPI_Comm c;
  if (t->owner && !check(t, MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN))) return false;
  return check(t, MPI_Comm_dup(MPI_COMM_WORLD, &c)) && use_comm(t, c, world);
}

bool transport_is_here(const transport *t) {
  return t->process == (long)getpid();
}

void transport_finalize(transport *t) {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (t->owner && !finalised) MPI_Finalize();
}

_Noreturn void transport_abort(const char *message, int code) {
  fflush(stdout);
  fprintf(stderr, "%s\n", message);
  fflush(stderr);
  nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* launchers lose what they have not read */
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

void transport_yield(void) {
  sched_yield();
}

/* ---- Groups ---- */

bool transport_split(transport *t, const transport_comm *comm, int color, int key, transport_comm *out) {
  MPI_Comm c;
  *out = (transport_comm){0};
  if (!check(t, MPI_Comm_split(comm_of(comm), color < 0 ? MPI_UNDEFINED : color, key, &c))) return false;
  return c == MPI_COMM_NULL || use_comm(t, c, out);
}

int transport_world_rank(const transport_comm *comm, int rank) {
  MPI_Group group, world;
  int out = rank;
  MPI_Comm_group(comm_of(comm), &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, 1, &rank, world, &out);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return out;
}

/* ---- Operations ---- */

/* A type, and the count of it that has this number of bytes. MPI counts with ints; more than t->piece bytes
 * are therefore one element of a derived type: whole pieces, and the rest. To be freed with end_type. */
static bool begin_type(transport *t, int64_t bytes, MPI_Datatype *type, int *count) {
  *type = MPI_BYTE;
  *count = (int)bytes;
  if (bytes <= t->piece) return true;
  MPI_Datatype one = MPI_DATATYPE_NULL, many = MPI_DATATYPE_NULL, rest = MPI_DATATYPE_NULL;
  const int pieces = (int)(bytes / t->piece), left = (int)(bytes % t->piece);
  bool ok = check(t, MPI_Type_contiguous((int)t->piece, MPI_BYTE, &one)) &&
            check(t, MPI_Type_contiguous(pieces, one, &many)) &&
            check(t, MPI_Type_contiguous(left, MPI_BYTE, &rest)) &&
            check(t, MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, (MPI_Aint)(bytes - left)},
                                            (MPI_Datatype[]){many, rest}, type)) &&
            check(t, MPI_Type_commit(type));
  if (one != MPI_DATATYPE_NULL) MPI_Type_free(&one);
  if (many != MPI_DATATYPE_NULL) MPI_Type_free(&many);
  if (rest != MPI_DATATYPE_NULL) MPI_Type_free(&rest);
  if (!ok && *type != MPI_BYTE && *type != MPI_DATATYPE_NULL) MPI_Type_free(type);
  *count = 1;
  return ok;
}

/* MPI keeps a freed type until the operations that use it have ended. */
static bool end_type(transport *t, int code, MPI_Datatype *type, const MPI_Request *request,
                     transport_request *out) {
  if (*type != MPI_BYTE) MPI_Type_free(type);
  if (!check(t, code)) return false;
  *out = (transport_request){.active = true};
  memcpy(&out->handle, request, sizeof *request);
  return true;
}

bool transport_send(transport *t, const transport_comm *comm, const void *data, int64_t bytes, int to,
                    int tag, transport_request *out) {
  MPI_Datatype type;
  MPI_Request r = MPI_REQUEST_NULL;
  int count;
  return begin_type(t, bytes, &type, &count) &&
         end_type(t, MPI_Isend(data, count, type, to, tag, comm_of(comm), &r), &type, &r, out);
}

bool transport_receive(transport *t, const transport_comm *comm, void *data, int64_t bytes, int from, int tag,
                       transport_request *out) {
  MPI_Datatype type;
  MPI_Request r = MPI_REQUEST_NULL;
  int count;
  return begin_type(t, bytes, &type, &count) &&
         end_type(t, MPI_Irecv(data, count, type, from, tag, comm_of(comm), &r), &type, &r, out);
}

bool transport_all_gather(transport *t, const transport_comm *comm, const void *mine, int64_t bytes,
                          void *all, transport_request *out) {
  MPI_Datatype type;
  MPI_Request r = MPI_REQUEST_NULL;
  int count;
  if (!begin_type(t, bytes, &type, &count)) return false;
  const void *source = mine ? mine : MPI_IN_PLACE;
  return end_type(t, MPI_Iallgather(source, count, type, all, count, type, comm_of(comm), &r), &type, &r,
                  out);
}

bool transport_all_to_all(transport *t, const transport_comm *comm, const void *sent, int64_t bytes,
                          void *received, transport_request *out) {
  MPI_Datatype type;
  MPI_Request r = MPI_REQUEST_NULL;
  int count;
  if (!begin_type(t, bytes, &type, &count)) return false;
  return end_type(t, MPI_Ialltoall(sent, count, type, received, count, type, comm_of(comm), &r), &type, &r,
                  out);
}

bool transport_broadcast(transport *t, const transport_comm *comm, void *data, int64_t bytes, int root,
                         transport_request *out) {
  MPI_Datatype type;
  MPI_Request r = MPI_REQUEST_NULL;
  int count;
  return begin_type(t, bytes, &type, &count) &&
         end_type(t, MPI_Ibcast(data, count, type, root, comm_of(comm), &r), &type, &r, out);
}

bool transport_take(transport *t, const transport_comm *comm, void *data, int64_t bytes, int tag, int *from) {
  int there = 0;
  MPI_Status status;
  *from = -1;
  if (!check(t, MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_of(comm), &there, &status))) return false;
  if (!there) return true;
  *from = status.MPI_SOURCE;
  return check(t, MPI_Recv(data, (int)bytes, MPI_BYTE, *from, tag, comm_of(comm), MPI_STATUS_IGNORE));
}

bool transport_test(transport *t, transport_request *r, bool *done) {
  int ended = 1;
  if (r->active) {
    MPI_Request request;
    memcpy(&request, &r->handle, sizeof request);
    const int code = MPI_Test(&request, &ended, MPI_STATUS_IGNORE);
    memcpy(&r->handle, &request, sizeof request);
    if (ended || code != MPI_SUCCESS) r->active = false;
    if (!check(t, code)) return false;
  }
  *done = ended != 0;
  return true;
}
