import Hummingbird
import Intake
import JSONText
import LedgerStorage
import NIOCore
import Reports

extension Problem {
  /// Says what an error means to the caller: the one place where errors become answers.
  ///
  /// What the caller can do nothing about is not told in detail: the log has it.
  init(_ error: any Error) {
    switch error {
    case let problem as Problem:
      self = problem
    case let error as LedgerError:
      self.init(error)
    case let error as DecodingError:
      self.init(error)
    case let error as JSONError:
      self.init(.invalidRequest, "The body is not JSON that is accepted: it \(error).")
    case is NIOTooManyBytesError:
      self.init(.contentTooLarge, "The body is too large.")
    case let error as any HTTPResponseError:
      self.init(error)
    case is CancellationError:
      self = .unavailable("The server is stopping. Try again.")
    case is NotificationQueueFull:
      self = .unavailable("Too many notifications are being verified. Send it again.")
    case is TooManyFiles:
      self = .unavailable("Too many files are being sent. Try again.")
    case _ where Ledger.isUnavailable(error):
      self = .unavailable("The database can't be reached, or is too slow. Try again.")
    default:
      self.init(.internalError, "This is not the request's fault; the log has the reason.")
    }
  }

  private init(_ error: LedgerError) {
    switch error {
    case .unknownProduct: self.init(.unknownProduct, error.description)
    case .unknownSubmission: self.init(.unknownSubmission, error.description)
    case .unknownAccount: self.init(.unknownAccount, error.description)
    case .unknownTransaction: self.init(.unknownTransaction, error.description)
    case .revokedCharge: self.init(.revoked, error.description)
    case .unknownGrant: self.init(.unknownGrant, error.description)
    case .erasedAccount: self.init(.accountErased, error.description)
    case .mergedAccount: self.init(.accountMerged, error.description)
    case .mergesIntoItself: self = .invalid(TextField.into.name, "must be another account")
    case .differentGrant: self.init(.grantDiffers, error.description)
    case .schemaVersion: self = .unavailable(error.description)
    default: self.init(.internalError, error.description)
    }
  }

  /// The body is not the JSON that is expected.
  private init(_ error: DecodingError) {
    switch error {
    case .keyNotFound(let key, let context):
      self = .invalid((context.codingPath + [key]).fieldName, "is missing")
    case .valueNotFound(_, let context) where !context.codingPath.isEmpty:
      self = .invalid(context.codingPath.fieldName, "must not be null")
    case .typeMismatch(let type, let context) where !context.codingPath.isEmpty:
      self = .invalid(context.codingPath.fieldName, "must be \(Self.name(of: type))")
    case .typeMismatch, .valueNotFound:
      self.init(.invalidRequest, "The body must be a JSON object.")
    default:
      self.init(.invalidRequest, "The body is not valid JSON.")
    }
  }

  private static func name(of type: any Any.Type) -> String {
    switch type {
    case is String.Type: "a string"
    case is Bool.Type: "true or false"
    case is Int.Type, is Int64.Type: "a whole number"
    case is [Any].Type: "an array"
    default: "an object"
    }
  }

  /// What Hummingbird itself refuses.
  private init(_ error: any HTTPResponseError) {
    switch error.status {
    case .notFound: self.init(.notFound, "GET /openapi.yaml tells what there is.")
    case .contentTooLarge: self.init(.contentTooLarge, "The body is too large.")
    case .unsupportedMediaType:
      self.init(.unsupportedMediaType, "Send JSON, as `Content-Type: application/json`.")
    case let status where status.kind == .clientError:
      self.init(.invalidRequest, "The request can't be understood: \(status.reasonPhrase).")
    default:
      self.init(.internalError, "This is not the request's fault; the log has the reason.")
    }
  }
}

extension [any CodingKey] {
  /// The way to a field, as in `account_ids[3]`.
  fileprivate var fieldName: String {
    reduce(into: "") { name, key in
      if let index = key.intValue {
        name += "[\(index)]"
      } else {
        name += name.isEmpty ? key.stringValue : ".\(key.stringValue)"
      }
    }
  }
}
