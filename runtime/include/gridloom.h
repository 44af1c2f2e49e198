//===- gridloom.h - run plans from C ----------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Load a plan that `gridloom compile` wrote and run it from C, or from anything that can call C.
//
//   gridloom_plan *plan;
//   gridloom_session *session;
//   gridloom_plan_open("model.plan", &plan);
//   gridloom_session_create(plan, NULL, &session);          // all ranks in this process
//   int64_t shape[] = {8, 128};
//   gridloom_tensor ids = {GRIDLOOM_I64, 2, shape, data};
//   gridloom_session_bind(session, "input_ids", &ids);
//   gridloom_session_run(session, "main", NULL, NULL, 0);
//   gridloom_tensor result;
//   gridloom_session_output(session, "embedding", &result); // whole, in host memory
//   gridloom_session_destroy(session);
//   gridloom_plan_destroy(plan);
//
// Errors. Functions that can fail return a gridloom_status, 0 when all is well; then
// gridloom_last_error() of the same thread is one line that says what is wrong and what to do.
// Results are written only on success.
//
// Ownership. What a *_create or *_open gives is the caller's until the matching *_destroy, which
// takes NULL too. Strings and shapes that the library hands out live as long as the object they
// came from; outputs until the session's next run. Tensors are dense, row-major, in host memory and
// in the machine's byte order.
//
// Threads. A session is used by one thread at a time, and by no call within another: other calls
// than gridloom_session_abort that are made while one is in progress are refused with
// GRIDLOOM_INVALID_ARGUMENT. Different sessions are independent. A plan is immutable and may be
// shared, and may be destroyed while sessions made from it live on.
//
// A plan holds native code: running one is running a program. gridloom_plan_open_signed opens only
// plans that somebody you trust has signed.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_H
#define GRIDLOOM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define GRIDLOOM_API __attribute__((visibility("default")))
#else
#define GRIDLOOM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gridloom_status {
  GRIDLOOM_OK = 0,
  GRIDLOOM_INVALID_ARGUMENT = 1, /* the caller's inputs are wrong; the session lives on */
  GRIDLOOM_INVALID_PLAN = 2,     /* the plan is damaged, foreign or needs what is not here */
  GRIDLOOM_UNAVAILABLE = 3,      /* a library, driver or device is missing */
  GRIDLOOM_PEER_FAILED = 4,      /* a rank died or left; the session is only good for destruction */
  GRIDLOOM_DEADLINE_EXCEEDED = 5, /* a rank made no progress; likewise */
  GRIDLOOM_OUT_OF_MEMORY = 6,
  GRIDLOOM_INTERNAL = 7,
} gridloom_status;

typedef enum gridloom_type {
  GRIDLOOM_F32 = 1,
  GRIDLOOM_F64 = 2,
  GRIDLOOM_F16 = 3,
  GRIDLOOM_BF16 = 4,
  GRIDLOOM_I8 = 5,
  GRIDLOOM_I16 = 6,
  GRIDLOOM_I32 = 7,
  GRIDLOOM_I64 = 8,
  GRIDLOOM_U8 = 9,
  GRIDLOOM_BOOL = 10, /* one byte, 0 or 1 */
  GRIDLOOM_U16 = 11,
  GRIDLOOM_U32 = 12,
  GRIDLOOM_U64 = 13,
  GRIDLOOM_F8E4M3FN = 14, /* 8-bit floats, as ONNX defines them */
  GRIDLOOM_F8E5M2 = 15,
  GRIDLOOM_F8E4M3FNUZ = 16,
  GRIDLOOM_F8E5M2FNUZ = 17,
} gridloom_type;

/* A dense row-major tensor in host memory. */
typedef struct gridloom_tensor {
  gridloom_type type;
  int32_t rank;         /* number of dimensions; 0 is a scalar */
  const int64_t *shape; /* `rank` sizes */
  void *data;           /* only read where the library takes a tensor */
} gridloom_tensor;

typedef struct gridloom_plan gridloom_plan;
typedef struct gridloom_session gridloom_session;

/* "0.1.0". */
GRIDLOOM_API const char *gridloom_version(void);

/* What the last failed call of this thread says, on one line; "" before any. */
GRIDLOOM_API const char *gridloom_last_error(void);

/*--- Plans --------------------------------------------------------------------------------------*/

/* Reads and verifies the plan in folder `path`: checksums and every bound. Loads no code. */
GRIDLOOM_API gridloom_status gridloom_plan_open(const char *path, gridloom_plan **plan);
/* The same for a plan that must be as `gridloom sign` signed it: `keys` are the files of `num_keys`
   public keys (Ed25519, PEM), 1 or more, and one of them must be the signature's. Refuses a plan
   that is not signed, signed with another key or changed since with GRIDLOOM_INVALID_PLAN. Its
   sessions check all bytes of the model's files, and use no measurements of autotune. */
