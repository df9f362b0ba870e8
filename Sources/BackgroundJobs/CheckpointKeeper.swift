import Foundation
import LedgerStorage
import Subscriptions

/// The operator's place for checkpoints, out of reach of the database's owner.
package enum CheckpointKeeper: Sendable {
  case none
  /// Each checkpoint is appended as a line of JSON.
  case file(String)
  /// Each checkpoint is posted, signed like events.
  case webhook(WebhookReceiver)

  /// The checkpoints that are kept at once.
  private static let limit = 100

  /// Keeps the checkpoints that the place may lack, and returns why that failed.
  ///
  /// A file is read for its last line; a receiver gets the latest at each run, maybe twice.
  func keep(from auditor: LedgerAuditor, at now: Timestamp) async throws -> String? {
    switch self {
    case .none: return nil
    case .file(let path):
      do {
        try await append(to: URL(filePath: path), from: auditor)
        return nil
      } catch let error as CocoaError {
        return "The checkpoint can't be written: \(error.localizedDescription)"
      }
    case .webhook(let receiver):
      guard let latest = try await auditor.checkpoints(limit: 1).first else { return nil }
      let sender = WebhookSender(to: receiver)
      let failure: String?
      do {
        failure = try await sender.send(latest.text, at: now)
      } catch {
        await sender.shutDown()
        throw error
      }
      await sender.shutDown()
      return failure
    }
  }

  private func append(to file: URL, from auditor: LedgerAuditor) async throws {
    if !FileManager.default.fileExists(atPath: file.path(percentEncoded: false)) {
      try Data().write(to: file)
    }
    let known = try String(contentsOf: file, encoding: .utf8).split(separator: "\n").last
    let last = try known.map { line in
      guard let last = try? JSONDecoder().decode(Checkpoint.self, from: Data(line.utf8)) else {
        throw CocoaError(.fileReadCorruptFile)
      }
      return last
    }
    let missing = try await auditor.checkpoints(limit: Self.limit).filter {
      $0.number > last?.number ?? 0
    }
    guard !missing.isEmpty else { return }
    let handle = try FileHandle(forWritingTo: file)
    defer { try? handle.close() }
    try handle.seekToEnd()
    try handle.write(contentsOf: Data(missing.reversed().map { $0.text + "\n" }.joined().utf8))
    try handle.synchronize()
  }
}
