import Hummingbird
import HummingbirdCore
import LedgerStorage

extension APIContext {
  /// Who acts, for the record of administrators' acts.
  ///
  /// - Parameter reason: Why, in the administrator's own words.
  /// - Returns: The administrator, by the name of the key.
  /// - Throws: A ``Problem`` where nobody is known to call.
  func administrator(reason: String? = nil) throws -> Administrator {
    guard let caller else { throw Problem.unauthorized }
    return Administrator(name: caller.name, reason: reason)
  }
}

extension TextField {
  /// A few sentences, in one paragraph.
  static let reason = TextField(
    name: "reason", maximumLength: Administrator.maximumReasonLength)
}

extension Request {
  private struct ReasonRequest: Decodable {
    var reason: String
  }

  /// Reads why something is to be deleted: from the query, or from the body, which not every client
  /// and proxy lets pass with DELETE.
  ///
  /// - Throws: A ``Problem`` where there is no reason.
  func reason() async throws -> String {
    if let reason = try Query(uri)?.text(.reason) { return reason }
    guard let body = try await jsonIfPresent(ReasonRequest.self) else {
      throw Problem.invalid(TextField.reason.name, "is missing")
    }
    return try TextField.reason.checked(body.reason)
  }
}
