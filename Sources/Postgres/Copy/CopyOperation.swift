/// One COPY under way.
package struct CopyOperation: Sendable {
  /// Rows are sent in pieces of this size: large enough that the hand-over to the loop costs
  /// nothing, small enough to keep many COPYs in memory.
  fileprivate static let pieceBytes = 64 * 1024

  private let use: ExclusiveUse
  var finished: @Sendable () -> Void = {}

  init(_ use: ExclusiveUse) {
    self.use = use
  }

  /// Gathers rows and sends them piece by piece.
  struct Writer {
    fileprivate var encoder = CopyEncoder()
    fileprivate let use: ExclusiveUse

    mutating func write(_ encode: (inout CopyEncoder) throws -> Void) async throws {
      try encode(&encoder)
      if encoder.count >= CopyOperation.pieceBytes { try await use.write(encoder.take()) }
    }
  }

  /// Runs COPY with the rows that a body writes; nothing is copied when it throws, or when the
  /// server refuses a row.
  func run(_ sql: SQL, _ body: (inout Writer) async throws -> Void) async throws -> Int {
    do {
      let rows = try await withTaskCancellationHandler {
        try await copy(sql.text + " (FORMAT binary)", body)
      } onCancel: {
        PostgresLoop.submit { [use] in use.cancel() }
      }
      await end()
      return rows
    } catch {
      await end()
      throw (error as? PostgresError)?.during(sql.text) ?? error
    }
  }

  private func copy(_ text: String, _ body: (inout Writer) async throws -> Void) async throws -> Int
  {
    try await use.beginCopy(text)
    do {
      var writer = Writer(use: use)
      try await body(&writer)
      writer.encoder.end()
      try await use.write(writer.encoder.take())
    } catch {
      // What the server says to it is not why it failed, unless the server was the one that failed.
      do { _ = try await use.endCopy(aborting: "the client gave up") } catch let serverError {
        if error is PostgresError { throw serverError }
      }
      throw error
    }
    return try await use.endCopy()
  }

  private func end() async {
    await use.end()
    finished()
  }
}