GRIDLOOM_API gridloom_status gridloom_plan_open_signed(const char *path, const char *const *keys,
                                                       int32_t num_keys, gridloom_plan **plan);
GRIDLOOM_API void gridloom_plan_destroy(gridloom_plan *plan);

/* Ranks the plan is for: the product of its mesh's axes. */
GRIDLOOM_API int32_t gridloom_plan_num_ranks(const gridloom_plan *plan);

GRIDLOOM_API int32_t gridloom_plan_num_entries(const gridloom_plan *plan);
/* NULL when there is no such entry. */
GRIDLOOM_API const char *gridloom_plan_entry_name(const gridloom_plan *plan, int32_t entry);
GRIDLOOM_API int32_t gridloom_plan_num_specialisations(const gridloom_plan *plan, int32_t entry);

/* An input or output of an entry, with its whole (global) shape. */
typedef struct gridloom_argument {
  const char *name;
  gridloom_type type;
  int32_t rank;
  const int64_t *shape;
} gridloom_argument;
GRIDLOOM_API int32_t gridloom_plan_num_inputs(const gridloom_plan *plan, int32_t entry,
                                              int32_t specialisation);
GRIDLOOM_API int32_t gridloom_plan_num_outputs(const gridloom_plan *plan, int32_t entry,
                                               int32_t specialisation);
GRIDLOOM_API gridloom_status gridloom_plan_input(const gridloom_plan *plan, int32_t entry,
                                                 int32_t specialisation, int32_t index,
                                                 gridloom_argument *argument);
GRIDLOOM_API gridloom_status gridloom_plan_output(const gridloom_plan *plan, int32_t entry,
                                                  int32_t specialisation, int32_t index,
                                                  gridloom_argument *argument);

/* What sessions keep from call to call, with its whole (global) shape: a cache, a weight that is
   trained, what an optimizer keeps of it. */
GRIDLOOM_API int32_t gridloom_plan_num_states(const gridloom_plan *plan);
GRIDLOOM_API gridloom_status gridloom_plan_state(const gridloom_plan *plan, int32_t index,
                                                 gridloom_argument *state);
/* What a state is to training: "parameter" (a weight of the model), "slot" (what an optimizer keeps
   of one) or "run"; "" where there is no such state. */
GRIDLOOM_API const char *gridloom_plan_state_role(const gridloom_plan *plan, int32_t index);

/*--- Sessions -----------------------------------------------------------------------------------*/

typedef enum gridloom_ranks {
  /* All ranks of the plan live in this process, a thread each. */
  GRIDLOOM_RANKS_IN_PROCESS = 0,
  /* This process is one rank of a job: `gridloom run`, torchrun, mpirun or srun
     says which, through the environment. Every rank makes the same calls in the same order. */
  GRIDLOOM_RANK_FROM_ENVIRONMENT = 1,
} gridloom_ranks;

/* Zero means the default everywhere: gridloom_session_options o = {sizeof(o)}. */
typedef struct gridloom_session_options {
  size_t size; /* sizeof(gridloom_session_options): lets later versions add fields */
  gridloom_ranks ranks;
  uint32_t threads; /* per rank on the CPU; 0: cores divided by ranks */
  /* .onnx, .safetensors or a checkpoint's folder to use instead of the model's; NULL: the model's
   */
  const char *weights;
  /* not 0: check the model file's SHA-256 also if large and old; of files of external data above
     32 MiB only samples are compared, unless the plan was opened with keys */
  uint32_t verify_model;
  uint32_t trace;       /* not 0: keep times for gridloom_session_write_trace */
  uint32_t serialize;   /* not 0: let communication overlap nothing */
  uint32_t deadline_ms; /* a peer without progress for so long is an error; 0: 300000 */
  /* a name of `gridloom run --transport`: "local", "nccl", "loopback" (see its --help);
     NULL: by the plan's target */
  const char *transport;
  /* not 0: measure which of cuBLASLt's algorithms and cuDNN's engines are fastest and keep them
     in the plan's folder autotune, for sessions made later */
  uint32_t autotune;
  /* not 0: submit steps one by one, not captured; on GPUs, not as CUDA graphs */
  uint32_t no_graphs;
  /* called with interrupt_data about 20 times a second, on the caller's thread, while a call waits
     for ranks; once it has returned not 0, a call that goes on for two more seconds ends the job;
     NULL: never. Of this session it may call gridloom_session_abort; other calls are refused with
     GRIDLOOM_INVALID_ARGUMENT, since one is in progress, and gridloom_session_destroy does nothing
   */
  int (*is_interrupted)(void *interrupt_data);
  void *interrupt_data;
  /* not 0: a run whose inputs hold indices out of range fails with GRIDLOOM_INVALID_ARGUMENT; else
     such an index takes the nearest one, or zeros where the table is split */
  uint32_t check_indices;
  /* the seed of states that the plan draws, for plans that `compile --init` made; NULL: the plan's.
     Read during the call */
  const uint64_t *init_seed;
} gridloom_session_options;

