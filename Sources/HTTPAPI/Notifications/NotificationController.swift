import HTTPTypes
import Hummingbird
import Intake
import JSONText
import NIOCore
import Subscriptions

/// What Apple sends without being asked.
///
/// Anybody can post here, so nobody is asked for a key: a notification proves itself by its
/// signatures or its shared secret. Whatever the Content-Type says, the body is read: Apple takes
/// every answer but 200 for a failure and sends the notification again.
struct NotificationController: Sendable {
  let intake: NotificationIntake
  let brake: FailureBrake
  let now: @Sendable () -> Timestamp

  @Sendable
  func receive(_ request: Request, context: APIContext) async throws -> Response {
    switch try await answer(to: request) {
    case .stored(let id, _):
      return Response(StoredNotificationAnswer(id: id))
    case .refused(let refusal):
      // A flood of them would keep the cores from answering others.
      BodyShare.current?.giveBack()
      await brake.delay(.notification(context), at: now())
      throw Problem(refusal)
    }
  }

  private func answer(to request: Request) async throws -> NotificationAnswer {
    let limit = NotificationIntake.longestBody
    if let length = request.headers[.contentLength].flatMap({ Int($0) }), length > limit {
      return await intake.refuseTooLong(bytes: length)
    }
    let buffer: ByteBuffer
    do {
      buffer = try await request.wholeBody(upTo: limit)
    } catch let problem as Problem where problem.code == .contentTooLarge {
      return await intake.refuseTooLong(bytes: limit + 1)
    }
    return try await intake.receive(Array(buffer.readableBytesView))
  }
}

private struct StoredNotificationAnswer: JSONWritable {
  let id: String

  func write(to json: inout JSONWriter) {
    json.object { $0.member("notification_id", id) }
  }
}

extension Problem {
  /// Why a notification is refused.
  ///
  /// 401 only where the secret is wrong; everything else is 400, whatever the code means elsewhere:
  /// that is what Apple's endpoint is promised.
  fileprivate init(_ refusal: NotificationRefusal) {
    switch refusal.code {
    case .invalidRequest: self.init(.invalidRequest, refusal.detail)
    case .invalidSignature: self.init(.invalidSignature, refusal.detail)
    case .wrongBundleID: self.init(.wrongBundleID, refusal.detail)
    case .wrongSecret:
      self.init(.wrongSecret, refusal.detail)
      // An answer of 401 names a way to prove oneself (RFC 9110, section 15.5.2).
      headers[.wwwAuthenticate] = "SharedSecret"
      return
    }
    status = .badRequest
  }
}
