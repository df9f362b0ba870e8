import Foundation
import HTTPTypes
import Hummingbird
import Intake
import JSONText
import LedgerStorage
import Subscriptions

struct ReceiptController: Controller {
  let api: API

  func submit(_ request: Request, context: APIContext) async throws -> Response {
    let body = ReceiptRequest(body: try await request.json(upTo: BodyLimit.receipt))
    return response(to: try await api.intake.submit(try body.submission()), exchanges: nil)
  }

  func show(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.uuidParameter("submission_id")
    guard let answer = try await api.intake.status(of: id) else {
      throw Problem(.unknownSubmission, "No submission has the ID \(id.text).")
    }
    // Apple's answers may contain other customers' purchases, so only administrators see them.
    let exchanges =
      context.caller?.role == .admin ? try await ledger.submissions.exchanges(of: id) : nil
    return response(to: answer, exchanges: exchanges)
  }

  private func response(to answer: SubmissionAnswer, exchanges: [SubmissionExchange]?) -> Response {
    switch answer {
    case .verified(let verified):
      let catalogue = catalogue
      return Response(capacity: 4096) { json in
        json.member("submission_id", verified.id)
        json.member("status", "verified")
        json.member("environment", verified.environment)
        json.array("transactions", verified.transactions) { $0.transaction($1, in: catalogue) }
        json.memberIfPresent("order", verified.order)
        json.member("warnings", verified.warnings.map(\.rawValue))
        json.member("entitlements", verified.entitlements)
        json.memberIfPresent("exchanges", exchanges)
      }
    case .pending(let id, let retryAt, let problem, let entitlements):
      return Response(status: .accepted, headers: [.location: "/v1/receipts/\(id.text)"]) { json in
        json.member("submission_id", id)
        json.member("status", "pending")
        // Absent after the last retry, which the detail then explains.
        json.memberIfPresent("retry_at", retryAt)
        json.memberIfPresent("detail", retryAt == nil ? problem?.detail : nil)
        // Absent if provisional access is turned off.
        json.memberIfPresent("entitlements", entitlements)
        json.memberIfPresent("exchanges", exchanges)
      }
    case .rejected(let id, let reason):
      var problem = Problem(ProblemCode.named(reason.code) ?? .receiptRejected, reason.detail)
      // Rejected submissions always get 422, whatever status the code has elsewhere.
      problem.status = .unprocessableContent
      problem.submission = Problem.RejectedSubmission(
        id: id.text, appleStatus: reason.appleStatus, exchanges: exchanges)
      return Response(problem)
    }
  }
}

extension SubmissionExchange: JSONObjectWritable {
  func writeMembers(to json: inout JSONWriter) {
    json.member("endpoint", endpoint)
    json.member("asked_at", askedAt)
    json.member("duration_ms", duration.inMilliseconds)
    json.member("http_status", httpStatus)
    json.member("answer", answer.map { String(decoding: $0, as: UTF8.self) })
    json.member("fault", fault)
    json.memberIfPresent("aged_out", prunedPayload)
  }
}

extension PrunedPayload: JSONObjectWritable {
  func writeMembers(to json: inout JSONWriter) {
    json.member("at", at)
    json.member("sha256", sha256.hexadecimal)
    json.member("bytes", bytes)
  }
}
