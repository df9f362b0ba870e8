import HTTPTypes
import Hummingbird
import Logging
import NIOHTTP1

/// Answers every error with a ``Problem``.
package struct ProblemReporting: RouterMiddleware {
  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    do {
      return try await next(request, context)
    } catch let error as HTTPParserError {
      // Without a parsed request there is nothing to answer: the server closes the connection.
      throw error
    } catch {
      let response = Response(Self.problem(error, context))
      // A response to HEAD ends with its header; a body would be taken for the next response.
      return request.method == .head ? response.createHeadResponse() : response
    }
  }

  /// Converts an error, and logs it if it is a server error.
  package static func problem(_ error: any Error, _ context: APIContext) -> Problem {
    let problem = Problem(error)
    if problem.status.kind == .serverError {
      context.logger.log(
        level: problem.code == .unavailable ? .warning : .error, "Request failed",
        metadata: ["http.route": "\(context.route)", "error": "\(error)"])
    }
    return problem
  }
}
