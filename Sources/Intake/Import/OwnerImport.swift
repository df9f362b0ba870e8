import Foundation
package import LedgerStorage
package import Subscriptions

/// Takes a file of owners in: what `tenure import` does.
///
/// Nothing is kept of how far it came: what is known is not recorded again, and is passed over far
/// faster than it was recorded. So one that was killed is simply begun again.
package struct OwnerImport: Sendable {
  /// How many lines are recorded in one database transaction: enough that the commit costs little,
  /// few enough that one which is begun anew costs little too.
  package static let chunk = 2000
  /// How many of them at once: PostgreSQL works on one while the other's rows are made.
  package static let writers = 2

  package let ledger: Ledger
  package let terms: AccessTerms
  /// What the entries name as their source.
  package let source: String
  /// When the file was true.
  package let asOf: Timestamp
  package let isDryRun: Bool
  package let now: @Sendable () -> Timestamp
  /// So many bytes of receipts end a chunk, however few its lines are.
  package var chunkBytes = 16 << 20

  package init(
    ledger: Ledger, terms: AccessTerms, source: String, asOf: Timestamp, isDryRun: Bool,
    now: @escaping @Sendable () -> Timestamp
  ) {
    self.ledger = ledger
    self.terms = terms
    self.source = source
    self.asOf = asOf
    self.isDryRun = isDryRun
    self.now = now
  }

  /// What came of a file, so far.
  package struct Summary: Hashable, Sendable {
    package var lines = 0
    package var recorded = 0
    package var known = 0
    /// The same line with the same account once more.
    package var repeated = 0
    package var errors = 0
    package var bytesRead = 0
  }

  /// An error in a file, as it is written beside it.
  package struct LineError: Hashable, Sendable {
    package var line: Int
    package var fault: RowFault
  }

  /// Reads the file to its end.
  ///
  /// - Parameters:
  ///   - file: At its beginning.
  ///   - report: Called with each error, in the order of the lines.
  ///   - progress: Called from time to time.
  /// - Returns: What came of it.
  /// - Throws: What the database or the file system says.
  package func run(
    _ file: consuming RowFile, report: (LineError) throws -> Void, progress: (Summary) -> Void
  ) async throws -> Summary {
    var file = file
    var summary = Summary()
    var seen = SeenOwners()
    var isOver = false
    while !isOver {
      var chunks: [[Item]] = []
      for _ in 0..<Self.writers where !isOver {
        var items: [Item] = []
        var bytes = 0
        while items.count < Self.chunk, bytes < chunkBytes {
          guard let row = try file.next() else {
            isOver = true
            break
          }
          summary.lines += 1
          if let item = item(row, seen: &seen) {
            items.append(item)
            if case .success(let owner) = item.owner { bytes += owner.receipt?.utf8.count ?? 0 }
          } else {
            summary.repeated += 1
          }
        }
        chunks.append(items)
      }
      for items in try await record(chunks) {
        for item in items {
          switch item.outcome {
          case .success(.recorded): summary.recorded += 1
          case .success: summary.known += 1
          case .failure(let fault):
            summary.errors += 1
            try report(LineError(line: item.line, fault: fault))
          }
        }
      }
      summary.bytesRead = file.bytesRead
      progress(summary)
    }
    return summary
  }

  // MARK: Parts

  /// A row with whose line it says it is.
  private struct Item: Sendable {
    var line: Int
    var owner: Result<ImportedOwner, RowFault>
  }

  /// A row with what came of it.
  private struct Done: Sendable {
    var line: Int
    var outcome: Result<ImportVerdict, RowFault>
  }

  /// What a row says; nil if an earlier one said so.
  private func item(_ row: FileRow, seen: inout SeenOwners) -> Item? {
    let owner = row.values.flatMap { OwnerRow.owner($0, asOf: asOf) }
    guard case .success(let imported) = owner else { return Item(line: row.line, owner: owner) }
    switch seen.add(imported) {
    case .new: return Item(line: row.line, owner: owner)
    case .repeated: return nil
    case .contradicted:
      return Item(
        line: row.line,
        owner: .failure(
          RowFault(
            code: "different_accounts",
            reason: "An earlier line of the file gives \(imported.line) to another account.")))
    }
  }

  private func record(_ chunks: [[Item]]) async throws -> [[Done]] {
    try await withThrowingTaskGroup(of: (Int, [Done]).self) { group in
      for (index, items) in chunks.enumerated() {
        group.addTask { (index, try await record(items)) }
      }
      var done: [[Done]] = Array(repeating: [], count: chunks.count)
      for try await (index, items) in group { done[index] = items }
      return done
    }
  }

  private func record(_ items: [Item]) async throws -> [Done] {
    let owners = items.compactMap { try? $0.owner.get() }
    var verdicts = try await ledger.importOwners(
      owners, from: source, isDryRun: isDryRun, terms: terms, at: now()
    ).makeIterator()
    return items.map { item in
      Done(
        line: item.line,
        outcome: item.owner.flatMap { owner in
          switch verdicts.next() {
          case .recorded?: .success(.recorded)
          case .known?: .success(.known)
          case .ownedByAnotherAccount(let other)?:
            .failure(
              RowFault(
                code: "owned_by_another_account",
                reason: "\(owner.line) belongs to \(other) in Tenure; nothing is changed."))
          case .accountErased?:
            .failure(
              RowFault(
                code: "account_erased",
                reason: "The person behind \(owner.accountID.quotable) was erased."))
          case nil: preconditionFailure("There is a verdict on each owner.")
          }
        })
    }
  }
}

/// Whose the lines are that stood in a file so far, in sixteen bytes each.
package struct SeenOwners {
  /// What an owner adds.
  package enum News { case new, repeated, contradicted }

  private var accounts: [Int: Int] = [:]

  /// Notes an owner.
  ///
  /// By hashes of 64 bits, which are keyed anew by each process: that two of some millions of lines
  /// have the same is less likely than a broken disk.
  package mutating func add(_ owner: ImportedOwner) -> News {
    let (line, account) = (owner.line.hashValue, AccountID(owner.accountID).hashValue)
    guard let known = accounts[line] else {
      accounts[line] = account
      return .new
    }
    return known == account ? .repeated : .contradicted
  }
}
