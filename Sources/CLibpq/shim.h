#pragma once

#include <libpq-fe.h>

#ifdef __linux__
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#endif

#ifdef __linux__
/// Names the calling thread, for debuggers; glibc declares the function only to GNU sources.
extern int pthread_setname_np(pthread_t thread, const char *name);
static inline void tenure_name_thread(const char *name) {
  pthread_setname_np(pthread_self(), name);
}
#endif

/// Ends a group of pipelined statements. libpq 17 and later leave the bytes in the send buffer until
/// the next flush, so that many groups share one write; older ones write at once.
static inline int tenure_pipeline_sync(PGconn *connection) {
#ifdef LIBPQ_HAS_SEND_PIPELINE_SYNC
  return PQsendPipelineSync(connection);
#else
  return PQpipelineSync(connection);
#endif
}
