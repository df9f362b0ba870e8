extension Ledger {
  /// Adds to the sums by the day what they lack, after movements were written by other ways than
  /// recording.
  ///
  /// - Throws: What the database says.
  package func sumUpJournal() async throws {
    _ = try await mendJournal()
  }
}