/* Loads weights, kernels and communicators. `options` may be NULL. */
GRIDLOOM_API gridloom_status gridloom_session_create(const gridloom_plan *plan,
                                                     const gridloom_session_options *options,
                                                     gridloom_session **session);
/* Waits for a run in progress. In a process forked from the session's it frees nothing; other calls
   are refused there. */
GRIDLOOM_API void gridloom_session_destroy(gridloom_session *session);

/* Ends the job on all ranks, which then fail with `reason`: for a rank that will not make the calls
   that the others wait for. From any thread. The session is then only good for destruction. */
GRIDLOOM_API gridloom_status gridloom_session_abort(gridloom_session *session, const char *reason);
/* The same for a rank of a job from the environment that cannot create a session. Returns when the
   others have heard of it, or have not come within 10 seconds; does nothing where no launcher
   started this process. */
GRIDLOOM_API gridloom_status gridloom_job_abort(const char *reason);

/* Gives input `name` its whole value; each rank cuts its part. `tensor` itself may go at once; its
   data is read by each run until the input is bound again, and must stay. */
GRIDLOOM_API gridloom_status gridloom_session_bind(gridloom_session *session, const char *name,
                                                   const gridloom_tensor *tensor);
/* Gives one rank's part alone: the plan's local shape, padding included. With ranks from the
   environment `rank` must be this process's. */
GRIDLOOM_API gridloom_status gridloom_session_bind_shard(gridloom_session *session, int32_t rank,
                                                         const char *name,
                                                         const gridloom_tensor *tensor);

/* Runs `entry` (NULL: "main") and returns when its outputs are complete. `dims` and `values` name
   the specialisation, `num_dims` of them; with none it is the one that the bound shapes fit. Inputs
   that do not fit fail this call alone; with ranks from the environment they end the job, since the
   other ranks may be running. */
GRIDLOOM_API gridloom_status gridloom_session_run(gridloom_session *session, const char *entry,
                                                  const char *const *dims, const int64_t *values,
                                                  int32_t num_dims);
/* The same on a thread of the library. Until gridloom_session_wait, no other call on the session.
 */
GRIDLOOM_API gridloom_status gridloom_session_run_async(gridloom_session *session,
                                                        const char *entry, const char *const *dims,
                                                        const int64_t *values, int32_t num_dims);
/* Waits for the run and returns its status; GRIDLOOM_OK when there is none. */
GRIDLOOM_API gridloom_status gridloom_session_wait(gridloom_session *session);

/* Outputs of the last run's entry; 0 before any. */
GRIDLOOM_API int32_t gridloom_session_num_outputs(const gridloom_session *session);
GRIDLOOM_API const char *gridloom_session_output_name(const gridloom_session *session,
                                                      int32_t index);
/* The whole output of the last run. With ranks from the environment all ranks call it, rank 0 gets
   the output and the others a tensor whose data is NULL. It is valid until the next run. */
GRIDLOOM_API gridloom_status gridloom_session_output(gridloom_session *session, const char *name,
                                                     gridloom_tensor *tensor);
/* Memory of one output or state; the caller releases it. */
typedef struct gridloom_memory gridloom_memory;
/* As gridloom_session_output, but *tensor stays valid until gridloom_memory_release(*memory), also
   after later runs and gridloom_session_destroy. *memory is NULL where the tensor's data is. */
GRIDLOOM_API gridloom_status gridloom_session_take_output(gridloom_session *session,
                                                          const char *name, gridloom_tensor *tensor,
                                                          gridloom_memory **memory);
/* NULL does nothing. Any thread may call it. */
GRIDLOOM_API void gridloom_memory_release(gridloom_memory *memory);
/* One rank's part, padding included; data is NULL where that rank's stage does not make it. */
GRIDLOOM_API gridloom_status gridloom_session_output_shard(gridloom_session *session, int32_t rank,
                                                           const char *name,
                                                           gridloom_tensor *tensor);

/* Replaces all weights by those of a .onnx or .safetensors file with the same names, types and
   shapes: on all ranks, or on error on none. */
GRIDLOOM_API gridloom_status gridloom_session_update_weights(gridloom_session *session,
                                                             const char *path);

/* Makes all states (caches) what they are in a new session: zero, or the weight they begin with.
   With ranks from the environment all ranks call it. */
GRIDLOOM_API gridloom_status gridloom_session_reset_states(gridloom_session *session);

/* The whole value of a state; `tensor` lives until the session's next run, so that reading many
   states holds all of them. With ranks from the environment all ranks call it, rank 0 gets the
   value and the others a tensor whose data is NULL. */
