import AppStoreSimulator
import ArgumentParser

/// What `tenure fuzz` tries to break.
enum FuzzTarget: String, CaseIterable, ExpressibleByArgument, Sendable {
  /// The reader of JSON, and the payloads that are read of it.
  case json
  /// Signed transactions, renewal infos and app transactions.
  case jws
  /// Notifications with signed parts.
  case notification
  /// Answers of verifyReceipt.
  case verifyReceipt = "verify-receipt"
}

/// A text from nowhere, and what must become of it.
struct FuzzInput: Sendable {
  var bytes: [UInt8]
  /// Whether accepting it would be a hole.
  var isForged = false
}

/// A part of the program that takes texts from outside.
protocol FuzzSubject: Sendable {
  /// What is needed to try an input again, beside the input: for one that trusts a root, that.
  var context: String { get }
  /// Makes an input, the same for the same state of the generator.
  func input(_ random: inout SplitMix64) throws -> FuzzInput
  /// Takes an input.
  ///
  /// - Returns: Whether it was accepted.
  /// - Throws: ``FuzzFinding`` where what was understood contradicts itself.
  func accepts(_ bytes: [UInt8]) async throws -> Bool
}

/// What must not happen, in one sentence.
struct FuzzFinding: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}

extension FuzzTarget {
  /// The subject with its samples.
  ///
  /// - Parameters:
  ///   - samples: More of them than are built in.
  ///   - context: What an earlier run kept of its own; nil for a new one.
  /// - Returns: What is tried.
  /// - Throws: What keeps it from being made.
  func subject(samples: FuzzSamples, context: String? = nil) throws -> any FuzzSubject {
    switch self {
    case .json: JSONFuzz(samples: samples)
    case .jws: try JWSFuzz(samples: samples, context: context)
    case .notification: try NotificationFuzz(samples: samples, context: context)
    case .verifyReceipt: VerifyReceiptFuzz(samples: samples)
    }
  }
}

extension FuzzSubject {
  var context: String { "" }

  /// Makes one input after the other, and takes it.
  ///
  /// - Parameters:
  ///   - random: Where the inputs come from.
  ///   - willTry: Is told of each input before it is taken.
  /// - Returns: Whether it was accepted.
  /// - Throws: ``FuzzFinding``, or what `willTry` throws.
  func tryNext(
    _ random: inout SplitMix64, willTry: (FuzzInput) throws -> Void = { _ in }
  ) async throws -> Bool {
    let input = try input(&random)
    try willTry(input)
    let isAccepted = try await accepts(input.bytes)
    if isAccepted, input.isForged { throw FuzzFinding("A forged text was accepted.") }
    return isAccepted
  }
}
