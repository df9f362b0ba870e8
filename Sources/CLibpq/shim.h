#pragma once

#include <libpq-fe.h>

/// Ends a group of pipelined statements. libpq 17 and later leave the bytes in the send buffer until
/// the next flush, so that many groups share one write; older ones write at once.
static inline int tenure_pipeline_sync(PGconn *connection) {
#ifdef LIBPQ_HAS_SEND_PIPELINE_SYNC
  return PQsendPipelineSync(connection);
#else
  return PQpipelineSync(connection);
#endif
}
