import ArgumentParser
import Foundation
import Subscriptions

/// Reads arguments; what is thrown stands behind "The value … is invalid for …:".
enum ArgumentText {
  static func moment(_ text: String) throws -> Timestamp {
    guard let moment = Timestamp(rfc3339: text) else {
      throw ValidationError("it is no time like 2026-12-31T00:00:00Z")
    }
    return moment
  }

  static func uuid(_ text: String) throws -> UUID {
    guard let id = UUID(uuidString: text) else { throw ValidationError("it is no UUID") }
    return id
  }

  static func environment(_ text: String) throws -> Subscriptions.Environment {
    guard let environment = Subscriptions.Environment(rawValue: text) else {
      throw ValidationError("it is neither production nor sandbox")
    }
    return environment
  }
}
