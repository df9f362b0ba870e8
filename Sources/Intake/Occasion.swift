package import Logging

/// What a task works on behalf of: the request or the job that began it.
///
/// It goes with the task to everything that is called from there, so that one id leads through the
/// log from the request to PostgreSQL and to Apple, without being handed through every function.
package enum Occasion: Sendable {
  /// A request, by its `X-Request-ID`.
  case request(id: String)
  /// A job, by its number in the queue.
  case job(id: Int64, kind: String)

  /// Nil outside of requests and jobs.
  @TaskLocal package static var current: Occasion?

  /// The request's id; nil where it is none.
  package var requestID: String? {
    if case .request(let id) = self { id } else { nil }
  }

  /// Adds the occasion to whatever is logged.
  package static let metadataProvider = Logger.MetadataProvider {
    switch current {
    case .request(let id): ["request.id": "\(id)"]
    case .job(let id, let kind): ["job.id": "\(id)", "job.kind": "\(kind)"]
    case nil: [:]
    }
  }
}
