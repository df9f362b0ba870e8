package import Subscriptions

/// A transaction that Apple has signed, of an app that is served, with all that a ledger needs.
package struct SignedTransaction: Hashable, Sendable {
  package let payload: JWSTransactionDecodedPayload
  package let environment: Environment
  /// The configured app that it belongs to.
  package let bundleID: String
  /// The transaction in the vocabulary of the rules, as of the date at which it was signed.
  package let record: TransactionRecord
  /// The line that this one continues, where Apple names one.
  package let previousLine: LineID?

  /// - Parameters:
  ///   - payload: Its signature was verified.
  ///   - environment: Where it was made.
  ///   - bundleID: Compared with the configured apps.
  /// - Throws: ``SignedDataFault`` where a field is missing or can't be used.
  init(
    _ payload: JWSTransactionDecodedPayload, environment: Environment, bundleID: String
  ) throws(SignedDataFault) {
    self.payload = payload
    self.environment = environment
    self.bundleID = bundleID
    record = try TransactionRecord(payload, environment: environment)
    let line = record.key.line
    let previous = try PayloadFields.number(
      payload.previousOriginalTransactionID, "previousOriginalTransactionId"
    ).map { LineID(environment, OriginalTransactionID($0)) }
    previousLine = previous == line ? nil : previous
  }

  /// What it says: the transaction, and the link to an earlier line.
  package var evidence: [Evidence] { evidence(kind: .unknown) }

  /// The same; `kind` is that of a charge whose transaction doesn't tell.
  func evidence(kind: ChargeKind) -> [Evidence] {
    var record = record
    if payload.transactionReason == nil { record.kind = kind }
    return [.transaction(record)]
      + (previousLine.map { [.link(line: record.key.line, previous: $0)] } ?? [])
  }
}