GRIDLOOM_API gridloom_status gridloom_session_get_state(gridloom_session *session, const char *name,
                                                        gridloom_tensor *tensor);
/* As gridloom_session_get_state, but *tensor stays valid until gridloom_memory_release(*memory), as
   for gridloom_session_take_output. */
GRIDLOOM_API gridloom_status gridloom_session_take_state(gridloom_session *session,
                                                         const char *name, gridloom_tensor *tensor,
                                                         gridloom_memory **memory);
/* Gives a state its whole value, of the type and shape that the plan has; each rank cuts its part.
   With ranks from the environment all ranks call it with the same value. */
GRIDLOOM_API gridloom_status gridloom_session_set_state(gridloom_session *session, const char *name,
                                                        const gridloom_tensor *tensor);

/*--- Training -----------------------------------------------------------------------------------*/

/* How far a training run has come. */
typedef struct gridloom_progress {
  int64_t step;    /* committed steps */
  int64_t cursor;  /* samples read, over all epochs */
  int64_t samples; /* of the data; 0: unknown */
  uint64_t seed;   /* of the samples' order */
} gridloom_progress;
/* Writes all states and the progress as a checkpoint, the folder `path`; a checkpoint of this name
   is replaced once the new one is whole. Whatever else has this name is refused, and so is a place
   in the plan. With ranks from the environment all ranks call it and rank 0 writes. */
GRIDLOOM_API gridloom_status gridloom_session_save(gridloom_session *session, const char *path,
                                                   const gridloom_progress *progress);
/* Gives all states the values of the checkpoint `path`, or of the latest step-NUMBER in it, which
   may have been written on any mesh. It must have the plan's states, in type and shape; else
   nothing changes. `progress` may be NULL. */
GRIDLOOM_API gridloom_status gridloom_session_restore(gridloom_session *session, const char *path,
                                                      gridloom_progress *progress);

/* What a schedule, as `gridloom train --lr-schedule` takes it, multiplies the learning rate by in
   the committed step `step` from 0. `steps` is its total where the text gives none; 0: there is
   none. */
GRIDLOOM_API gridloom_status gridloom_schedule_factor(const char *schedule, int64_t steps,
                                                      int64_t step, double *factor);
/* The samples, of `samples`, that a run with this seed reads from `cursor` on: `count` indices. */
GRIDLOOM_API gridloom_status gridloom_sample_order(int64_t samples, uint64_t seed, int64_t cursor,
                                                   int64_t count, int64_t *indices);

/* A file of what a run measures, in a folder that TensorBoard shows. One thread at a time. */
typedef struct gridloom_events gridloom_events;
/* Begins a file in `folder`, which is made where it is not there. With a negative `step` it must
   have no events; else the run goes on after this step, and what the folder has of later ones is
   cut off, since it is made again; with 0 all of it is moved into a folder in it. A folder is
   refused while another run writes a file there. */
GRIDLOOM_API gridloom_status gridloom_events_create(const char *folder, int64_t step,
                                                    gridloom_events **events);
/* Adds `count` numbers of a step, values[i] under tags[i]. */
GRIDLOOM_API gridloom_status gridloom_events_scalars(gridloom_events *events, int64_t step,
                                                     const char *const *tags, const double *values,
                                                     int32_t count);
/* Adds how the elements of a tensor are spread. */
GRIDLOOM_API gridloom_status gridloom_events_histogram(gridloom_events *events, int64_t step,
                                                       const char *tag,
                                                       const gridloom_tensor *tensor);
/* Waits until the disk has all of it. */
GRIDLOOM_API gridloom_status gridloom_events_sync(gridloom_events *events);
GRIDLOOM_API void gridloom_events_destroy(gridloom_events *events);

/*--- Figures ------------------------------------------------------------------------------------*/

/* How the last run went, in milliseconds and shares from 0 to 1: means over this process's ranks,
   `wall_ms` the slowest's. */
typedef struct gridloom_stats {
  double wall_ms, compute_ms, communication_ms;
  double exposed_ms; /* communication that no computation hid */
  double overlap;    /* of the shorter of compute and communication, what ran beside the other */
  double bubble;     /* of the run, neither compute nor collectives: pipelines only */
} gridloom_stats;
GRIDLOOM_API gridloom_status gridloom_session_stats(const gridloom_session *session,
                                                    gridloom_stats *stats);
/* Writes the last run as a file for Perfetto or chrome://tracing; needs options.trace. A trace of
   this name is replaced, another file is refused. With ranks from the environment all ranks call it
   and rank 0 writes. */
GRIDLOOM_API gridloom_status gridloom_session_write_trace(gridloom_session *session,
                                                          const char *path);

#ifdef __cplusplus
}
#endif

#endif /* GRIDLOOM_H */
