import HTTPTypes

/// The stable names of what can go wrong; the OpenAPI document lists the same.
enum ProblemCode: String, CaseIterable, Sendable {
  case invalidRequest = "invalid_request"
  case unauthorized
  case forbidden
  case notFound = "not_found"
  case unknownProduct = "unknown_product"
  case unknownOrder = "unknown_order"
  case unknownAccount = "unknown_account"
  case unknownSubmission = "unknown_submission"
  case unknownTransaction = "unknown_transaction"
  case unknownOriginalTransaction = "unknown_original_transaction"
  case unknownGrant = "unknown_grant"
  case unknownEvent = "unknown_event"
  case unknownReport = "unknown_report"
  case methodNotAllowed = "method_not_allowed"
  case ambiguous
  case notTheOwner = "not_the_owner"
  case revoked
  case accountErased = "account_erased"
  case accountMerged = "account_merged"
  case grantDiffers = "grant_differs"
  case webhooksOff = "webhooks_off"
  case cursorExpired = "cursor_expired"
  case cursorUnknown = "cursor_unknown"
  case contentTooLarge = "content_too_large"
  case unsupportedMediaType = "unsupported_media_type"
  case receiptRejected = "receipt_rejected"
  case wrongBundleID = "wrong_bundle_id"
  case invalidSignature = "invalid_signature"
  case wrongSecret = "wrong_secret"
  case internalError = "internal_error"
  case unavailable

  var status: HTTPResponse.Status {
    switch self {
    case .invalidRequest: .badRequest
    case .unauthorized, .wrongSecret: .unauthorized
    case .forbidden: .forbidden
    case .notFound, .unknownProduct, .unknownOrder, .unknownAccount, .unknownSubmission,
      .unknownTransaction, .unknownOriginalTransaction, .unknownGrant, .unknownEvent,
      .unknownReport:
      .notFound
    case .methodNotAllowed: .methodNotAllowed
    case .ambiguous, .notTheOwner, .revoked, .accountErased, .accountMerged, .grantDiffers,
      .webhooksOff:
      .conflict
    case .cursorExpired, .cursorUnknown: .gone
    case .contentTooLarge: .contentTooLarge
    case .unsupportedMediaType: .unsupportedMediaType
    case .receiptRejected, .wrongBundleID, .invalidSignature: .unprocessableContent
    case .internalError: .internalServerError
    case .unavailable: .serviceUnavailable
    }
  }

  /// What the code means, the same for every occurrence.
  var title: String {
    switch self {
    case .invalidRequest: "The request is not valid"
    case .unauthorized: "A valid API key is needed"
    case .forbidden: "The API key's role does not suffice"
    case .notFound: "There is nothing at this path"
    case .unknownProduct: "The product is not in the catalogue"
    case .unknownOrder: "There is no such order"
    case .unknownAccount: "The account was never seen"
    case .unknownSubmission: "There is no such submission"
    case .unknownTransaction: "The transaction was never recorded"
    case .unknownOriginalTransaction: "The original transaction was never recorded"
    case .unknownGrant: "There is no such grant"
    case .unknownEvent: "There is no such event"
    case .unknownReport: "There is no such report"
    case .methodNotAllowed: "The path does not have this method"
    case .ambiguous: "More than one thing goes by this id"
    case .notTheOwner: "The account does not own the transaction"
    case .revoked: "The transaction is revoked"
    case .accountErased: "The account's person was erased"
    case .accountMerged: "The account was merged into another"
    case .grantDiffers: "A grant of this id exists, and is another one"
    case .webhooksOff: "Events are not pushed"
    case .cursorExpired: "The feed can't be read on from there"
    case .cursorUnknown: "Unknown cursor"
    case .contentTooLarge: "The request's body is too large"
    case .unsupportedMediaType: "The request's body is not JSON"
    case .receiptRejected: "The receipt was rejected"
    case .wrongBundleID: "What was submitted is of another app"
    case .invalidSignature: "The signed data can't be trusted"
    case .wrongSecret: "The shared secret is not the app's"
    case .internalError: "Something went wrong here"
    case .unavailable: "Not available now"
    }
  }
}
