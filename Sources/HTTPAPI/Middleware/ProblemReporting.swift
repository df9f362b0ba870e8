import HTTPTypes
import Hummingbird
import Logging
import NIOHTTP1

/// Turns whatever is thrown into an answer.
package struct ProblemReporting: RouterMiddleware {
  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    do {
      return try await next(request, context)
    } catch let error as HTTPParserError {
      // There is no request to answer: the server closes the connection.
      throw error
    } catch {
      let response = Response(Self.problem(error, context))
      // An answer to HEAD ends with its header; a body would be taken for the next answer.
      return request.method == .head ? response.createHeadResponse() : response
    }
  }

  /// Says what an error means, and logs it where it is the server's.
  package static func problem(_ error: any Error, _ context: APIContext) -> Problem {
    let problem = Problem(error)
    if problem.status.kind == .serverError {
      context.logger.log(
        level: problem.code == .unavailable ? .warning : .error, "A request failed",
        metadata: ["http.route": "\(context.route)", "error": "\(error)"])
    }
    return problem
  }
}
