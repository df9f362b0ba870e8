import HTTPTypes
import Hummingbird
import Intake
import JSONText
import NIOCore
import Subscriptions

/// Receives App Store Server Notifications, authenticated by signatures or a shared secret.
///
/// The Content-Type does not matter: Apple repeats one that does not get a 200.
struct NotificationController: Controller {
  let api: API

  func receive(_ request: Request, context: APIContext) async throws -> Response {
    switch try await answer(to: request) {
    case .stored(let id, _): return Response { $0.member("notification_id", id) }
    case .refused(let refusal):
      // Delayed, so that a flood of them can't starve other requests.
      BodyShare.current?.giveBack()
      await api.brake.delay(.notification(context), at: now())
      throw Problem(refusal)
    }
  }

  private func answer(to request: Request) async throws -> NotificationAnswer {
    let limit = NotificationIntake.longestBody
    if let length = request.headers[.contentLength].flatMap({ Int($0) }), length > limit {
      return await api.notifications.refuseTooLong(bytes: length)
    }
    let buffer: ByteBuffer
    do {
      buffer = try await request.wholeBody(upTo: limit)
    } catch let problem as Problem where problem.code == .contentTooLarge {
      return await api.notifications.refuseTooLong(bytes: limit + 1)
    }
    return try await api.notifications.receive(Array(buffer.readableBytesView))
  }
}

extension Problem {
  /// The answer to a refused notification: 401 for a wrong secret, 400 for everything else.
  fileprivate init(_ refusal: NotificationRefusal) {
    self.init(ProblemCode.named(refusal.code.rawValue) ?? .invalidRequest, refusal.detail)
    if refusal.code == .wrongSecret {
      // A 401 must name an authentication scheme (RFC 9110, section 15.5.2).
      headers[.wwwAuthenticate] = "SharedSecret"
    } else {
      status = .badRequest
    }
  }
}
